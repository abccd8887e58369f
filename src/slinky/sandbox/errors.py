"""What can go wrong with a sandbox. Every error says what was tried, what is wrong and what would help.

SandboxError
    CircumstanceError    the machine cannot do it: not root, no room, no registry, no kernel support
    BuildError           something could not be built or downloaded; carries the last lines of the log
    PartDiedError        a server of the sandbox ended; carries the last lines of its log
    PartSlowError        a server of the sandbox runs, but does not answer
    UsageError           what was asked for does not exist or does not fit
"""

from pathlib import Path

__all__ = ["BuildError", "CircumstanceError", "PartDiedError", "PartSlowError", "SandboxError", "UsageError", "last_lines"]


class SandboxError(Exception):
    """The root of the tree."""


class CircumstanceError(SandboxError):
    """The machine is not up to it; the message says what to change."""


class UsageError(SandboxError):
    """What was asked for does not exist or does not fit."""


class _WithLogError(SandboxError):
    def __init__(self, message: str, log: Path | None = None) -> None:
        self.log = log
        tail = last_lines(log) if log else ""
        super().__init__(f"{message}\n{tail}\n(all of it: {log})" if tail else message)


class BuildError(_WithLogError):
    """A build or a download failed."""


class PartDiedError(_WithLogError):
    """A server of the sandbox ended when it should have gone on."""


class PartSlowError(_WithLogError):
    """A server of the sandbox did not become ready within its time."""


def last_lines(log: Path, count: int = 12) -> str:
    """The end of a log, indented for a message; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 16384))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join("    " + line[:400] for line in text.splitlines()[-count:])
