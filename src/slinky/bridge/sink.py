"""The sink: one real slurmd behind the addresses of all external nodes, answered through here, a little late.

Comes in: connections of slurmctld's for nodes that have no slurmd: signals, ends of jobs that shrank. Goes out: the same bytes to one slurmd after `delay` seconds, and its answers. Late, so that a job which is being signalled shows it for long enough to be seen by
whoever polls; answered, so that its nodes do not count as silent. What must stay true: a bounded number of connections, and an end to each; nothing is kept, nothing is read. It needs nothing but Python, so it can be run as a file of its own on slurmctld's host.
"""

import argparse
import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

__all__ = ["MOST_CONNECTIONS", "Sink", "address_of", "main", "serve"]

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 2000
MOST_LATE = 16  # in a window
WINDOW_SECONDS = 10.0
MOST_WAITING = 4000  # besides
BACKLOG = 1024
CONNECT_SECONDS = 10.0
WHOLE_SECONDS = 120.0  # of one connection, the delay aside
CHUNK = 65536


def address_of(text: str) -> tuple[str, int]:
    """`HOST:PORT`; ValueError where it is something else."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is no HOST:PORT, such as 10.0.0.1:6818")
    return host.strip("[]"), int(port)


@dataclass
class Sink:
    """`slurmd` is where the real one listens. `open_now` connections are open, `served` were; those beyond the limit wait, so many of them, `failed` came to nothing."""

    slurmd: tuple[str, int]
    delay: float = 5.0
    most: int = MOST_CONNECTIONS
    open_now: int = 0
    served: int = 0
    failed: int = 0
    _late: deque[float] = field(default_factory=deque)  # when

    async def run(self, listen: tuple[str, int]) -> None:
        """Until cancelled."""
        turns = asyncio.Semaphore(self.most)
        waiting = 0

        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal waiting
            if waiting >= MOST_WAITING:
                self.failed += 1
                log.warning("more than %d connections wait: one is closed", waiting)
                writer.close()
                return
            waiting += 1
            async with turns:
                waiting -= 1
                await self._serve(reader, writer)

        server = await asyncio.start_server(one, *listen, backlog=BACKLOG)
        log.info("%s:%d leads to the slurmd at %s:%d, after %g s", *listen, *self.slurmd, self.delay)
        async with server:
            await server.serve_forever()

    def _lateness(self) -> float:
        """Only the first of many at once are late. A job shows its signal until the last of its nodes has answered, so that is enough; and what slurmctld sends to a thousand nodes is passed on from node to node, where delays would add up to more than it waits."""
        now = asyncio.get_running_loop().time()
        while self._late and self._late[0] < now - WINDOW_SECONDS:
            self._late.popleft()
        if len(self._late) >= MOST_LATE:
            return 0.0
        self._late.append(now)
        return self.delay

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_now += 1
        self.served += 1
        behind: asyncio.StreamWriter | None = None
        try:
            await asyncio.sleep(self._lateness())
            async with asyncio.timeout(WHOLE_SECONDS):
                async with asyncio.timeout(CONNECT_SECONDS):
                    answers, behind = await asyncio.open_connection(*self.slurmd)
                await asyncio.gather(_copy(reader, behind), _copy(answers, writer))
        except (OSError, TimeoutError) as error:
            self.failed += 1
            log.warning("a connection came to nothing: %s", error or type(error).__name__)
        finally:
            self.open_now -= 1
            for each in (writer, behind):
                if each is not None:
                    each.close()
                    with suppress(OSError):
                        await each.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()


async def serve(listen: str, slurmd: str, delay: float) -> None:
    await Sink(address_of(slurmd), delay).run(address_of(listen))


def main() -> None:
    parser = argparse.ArgumentParser(description="Leads what slurmctld sends to external nodes to one slurmd.")
    parser.add_argument("--listen", required=True, help="HOST:PORT: the address that external nodes are registered with.")
    parser.add_argument("--slurmd", required=True, help="HOST:PORT of a slurmd.")
    parser.add_argument("--delay", type=float, default=5.0, help="Seconds before it is asked.")
    said = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(said.listen, said.slurmd, said.delay))


if __name__ == "__main__":
    main()
