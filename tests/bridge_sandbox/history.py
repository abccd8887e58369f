"""What ran on a real node, by its own word: each pod and each job of Slurm's own writes a line when it begins and one when it ends, into one file of the node, with the time that the kernel has been up.

A line is `+ NAME CPUS SECONDS` or `- NAME CPUS SECONDS`. Who is killed without a warning writes no end: the tests give everyone time for one.
"""

from typing import NamedTuple

from slinky.sandbox.handle import Sandbox

__all__ = ["History", "script"]

FOLDER = "/var/tmp"


def script(name: str, cpus: int, seconds: float, *, folder: str = FOLDER) -> str:
    """A shell script that takes so long, or until the test lets it end; a polite request to end it ignores."""
    return f"""
        say() {{ read up rest < /proc/uptime; echo "$1 {name} {cpus} $up" >> {folder}/history; }}
        trap '' TERM
        say +
        left={round(seconds * 10)}
        while [ $left -gt 0 ] && [ ! -e {folder}/end-{name} ]; do sleep 0.1; left=$((left - 1)); done
        say -
    """


class Line(NamedTuple):
    sign: str
    name: str
    cpus: int
    at: float


class History:
    """Of one node, as it is now."""

    def __init__(self, sandbox: Sandbox, node: str) -> None:
        self._file = sandbox.folder / node / FOLDER.lstrip("/") / "history"

    def let_end(self, name: str) -> None:
        (self._file.parent / f"end-{name}").touch()

    def lines(self) -> list[Line]:
        text = self._file.read_text() if self._file.exists() else ""
        found = [Line(sign, name, int(cpus), float(at)) for sign, name, cpus, at in map(str.split, text.splitlines())]
        return sorted(found, key=lambda line: (line.at, line.sign == "+"))

    def began(self, name: str) -> float | None:
        return next((line.at for line in self.lines() if line.name == name and line.sign == "+"), None)

    def ended(self, name: str) -> float | None:
        return next((line.at for line in self.lines() if line.name == name and line.sign == "-"), None)

    def most_at_once(self) -> int:
        """CPUs that were in use at one moment, at most."""
        most = now = 0
        for line in self.lines():
            now += line.cpus if line.sign == "+" else -line.cpus
            most = max(most, now)
        return most

    def together(self, one: str, other: str) -> bool:
        """Whether at some moment one whose name begins so ran beside one whose name begins so."""
        there: set[str] = set()
        for line in self.lines():
            if line.sign == "-":
                there.discard(line.name)
                continue
            there.add(line.name)
            if any(name.startswith(one) for name in there) and any(name.startswith(other) for name in there):
                return True
        return False
