"""Which version of slurmrestd's API to speak. Pure: the paths that a server offers go in, a version comes out.

We speak v0.0.43 to v0.0.46; v0.0.43 (Slurm 25.05) is the first with external jobs. What a version lacks is said by `require`, with the version and
the Slurm release that have it.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from slinky.slurm.errors import ConfigurationError, UnsupportedError

__all__ = ["NEWEST", "OLDEST", "Version", "choose", "offered", "require"]


class Version(msgspec.Struct, frozen=True, order=True):
    """v0.0.45 is `Version(45)`."""

    number: int

    def __str__(self) -> str:
        return f"v0.0.{self.number}"

    @classmethod
    def parse(cls, text: str) -> "Version":
        if not (match := re.fullmatch(r"v?0\.0\.(\d+)", text.strip())):
            raise ConfigurationError(f"{text!r} is no version of Slurm's REST API; it would look like v0.0.45")
        return cls(int(match[1]))


OLDEST, NEWEST = Version(43), Version(46)
RELEASES = {40: "23.11", 41: "24.05", 42: "24.11", 43: "25.05", 44: "25.11", 45: "26.05", 46: "26.11"}

# What came later than v0.0.43, by the path that a call uses.
SINCE: Mapping[str, int] = {
    "new/node/": 44,
    "resources/": 44,
    "conf": 45,
    "job/requeue": 45,
    "jobs/requeue": 45,
}


def offered(paths: Iterable[str]) -> list[Version]:
    """The versions for which a server has a path under /slurm/, oldest first."""
    found = {match[1] for path in paths if (match := re.match(r"/slurm/v0\.0\.(\d+)/", path))}
    return sorted(Version(int(number)) for number in found)


def choose(served: Iterable[Version], wanted: Version | None = None) -> Version:
    """The newest that both sides speak, or the one that is wanted. Raises UnsupportedError with what would do."""
    served = sorted(served)
    spoken = f"{OLDEST} to {NEWEST}"
    if wanted is not None:
        if wanted not in served:
            raise UnsupportedError(f"the server does not offer {wanted}; it offers {_names(served)}")
        if not OLDEST <= wanted <= NEWEST:
            raise UnsupportedError(f"this client does not speak {wanted}; it speaks {spoken}")
        return wanted
    both = [version for version in served if OLDEST <= version <= NEWEST]
    if both:
        return both[-1]
    if not served:
        raise UnsupportedError(
            f"the server offers no Slurm API at all; this client speaks {spoken} (is the slurmctld plugin of slurmrestd loaded?)"
        )
    if served[-1] < OLDEST:
        raise UnsupportedError(
            f"the server is too old: it offers {_names(served)}, and this client needs {OLDEST} or newer, which Slurm {RELEASES[OLDEST.number]} and later serve"
        )
    raise UnsupportedError(f"the server is too new: it offers {_names(served)}, and this client speaks {spoken}; a newer slinky would do")


def require(feature: str, version: Version) -> None:
    """Raise unless `version` has the call; the message says which one does."""
    since = SINCE[feature]
    if version.number < since:
        raise UnsupportedError(f"{feature} needs {Version(since)} (Slurm {RELEASES[since]} or later); the server is spoken to in {version}")


def _names(versions: Iterable[Version]) -> str:
    return ", ".join(str(version) for version in versions) or "nothing"
