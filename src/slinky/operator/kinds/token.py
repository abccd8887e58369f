"""Token: a Slurm user's token, kept fresh in a Secret."""

import datetime as dt
from typing import Annotated

import msgspec

from slinky.kube.objects import Meta
from slinky.operator.kinds.common import Conditioned, KeyReference, Part, told

__all__ = ["Token", "TokenSpec", "TokenStatus"]


class TokenSpec(Part, frozen=True):
    """Whose token, and where it is put."""

    jwt_key_ref: Annotated[KeyReference | None, told("The Secret's key with jwt.key: the Controller's. Cannot be changed.")] = None
    jwt_hs256_key_ref: Annotated[KeyReference | None, told("The older name of jwtKeyRef.")] = msgspec.field(
        default=None, name="jwtHs256KeyRef"
    )
    username: Annotated[str, told("The Slurm user. Which ones may be named here, the operator's settings say.")] = ""
    lifetime: Annotated[str, told("How long a token is good, such as 15m, 1h30m or 24h.")] = "15m"
    refresh: Annotated[bool, told("Whether a new one takes its place in time; without, the Secret stays as it is.")] = True
    secret_ref: Annotated[KeyReference | None, told("The Secret, and the key in it; `NAME-jwt-USER` and SLURM_JWT where not said.")] = None

    @property
    def jwt_reference(self) -> KeyReference | None:
        return self.jwt_key_ref or self.jwt_hs256_key_ref


class TokenStatus(Conditioned, frozen=True):
    """How the token is."""

    issued_at: Annotated[dt.datetime | None, told("When the present one was made.")] = None
    expires_at: Annotated[dt.datetime | None, told("Until when it is good.")] = None


class Token(msgspec.Struct, kw_only=True, frozen=True):
    """A Slurm user's token in a Secret."""

    metadata: Meta
    spec: TokenSpec = msgspec.field(default_factory=TokenSpec)
    status: TokenStatus = msgspec.field(default_factory=TokenStatus)
