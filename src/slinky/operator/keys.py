"""Keys that a cluster needs and nobody has given: slurm.key, jwt.key, and the host keys of logins. Made once, and kept.

Comes in: an owner, the name of a Secret, and what makes its content. Goes out: a Secret. What must stay true: one that is there is never written, whoever made it; a key is in the Secret and nowhere else.
"""

import asyncio
import base64
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from slinky.kube import AlreadyExistsError, Client, Key, KubeError
from slinky.operator.children import SECRETS, Owner
from slinky.operator.files import NamespaceFiles

__all__ = ["KeyMaker", "host_keys", "random_key", "secret_body"]

log = logging.getLogger(__name__)

KEY_BYTES = 1024
RSA_BITS = 3072

Makes = Callable[[], Mapping[str, bytes]]


def random_key(name: str) -> Makes:
    """What Slurm takes for slurm.key and jwt.key alike: random bytes."""
    return lambda: {name: secrets.token_bytes(KEY_BYTES)}


def host_keys() -> dict[str, bytes]:
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


def secret_body(name: str, namespace: str, content: Mapping[str, bytes], owner: Owner | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if owner is not None:
        metadata["ownerReferences"] = [owner.reference()]
    data = {key: base64.b64encode(value).decode() for key, value in content.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}


class KeyMaker:
    """`keep`: what was made stays when its owner goes."""

    def __init__(self, kube: Client, files: NamespaceFiles, *, keep: bool = False, may_act: Callable[[], bool] = lambda: True) -> None:
        self._kube = kube
        self._files = files
        self._keep = keep
        self._may_act = may_act

    async def ensure(self, owner: Owner, name: str, makes: Makes) -> bool:
        """Whether one was made. The owner's namespace has to be known."""
        if self._files.get("Secret", Key(owner.namespace, name)) is not None:
            return False
        if not self._may_act():
            raise KubeError(f"Secret {owner.namespace}/{name} was not made: another process leads")
        content = await asyncio.to_thread(makes)
        body = secret_body(name, owner.namespace, content, None if self._keep else owner)
        try:
            await self._kube.create(SECRETS, body, owner.namespace)
        except AlreadyExistsError:
            return False
        log.info("Secret %s/%s was made for %s %s", owner.namespace, name, owner.kind, owner.name)
        return True
