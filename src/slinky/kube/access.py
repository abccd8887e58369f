"""Where the API server is and how to prove who we are: plain settings, as a kubeconfig or a pod's ServiceAccount mount gives them.

In: files. Out: an `Access`, which holds nothing open and may be shared by threads; each `Client` makes its own credentials and connections from it.
What must stay true: secrets are not in its repr, so they are not in logs or tracebacks either.
"""

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from slinky.kube.errors import ConfigurationError

__all__ = ["Access", "ExecPlugin", "Identity", "in_cluster"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class ExecPlugin:
    """A program that prints credentials (client.authentication.k8s.io)."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    cluster_info: bool = False


@dataclass(frozen=True)
class Identity:
    """Who we are. At most one of token, token file, password and plugin is used, in this order; a certificate may go along with any."""

    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    plugin: ExecPlugin | None = None
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Access:
    """One API server, and our identity there."""

    server: str
    identity: Identity = field(default_factory=Identity)
    authority: str = field(default="", repr=False)  # PEM; empty means the system's
    insecure: bool = False
    server_name: str = ""
    proxy: str | None = None  # None: as the environment says
    namespace: str = "default"

    def tls(self) -> ssl.SSLContext | None:
        """A new context; None where the server speaks plain HTTP."""
        if not self.server.startswith("https:"):
            return None
        context = ssl.create_default_context(cadata=self.authority or None)
        # Python 3.13 asks for extensions that many clusters' own authorities lack; kubectl does not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.identity.certificate:
            present(context, self.identity.certificate, self.identity.key)
        return context


def present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have the context show this certificate in handshakes from now on. Python reads it from files only; they live for an instant, for us alone."""
    with tempfile.TemporaryDirectory(prefix="slinky-") as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(certificate.rstrip() + b"\n" + key)
        try:
            context.load_cert_chain(pair, password="")  # or an encrypted key would ask on the terminal
        except ssl.SSLError as error:
            raise ConfigurationError(f"the client certificate and its key cannot be used together: {error.reason}") from None


def in_cluster(folder: Path = SERVICE_ACCOUNT, environment: dict[str, str] | None = None) -> Access:
    """As a pod's ServiceAccount. The token file is read again as it is renewed."""
    variables = os.environ if environment is None else environment
    host, port = variables.get("KUBERNETES_SERVICE_HOST", ""), variables.get("KUBERNETES_SERVICE_PORT", "443")
    token, authority = folder / "token", folder / "ca.crt"
    if not host or not token.exists():
        raise ConfigurationError(
            f"not in a pod: KUBERNETES_SERVICE_HOST is {host or 'not set'}, {token} {'exists' if token.exists() else 'is missing'}"
        )
    namespace = folder / "namespace"
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        identity=Identity(token_file=token),
        authority=authority.read_text() if authority.exists() else "",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        proxy="",
    )
