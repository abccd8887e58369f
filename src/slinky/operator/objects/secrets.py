"""Secrets that the operator keeps: keys it made, host keys, tokens. What is in them is made elsewhere; here is only their shape.

What must stay true: a key that was made once is never made again over it (the Secret is immutable), and a token's Secret goes with its Token.
"""

import base64
from collections.abc import Mapping
from typing import Any

from slinky.operator import labels, names
from slinky.operator.kinds import Controller, LoginSet, Token
from slinky.operator.objects.meta import Maker, metadata, resource

__all__ = ["host_keys_secret", "jwt_key_secret", "slurm_key_secret", "token_secret", "token_secret_name"]


def slurm_key_secret(controller: Controller, key: bytes) -> dict[str, Any]:
    name = names.slurm_key_secret(controller.metadata.name)
    return _secret(controller, name, labels.controller_labels(controller), {names.SLURM_KEY: key}, immutable=True)


def jwt_key_secret(controller: Controller, key: bytes) -> dict[str, Any]:
    name = names.jwt_key_secret(controller.metadata.name)
    return _secret(controller, name, labels.controller_labels(controller), {names.JWT_KEY: key}, immutable=True)


def host_keys_secret(loginset: LoginSet, files: Mapping[str, bytes]) -> dict[str, Any]:
    """`files`: of each of `conf.sshd.HOST_KEY_FILES` the private key, and under the same name with `.pub` the public one."""
    return _secret(loginset, names.host_keys(loginset.metadata.name), labels.login_labels(loginset), files, immutable=True)


def token_secret_name(token: Token) -> tuple[str, str]:
    """The Secret, and the key in it."""
    reference = token.spec.secret_ref
    usual = names.token_secret(token.metadata.name, token.spec.username)
    return (reference.name or usual, reference.key or names.TOKEN_KEY) if reference else (usual, names.TOKEN_KEY)


def token_secret(token: Token, jwt: str) -> dict[str, Any]:
    """One that is not refreshed stays as it is."""
    name, key = token_secret_name(token)
    mine = {labels.APP: "token", labels.INSTANCE: token.metadata.name}
    return _secret(token, name, mine, {key: jwt.encode()}, immutable=not token.spec.refresh)


def _secret(maker: Maker, name: str, mine: Mapping[str, str], files: Mapping[str, bytes], *, immutable: bool) -> dict[str, Any]:
    data = {file: base64.b64encode(content).decode() for file, content in sorted(files.items())}
    return resource("v1", "Secret", metadata(maker, name, mine), type="Opaque", data=data, **({"immutable": True} if immutable else {}))
