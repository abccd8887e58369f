"""What of a cluster stays while it is being deleted, for whom, and how it is let go.

Comes in: a Controller, RestApi or Accounting as it was written, and what else there is in its namespace. Goes out: a finalizer while it lives; once it is being deleted, the sentence that says what it waits for, and at last its finalizer's end.
What must stay true: slurmctld, and the slurmrestd through which it is asked, are there for as long as a NodeSet of the cluster is, so that its workers are drained and go on Slurm's word; nothing stays without saying why and what would end it.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence

from slinky.kube import ApiError, ConflictError, NotFoundError
from slinky.operator.conditions import PROGRESSING, under_way, was_available
from slinky.operator.kinds import Written
from slinky.operator.relations import Place, accounting_of, controller_of
from slinky.operator.site import Site
from slinky.operator.statuses import conditions_of
from slinky.operator.trouble import Trouble
from slinky.operator.watching import RESOURCES

__all__ = ["ABANDON", "FINALIZER", "HELD", "Departing", "abandons", "stays_for"]

HELD = ("Controller", "RestApi", "Accounting")
FINALIZER = "slinky.slurm.net/workers"
ABANDON = "slinky.slurm.net/abandon-jobs"  # annotation: "true" on what is being deleted lets it go with its jobs
TOGETHER = dt.timedelta(seconds=10)  # within so long, what is deleted together is seen to be
AGAIN_SECONDS = 5.0

Others = Callable[[str, str], Iterable[Written]]


def is_leaving(found: Written) -> bool:
    return found.metadata.deletion_timestamp is not None


def abandons(nodeset: Written, controller: Written | None) -> bool:
    """Whether a NodeSet's workers go without a word of Slurm's: it is being deleted, and an administrator has said so, of it or of its whole cluster that is being deleted too."""
    if not is_leaving(nodeset):
        return False
    return _is_given_up(nodeset) or (controller is not None and is_leaving(controller) and _is_given_up(controller))


def _is_given_up(found: Written) -> bool:
    return found.metadata.annotations.get(ABANDON) == "true"


def stays_for(kind: str, found: Written, others: Others, now: dt.datetime) -> str:
    """What an object that is being deleted waits for, in a sentence; empty where it may go. `others(kind, namespace)` gives all there are."""
    match kind:
        case "Controller":
            return _controller(found, others)
        case "RestApi":
            return _restapi(found, others, now)
        case "Accounting":
            return _accounting(found, others, now)
    return ""


def _controller(found: Written, others: Others) -> str:
    nodesets = _nodesets(found.metadata.name, found.metadata.namespace, others)
    if _is_given_up(found):
        nodesets = [each for each in nodesets if is_leaving(each)]
    if not nodesets:
        return ""
    staying = [each for each in nodesets if not is_leaving(each)]
    waits = f"slurmctld stays until {_named(nodesets)} {'is' if len(nodesets) == 1 else 'are'} gone, so that running jobs can end"
    if staying:
        waits += f"; {_named(staying)} {'is' if len(staying) == 1 else 'are'} not being deleted: delete {'it' if len(staying) == 1 else 'them'} too"
    return f"{waits}. Annotation {ABANDON}=true gives the jobs up"


def _restapi(found: Written, others: Others, now: dt.datetime) -> str:
    namespace, controller = found.metadata.namespace, controller_of(found)
    head = next((each for each in others("Controller", namespace) if each.metadata.name == controller), None)
    nodesets = _nodesets(controller, namespace, others)
    if head is None or not nodesets or _is_given_up(found) or (is_leaving(head) and _is_given_up(head)):
        return ""
    if any(controller_of(each) == controller and not is_leaving(each) for each in others("RestApi", namespace)):
        return ""
    if is_leaving(head) or any(map(is_leaving, nodesets)):
        return f"Slurm is asked through it whether jobs run on workers, and {_named(nodesets)} {'is' if len(nodesets) == 1 else 'are'} not gone yet. Annotation {ABANDON}=true lets it go"
    return "it stays for a moment, in case its cluster is deleted with it" if _is_young(found, now) else ""


def _accounting(found: Written, others: Others, now: dt.datetime) -> str:
    heads = [each for each in others("Controller", found.metadata.namespace) if accounting_of(each) == found.metadata.name]
    leaving = [each for each in heads if is_leaving(each)]
    if not heads or _is_given_up(found):
        return ""
    if leaving:
        return (
            f"it records how the jobs of {_named(leaving, 'Controller')} end, which is not gone yet. Annotation {ABANDON}=true lets it go"
        )
    return "it stays for a moment, in case its cluster is deleted with it" if _is_young(found, now) else ""


def _nodesets(controller: str, namespace: str, others: Others) -> list[Written]:
    return sorted((each for each in others("NodeSet", namespace) if controller_of(each) == controller), key=lambda each: each.metadata.name)


def _named(found: Sequence[Written], kind: str = "NodeSet") -> str:
    names = ", ".join(each.metadata.name for each in found[:10]) + (" …" if len(found) > 10 else "")
    return f"{kind}{'' if len(found) == 1 else 's'} {names}"


def _is_young(found: Written, now: dt.datetime) -> bool:
    since = found.metadata.deletion_timestamp
    return since is not None and now - since < TOGETHER


class Departing:
    """The edge: finalizers, conditions and Events. `unasked(found)`: why a Controller's Slurm cannot be asked, empty where it can."""

    def __init__(self, site: Site, unasked: Callable[[Written], str]) -> None:
        self._site, self._unasked = site, unasked

    async def hold(self, place: Place, found: Written) -> Trouble | None:
        """Once it is made: so that it is there for as long as it is needed. What went wrong, for whoever goes on without."""
        if place.kind not in HELD or FINALIZER in found.metadata.finalizers:
            return None
        try:
            await self._write(place, found, [*found.metadata.finalizers, FINALIZER])
        except (ConflictError, NotFoundError):
            self._site.look_later(place, AGAIN_SECONDS)  # it has changed meanwhile
        except ApiError as error:
            return Trouble("Refused", f"Kubernetes refuses its finalizer: {error.message}")
        return None

    async def leave(self, place: Place, found: Written) -> bool:
        """Whether it stays for now; it is looked at again then."""
        if FINALIZER not in found.metadata.finalizers:
            return False
        waits = stays_for(
            place.kind, found, lambda kind, namespace: self._site.watches.kinds[kind].list(namespace), dt.datetime.now(dt.UTC)
        )
        if not waits:
            try:
                await self._write(place, found, [each for each in found.metadata.finalizers if each != FINALIZER])
            except (ConflictError, NotFoundError):
                self._site.look_later(place, AGAIN_SECONDS)
            return False
        await self._say(place, found, waits)
        self._site.look_later(place, AGAIN_SECONDS)
        return True

    async def _say(self, place: Place, found: Written, waits: str) -> None:
        held = {condition.type: condition for condition in conditions_of(found.status)}
        available, progressing = was_available(held.values()), held.get(PROGRESSING)
        if progressing is None or progressing.reason != "Deleting":
            self._site.statuses.event(place.kind, found, "DeletionWaits", waits)
        unasked = self._unasked(found) if place.kind == "Controller" else ""
        said = f"{waits}. Slurm cannot be asked at the moment: {unasked}" if unasked else waits
        await self._site.statuses.say(place.kind, found, under_way("Deleting", said, available=available))

    async def _write(self, place: Place, found: Written, finalizers: list[str]) -> None:
        if self._site.may_act():
            body = {"metadata": {"resourceVersion": found.metadata.resource_version, "finalizers": finalizers}}
            await self._site.kube.patch(RESOURCES[place.kind], found.metadata.name, body, found.metadata.namespace)
