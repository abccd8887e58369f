"""What a request carries to say who asks, and how that is kept fresh: token files are read again, exec plugins run again before their answer expires.

In: an `Identity`. Out: headers for each request, and a certificate where a plugin gave one. `renew` is called once after a 401.
What must stay true: a plugin is not run twice at the same time, never without a deadline, and what it printed is never shown.
"""

import asyncio
import base64
import datetime as dt
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from multidict import CIMultiDict

from slinky.kube.access import Access, ExecPlugin, Identity
from slinky.kube.errors import CredentialsError

__all__ = ["Credentials"]

TOKEN_FILE_SECONDS = 60.0  # the kubelet renews a token at 80 % of an hour; client-go reads the file once a minute too
PLUGIN_SECONDS = 60.0
EARLY_SECONDS = 10.0
INFO_VARIABLE = "KUBERNETES_EXEC_INFO"


class _Granted(msgspec.Struct, rename="camel", kw_only=True):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: dt.datetime | None = None


class _Answer(msgspec.Struct, rename="camel", kw_only=True):
    kind: str = ""
    api_version: str = ""
    status: _Granted = msgspec.field(default_factory=_Granted)


class Credentials:
    """One client's credentials. `on_certificate` is told of a certificate that a plugin gave."""

    def __init__(self, access: Access, on_certificate: Callable[[bytes, bytes], None], clock: Callable[[], float] = time.time) -> None:
        self._access = access
        self._identity: Identity = access.identity
        self._on_certificate = on_certificate
        self._clock = clock
        self._token = ""
        self._fresh_until = 0.0
        self._lock = asyncio.Lock()

    async def headers(self) -> CIMultiDict[str]:
        headers = self._impersonation()
        who = self._identity
        if who.token:
            headers["Authorization"] = f"Bearer {who.token}"
        elif who.token_file or who.plugin:
            if self._clock() >= self._fresh_until:
                await self._refresh()
            if self._token:
                headers["Authorization"] = f"Bearer {self._token}"
        elif who.username:
            pair = base64.b64encode(f"{who.username}:{who.password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        return headers

    async def renew(self) -> bool:
        """After a 401: whether there is something new to try with."""
        if not (self._identity.token_file or (self._identity.plugin and not self._identity.token)):
            return False
        self._fresh_until = 0.0
        return True

    def _impersonation(self) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict()
        if self._identity.impersonate:
            headers["Impersonate-User"] = self._identity.impersonate
        for group in self._identity.impersonate_groups:
            headers.add("Impersonate-Group", group)
        return headers

    async def _refresh(self) -> None:
        async with self._lock:
            if self._clock() < self._fresh_until:
                return
            if self._identity.token_file:
                self._token = read_token(self._identity.token_file)
                self._fresh_until = self._clock() + TOKEN_FILE_SECONDS
            elif self._identity.plugin:
                await self._ask(self._identity.plugin)

    async def _ask(self, plugin: ExecPlugin) -> None:
        granted = understood(plugin, await _run(plugin, self._access))
        self._token = granted.token
        if granted.client_certificate_data:
            self._on_certificate(granted.client_certificate_data.encode(), granted.client_key_data.encode())
        expiry = granted.expiration_timestamp
        self._fresh_until = expiry.timestamp() - EARLY_SECONDS if expiry else float("inf")
        # A plugin whose answer is expired already would otherwise be run for every single request.
        self._fresh_until = max(self._fresh_until, self._clock() + 1)


def read_token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except OSError as error:
        raise CredentialsError(f"token file {file}: {error.strerror}") from None
    if not token:
        raise CredentialsError(f"token file {file} is empty")
    return token


def understood(plugin: ExecPlugin, output: bytes) -> _Granted:
    """A plugin's output, checked. Its text stays out of every message."""
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except msgspec.DecodeError:
        raise CredentialsError(f"{plugin.command} printed no ExecCredential") from None
    if answer.kind != "ExecCredential" or answer.api_version != plugin.api_version:
        raise CredentialsError(
            f"{plugin.command} printed {answer.api_version or 'no apiVersion'} {answer.kind or 'without kind'}; "
            f"expected {plugin.api_version} ExecCredential"
        )
    if not answer.status.token and not (answer.status.client_certificate_data and answer.status.client_key_data):
        raise CredentialsError(f"{plugin.command} gave neither a token nor a certificate with its key")
    return answer.status


async def _run(plugin: ExecPlugin, access: Access) -> bytes:
    environment = {**os.environ, **plugin.environment, INFO_VARIABLE: _exec_info(plugin, access)}
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command, *plugin.arguments, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
    except OSError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        raise CredentialsError(f"credential plugin {plugin.command}: {error.strerror}{hint}") from None
    try:
        async with asyncio.timeout(PLUGIN_SECONDS):
            output, complaint = await process.communicate()
    except TimeoutError:
        raise CredentialsError(f"credential plugin {plugin.command} did not end within {PLUGIN_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:] or ["it printed no reason"]
        raise CredentialsError(f"credential plugin {plugin.command} ended with {process.returncode}: {last[0][:300]}")
    return output


def _exec_info(plugin: ExecPlugin, access: Access) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster_info:
        spec["cluster"] = {
            "server": access.server,
            "insecure-skip-tls-verify": access.insecure,
            "tls-server-name": access.server_name,
            "certificate-authority-data": base64.b64encode(access.authority.encode()).decode(),
        }
    return msgspec.json.encode({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}).decode()
