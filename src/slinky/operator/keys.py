"""Keys that a cluster needs and nobody has given: slurm.key, jwt.key, and the host keys of logins. Made once, and kept.

Comes in: the name of a Secret, and what makes it. Goes out: a Secret, and its content where it is read next. What must stay true: one that is there is never written, whoever made it; a key is in the Secret and nowhere else.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from slinky.kube import AlreadyExistsError, Client, Key, KubeError
from slinky.operator.children import SECRETS
from slinky.operator.files import NamespaceFiles

__all__ = ["KeyMaker", "Makes", "new_host_keys", "random_key"]

log = logging.getLogger(__name__)

KEY_BYTES = 1024
RSA_BITS = 3072

Makes = Callable[[], Mapping[str, Any]]


def random_key() -> bytes:
    """What Slurm takes for slurm.key and jwt.key alike."""
    return secrets.token_bytes(KEY_BYTES)


def new_host_keys() -> dict[str, bytes]:
    """As sshd wants them: one of each kind, with its public half. Takes a second or so."""
    pairs: dict[str, ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey] = {
        "ed25519": ed25519.Ed25519PrivateKey.generate(),
        "ecdsa": ec.generate_private_key(ec.SECP256R1()),
        "rsa": rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS),
    }
    found: dict[str, bytes] = {}
    for kind, key in pairs.items():
        found[f"ssh_host_{kind}_key"] = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        found[f"ssh_host_{kind}_key.pub"] = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    return found


class KeyMaker:
    """`keep`: what was made stays when its owner goes."""

    def __init__(self, kube: Client, files: NamespaceFiles, *, keep: bool = False, may_act: Callable[[], bool] = lambda: True) -> None:
        self._kube = kube
        self._files = files
        self._keep = keep
        self._may_act = may_act

    async def ensure(self, namespace: str, name: str, makes: Makes) -> bool:
        """Whether one was made. `makes` gives the Secret, and may take its time. What stands in the namespace has to be known."""
        if self._files.get("Secret", Key(namespace, name)) is not None:
            return False
        if not self._may_act():
            raise KubeError(f"Secret {namespace}/{name} was not made: another process leads")
        body = dict(await asyncio.to_thread(makes))
        if self._keep:
            body["metadata"] = {field: value for field, value in body["metadata"].items() if field != "ownerReferences"}
        try:
            await self._kube.create(SECRETS, body, namespace)
            log.info("Secret %s/%s was made", namespace, name)
            made = True
        except AlreadyExistsError:
            made = False
        await self._files.seen("Secret", Key(namespace, name))
        return made
