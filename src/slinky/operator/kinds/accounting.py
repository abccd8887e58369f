"""Accounting: slurmdbd, in front of a database that is there already."""

from typing import Annotated

import msgspec

from slinky.kube.objects import Meta
from slinky.operator.kinds.common import (
    PORTS,
    Conditioned,
    Container,
    ExternalHost,
    KeyReference,
    Part,
    PodTemplate,
    ServiceTemplate,
    told,
)

__all__ = ["Accounting", "AccountingSpec", "StorageConfig", "StorageTls"]


class StorageTls(Part, frozen=True):
    """How slurmdbd trusts the database, and shows itself to it."""

    ca_ref: Annotated[KeyReference | None, told("A Secret's key with the authorities' certificates (PEM).")] = None
    certificate_ref: Annotated[KeyReference | None, told("A Secret's key with our certificate (PEM).")] = None
    key_ref: Annotated[KeyReference | None, told("A Secret's key with our private key (PEM).")] = None


class StorageConfig(Part, frozen=True):
    """A MySQL or MariaDB server."""

    host: Annotated[str, told("Its host name or address.")] = ""
    port: Annotated[int, told("Its port.", **PORTS)] = 3306
    database: Annotated[str, told("The database in it.")] = "slurm_acct_db"
    username: Annotated[str, told("The user that slurmdbd is there.")] = ""
    password_key_ref: Annotated[KeyReference | None, told("A Secret's key with that user's password.")] = None
    tls: Annotated[StorageTls | None, told("TLS to the database; without, none.")] = None


class AccountingSpec(Part, frozen=True):
    """What records a cluster's jobs."""

    slurm_key_ref: Annotated[KeyReference | None, told("The Secret's key with slurm.key: the same as the Controller's.")] = None
    jwt_key_ref: Annotated[KeyReference | None, told("The Secret's key with jwt.key: the same as the Controller's.")] = None
    jwt_hs256_key_ref: Annotated[KeyReference | None, told("The older name of jwtKeyRef.")] = msgspec.field(
        default=None, name="jwtHs256KeyRef"
    )
    jwks_key_ref: Annotated[KeyReference | None, told("A ConfigMap's key with the public keys (JWKS) of other issuers of tokens.")] = None
    external: Annotated[bool, told("slurmdbd runs elsewhere: externalConfig says where, and none is made here.")] = False
    external_config: Annotated[ExternalHost | None, told("Where an external slurmdbd listens.")] = None
    slurmdbd: Container = msgspec.field(default_factory=dict)
    template: Annotated[PodTemplate, told("Of slurmdbd's pod.")] = msgspec.field(default_factory=PodTemplate)
    storage_config: Annotated[StorageConfig | None, told("The database.")] = None
    extra_conf: Annotated[str, told("Lines for slurmdbd.conf. What stands here wins over what the operator would write.")] = ""
    service: Annotated[ServiceTemplate, told("Of slurmdbd's Service.")] = msgspec.field(default_factory=ServiceTemplate)

    @property
    def jwt_reference(self) -> KeyReference | None:
        return self.jwt_key_ref or self.jwt_hs256_key_ref


class Accounting(msgspec.Struct, kw_only=True, frozen=True):
    """slurmdbd."""

    metadata: Meta
    spec: AccountingSpec = msgspec.field(default_factory=AccountingSpec)
    status: Conditioned = msgspec.field(default_factory=Conditioned)
