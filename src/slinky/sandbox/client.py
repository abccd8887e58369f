"""Plain HTTP to the sandbox's two API servers: what `up`, the demo and the tests need, and no more.

Each call has a deadline; an answer that is an error raises `HttpError` with the method, the path and what the server said.
"""

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from slinky.sandbox.errors import SandboxError

__all__ = ["HttpError", "Kube", "Rest", "SlurmRest"]

CALL_SECONDS = 30


class HttpError(SandboxError):
    """An answer that is not a success; `status` is 0 where there was no answer."""

    def __init__(self, method: str, path: str, status: int, text: str) -> None:
        self.status = status
        super().__init__(f"{method} {path}: {status or 'no answer'}: {_essence(text)}")


def _essence(text: str) -> str:
    """The part of an answer that says what is wrong: slurmrestd puts it behind a page about itself."""
    start = max(text.find('"errors"'), 0)
    return " ".join(text[start:].replace("\\n", " ").split())[:600]


class Rest:
    """A connection to one server. Use as an async context manager."""

    def __init__(
        self, server: str, context: ssl.SSLContext | None = None, headers: dict[str, str] | None = None, connections: int = 32
    ) -> None:
        self.server = server
        connector = aiohttp.TCPConnector(limit=connections, ssl=context or True)
        self._session = aiohttp.ClientSession(server, connector=connector, headers=headers, timeout=aiohttp.ClientTimeout(CALL_SECONDS))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """The decoded answer; text where it is not JSON."""
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._session.request(method, path, data=data, headers={"Content-Type": content_type} if data else {}) as answer:
                raw = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise HttpError(method, path, 0, str(error) or type(error).__name__) from error
        if answer.status >= 400:
            raise HttpError(method, path, answer.status, raw.decode(errors="replace"))
        return msgspec.json.decode(raw) if answer.content_type == "application/json" and raw else raw.decode(errors="replace")

    async def get(self, path: str) -> Any:
        return await self.call("GET", path)

    async def post(self, path: str, body: object) -> Any:
        return await self.call("POST", path, body)

    async def delete(self, path: str, body: object = None) -> Any:
        return await self.call("DELETE", path, body)


class Kube(Rest):
    """The API server, as the sandbox's administrator."""

    def __init__(self, kubernetes_home: Path, server: str, connections: int = 32) -> None:
        context = ssl.create_default_context(cafile=str(kubernetes_home / "pki/ca.crt"))
        context.load_cert_chain(kubernetes_home / "pki/admin.crt", kubernetes_home / "pki/admin.key")
        super().__init__(server, context, connections=connections)

    async def apply(self, manifest: dict[str, Any]) -> Any:
        """Server-side apply, so that a second time changes nothing."""
        path = f"{await self._collection(manifest)}/{manifest['metadata']['name']}?fieldManager=slinky-sandbox&force=true"
        return await self.call("PATCH", path, manifest, "application/apply-patch+yaml")

    async def apply_all(self, manifests: Sequence[dict[str, Any]]) -> None:
        await asyncio.gather(*(self.apply(manifest) for manifest in manifests))

    async def _collection(self, manifest: dict[str, Any]) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural = _PLURALS.get(kind, kind.lower() + "s")
        namespace = manifest["metadata"].get("namespace")
        return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


_PLURALS = {
    "StorageClass": "storageclasses",
    "NetworkPolicy": "networkpolicies",
    "Ingress": "ingresses",
    "PriorityClass": "priorityclasses",
}


class SlurmRest(Rest):
    """slurmrestd by plain HTTP, as root. Slurm tells errors in the body too, with status 200 or 500. What is more than a look or a measurement uses `slinky.slurm`."""

    VERSION = "v0.0.45"

    def __init__(self, server: str, token: str, user: str = "root", connections: int = 16) -> None:
        super().__init__(server, headers={"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": token}, connections=connections)

    async def slurm(self, method: str, path: str, body: object = None) -> Any:
        """`path` below /slurm/VERSION/."""
        answer = await self.call(method, f"/slurm/{self.VERSION}/{path}", body)
        if isinstance(answer, dict) and answer.get("errors"):
            raise HttpError(method, path, 200, str(answer["errors"]))
        return answer
