"""Both sides, asked with deadlines: whatever fails becomes a trouble, told once, and what was asked for stays empty.

Comes in: settings, and how Kubernetes is reached. Goes out: answers or a default, `troubles` and `unread`. What must stay true: no exception of a server's, a file's or a network's making leaves here; after a side has failed to answer at all it is not asked again, so that a dead one costs one deadline, not ten.
"""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TypeVar

from slinky.bridge.bridge import slurm_of
from slinky.bridge.settings import Settings
from slinky.explain.findings import Finding
from slinky.explain.troubles import Token, controller_trouble, kube_trouble, read_token, slurm_trouble
from slinky.kube import Access, Client, KubeError
from slinky.kube.retries import NEVER
from slinky.slurm import SlurmClient, SlurmError, TokenFile

__all__ = ["AskKube", "AskSlurm"]

T = TypeVar("T")
D = TypeVar("D")
SECONDS = 5.0
DEAD = frozenset(
    {
        "kubernetes-unreachable",
        "kubernetes-unauthorized",
        "slurm-unreachable",
        "slurm-token-unreadable",
        "slurm-token-expired",
        "slurm-token-refused",
    }
)


class _Side:
    def __init__(self) -> None:
        self.troubles: list[Finding] = []
        self.unread: set[str] = set()
        self._stack = AsyncExitStack()
        self._first = asyncio.Lock()
        self._asked = False

    @property
    def is_dead(self) -> bool:
        return any(trouble.code in DEAD for trouble in self.troubles)

    def _told(self, trouble: Finding, what: str) -> None:
        self.unread.add(what)
        if trouble.code not in {known.code for known in self.troubles}:
            self.troubles.append(trouble)

    async def _ask(self, what: str, question: Callable[[], Awaitable[T]], otherwise: D, wrong: Callable[[Exception], Finding]) -> T | D:
        if not self._asked:
            async with self._first:  # until one question was answered the others wait: is anybody there?
                answer = await self._once(what, question, otherwise, wrong)
                self._asked = True
                return answer
        return await self._once(what, question, otherwise, wrong)

    async def _once(self, what: str, question: Callable[[], Awaitable[T]], otherwise: D, wrong: Callable[[Exception], Finding]) -> T | D:
        if self.is_dead:
            self.unread.add(what)
            return otherwise
        try:
            async with asyncio.timeout(SECONDS):
                return await question()
        except (KubeError, SlurmError, OSError, TimeoutError) as error:
            self._told(wrong(error), what)
            return otherwise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()


class AskKube(_Side):
    """`async with AskKube(access) as kube: pods = await kube.ask("pods", lambda client: client.list(PODS), None)`. `access` may be what went wrong in finding it."""

    def __init__(self, access: Access | Exception) -> None:
        super().__init__()
        self._access = access
        self._client: Client | None = None

    async def __aenter__(self) -> "AskKube":
        if isinstance(self._access, Exception):
            self._told(kube_trouble(self._access, "how to reach it"), "access")
        else:
            self._client = await self._stack.enter_async_context(Client(self._access, connections=8, seconds=SECONDS, retries=NEVER))
        return self

    async def ask(self, what: str, question: Callable[[Client], Awaitable[T]], otherwise: D) -> T | D:
        client = self._client
        if client is None:
            self.unread.add(what)
            return otherwise
        return await self._ask(what, lambda: question(client), otherwise, lambda error: kube_trouble(error, what))


class AskSlurm(_Side):
    """The same for Slurm; `token` is what the bridge's token says of itself, None where it cannot be read."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._client: SlurmClient | None = None
        self.token: Token | None = None

    async def __aenter__(self) -> "AskSlurm":
        try:
            self.token = read_token(TokenFile(self._settings.slurm.token_file, self._settings.slurm.user).token())
            self._client = (await self._stack.enter_async_context(slurm_of(self._settings))).within(SECONDS)
        except SlurmError as error:
            self._told(self._wrong(error, "how to ask it"), "token")
        return self

    async def ask(self, what: str, question: Callable[[SlurmClient], Awaitable[T]], otherwise: D) -> T | D:
        client = self._client
        if client is None:
            self.unread.add(what)
            return otherwise
        return await self._ask(what, lambda: question(client), otherwise, lambda error: self._wrong(error, what))

    async def controller(self) -> Finding | None:
        """What is wrong where no slurmctld answers. To a ping a token that is refused looks the same, so another question is asked then, which tells."""
        down = controller_trouble(await self.ask("ping", lambda client: client.ping(), ()))
        if down is None:
            return None
        await self.ask("partitions", lambda client: client.partitions.all(), ())
        return None if any(trouble.code.startswith("slurm-token") for trouble in self.troubles) else down

    def _wrong(self, error: Exception, what: str) -> Finding:
        return slurm_trouble(error, what, self._settings, self.token, dt.datetime.now(dt.UTC))
