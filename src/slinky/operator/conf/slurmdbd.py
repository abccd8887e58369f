"""slurmdbd.conf. It holds the database's password: what is made here goes into a Secret and nowhere else.

What must stay true: an administrator's lines win; a password of any letters but a line break (or quotes together with spaces) reaches the database as it was given.
"""

from collections.abc import Iterable

from slinky.operator import names
from slinky.operator.conf.text import Line, joined, line
from slinky.operator.kinds import Accounting, KeyReference
from slinky.operator.kinds.accounting import StorageConfig, StorageTls

__all__ = ["slurmdbd_conf", "tls_files"]


def slurmdbd_conf(accounting: Accounting, password: str) -> str:
    spec = accounting.spec
    jwks = f",jwks={names.ETC}/{names.JWKS_FILE}" if spec.jwks_key_ref else ""
    storage = spec.storage_config or StorageConfig()
    ours: list[Line] = [
        line(DbdHost=f"{names.accounting(accounting.metadata.name)}-0"),
        line(DbdPort=names.SLURMDBD_PORT),
        line(SlurmUser="slurm"),
        line(LogTimeFormat="iso8601_ms,format_stderr"),
        line(PidFile="/run/slurmdbd/slurmdbd.pid"),
        line(AuthType="auth/slurm"),
        line(AuthAltTypes="auth/jwt"),
        line(AuthAltParameters=f"jwt_key={names.ETC}/{names.JWT_KEY}{jwks}"),
        line(AuthInfo="use_client_ids"),
        line(StorageType="accounting_storage/mysql"),
        line(StorageHost=storage.host),
        line(StoragePort=storage.port),
        line(StorageLoc=storage.database),
        *([line(StorageUser=storage.username)] if storage.username else []),
        *([line(StoragePass=password)] if password else []),
        *_tls(storage.tls),
    ]
    return joined(ours, spec.extra_conf)


def tls_files(tls: StorageTls | None) -> dict[str, tuple[str, KeyReference]]:
    """Slurm's name of each file → where it stands in /etc/slurm, and the Secret's key it comes from."""
    if tls is None:
        return {}
    given = {
        "SSL_CA": ("storage-ca.pem", tls.ca_ref),
        "SSL_CERT": ("storage-cert.pem", tls.certificate_ref),
        "SSL_KEY": ("storage-key.pem", tls.key_ref),
    }
    return {name: (file, reference) for name, (file, reference) in given.items() if reference is not None}


def _tls(tls: StorageTls | None) -> Iterable[Line]:
    files = tls_files(tls)
    if files:
        yield line(StorageParameters=",".join(f"{name}={names.ETC}/{file}" for name, (file, _) in files.items()))
