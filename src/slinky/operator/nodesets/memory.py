"""What was just done and is not seen yet, of one NodeSet: pods created and deleted, and what Slurm refused; and what was looked up lately, so that it is not asked for in each of many passes.

What must stay true: nothing is remembered for ever: what does not show within its time is forgotten, so that a watch that lost something can never hold a NodeSet up; doing it again does no harm.
"""

from collections.abc import Container, Hashable, Mapping

from slinky.kube import PersistentVolumeClaim
from slinky.operator.nodesets.creation import Creation
from slinky.operator.trouble import Trouble

__all__ = ["Memory"]

UNSEEN_SECONDS = 30.0
REFUSED_SECONDS = 300.0
TAKEN_SECONDS = 60.0
CLAIMS_SECONDS = 10.0


class Memory:
    def __init__(self) -> None:
        self._created: dict[str, float] = {}  # name → until when it counts
        self._deleted: dict[str, float] = {}  # uid
        self._refused: dict[str, float] = {}
        self._taken: dict[str, tuple[float, Trouble]] = {}  # pods' names that are another's
        self._claims: tuple[Hashable, float, Mapping[str, PersistentVolumeClaim]] | None = None
        self.creation = Creation()
        self.history_kept: Hashable = None  # for which revisions earlier templates were put in order last

    def created(self, name: str, now: float) -> None:
        self._created[name] = now + UNSEEN_SECONDS

    def deleted(self, uid: str, now: float) -> None:
        self._deleted[uid] = now + UNSEEN_SECONDS

    def refused(self, what: str, now: float) -> None:
        self._refused[what] = now + REFUSED_SECONDS

    def name_taken(self, name: str, trouble: Trouble, now: float) -> None:
        self._taken[name] = (now + TAKEN_SECONDS, trouble)

    def lately_taken(self, now: float) -> dict[str, Trouble]:
        """Not asked for again before long: nobody tells when such a name is free."""
        self._taken = {name: held for name, held in self._taken.items() if held[0] > now}
        return {name: trouble for name, (_, trouble) in self._taken.items()}

    def unseen_creations(self, seen: Container[str], now: float) -> frozenset[str]:
        """Names of pods that were created and are not in the cache yet."""
        self._created = {name: until for name, until in self._created.items() if until > now and name not in seen}
        return frozenset(self._created)

    def unseen_deletions(self, seen: Container[str], now: float) -> frozenset[str]:
        """Uids of pods that were deleted and are in the cache still."""
        self._deleted = {uid: until for uid, until in self._deleted.items() if until > now and uid in seen}
        return frozenset(self._deleted)

    def lately_refused(self, now: float) -> frozenset[str]:
        self._refused = {what: until for what, until in self._refused.items() if until > now}
        return frozenset(self._refused)

    def claims(self, of: Hashable, now: float) -> Mapping[str, PersistentVolumeClaim] | None:
        """As they were last listed for the same pods; None where that is long ago."""
        return self._claims[2] if self._claims is not None and self._claims[0] == of and now < self._claims[1] else None

    def listed(self, of: Hashable, claims: Mapping[str, PersistentVolumeClaim], now: float) -> None:
        self._claims = (of, now + CLAIMS_SECONDS, claims)

    def forget_claims(self) -> None:
        """Somebody else owns one by now."""
        self._claims = None

    @property
    def is_waiting(self) -> bool:
        return bool(self._created or self._deleted)
