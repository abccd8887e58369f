"""How a NodeSet stands: its numbers, and its conditions in words.

In: a snapshot and what was chosen from it. Out: the status to write. Pure.

*Invariants:* Ready says that all wanted workers can be used and are of the present template (with
OnDelete, of any). Available says that no more are missing than maxUnavailable allows, and never
that a NodeSet without a usable worker can be used. What holds a worker that is to go is named.
"""

import datetime as dt
from typing import Any

from slinky.operator.conditions import Standing, broken, settled, under_way
from slinky.operator.departing import ABANDON
from slinky.operator.kinds import NodeSet
from slinky.operator.kinds.nodeset import Update
from slinky.operator.labels import nodeset_selector
from slinky.operator.nodesets import marks
from slinky.operator.nodesets.choice import Choice, live
from slinky.operator.nodesets.drains import may_go, unasked
from slinky.operator.nodesets.snapshot import ClusterStands, Snapshot, Worker
from slinky.operator.nodesets.updates import most_away
from slinky.operator.standings import PodTrouble, pod_trouble

__all__ = ["is_unregistered", "numbers", "selector_text", "standing"]

OF_ONE = frozenset({"NodeNotReady", "NodeGone", "PodNotEnding", "PodNotReady"})  # of one machine
REGISTERING = dt.timedelta(seconds=90)  # that a ready slurmd may take to make itself known to Slurm


def numbers(snapshot: Snapshot, choice: Choice) -> dict[str, Any]:
    """As they are in JSON."""
    spec = snapshot.nodeset.spec
    workers = live(snapshot)
    available = sum(_is_available(worker, snapshot) for worker in workers)
    told = [worker.slurm for worker in workers if worker.slurm is not None]
    revision = snapshot.revision or snapshot.nodeset.status.node_set_hash  # the last one that was known
    return {
        "replicas": len(workers),
        "updatedReplicas": sum(worker.revision == revision for worker in workers),
        "readyReplicas": sum(worker.is_ready for worker in workers),
        "availableReplicas": available,
        "unavailableReplicas": max(0, choice.total - available),
        "desired": choice.total,
        "slurmIdle": sum(node.is_idle for node in told),
        "slurmAllocated": sum("ALLOCATED" in node.states or "MIXED" in node.states for node in told),
        "slurmDown": sum(node.is_down for node in told),
        "slurmDrain": sum("DRAIN" in node.states for node in told),
        **({"nodeSetHash": snapshot.revision} if snapshot.revision else {}),
        "selector": selector_text(snapshot.nodeset),
        **({"ordinalToNode": _pins(snapshot, workers)} if spec.pin_to_node else {}),
    }


def selector_text(nodeset: NodeSet) -> str:
    """Of its pods and claims."""
    return ",".join(f"{key}={value}" for key, value in nodeset_selector(nodeset).items())


def standing(snapshot: Snapshot, choice: Choice) -> Standing:
    workers = live(snapshot)
    usable = sum(_is_usable(worker, snapshot) for worker in workers)
    counted = f"{min(usable, choice.total)} of {choice.total} workers available"
    enough = _are_enough(usable, snapshot, choice)
    if snapshot.is_being_deleted:
        return _deleting(snapshot, choice)
    wrong = _worker_trouble(snapshot, workers)
    if wrong and not (enough and wrong.reason in OF_ONE):
        return broken(wrong.reason, f"{counted}; {wrong.message}", available=enough)
    if choice.taken:
        name, holder = min(choice.taken.items())
        todo = (
            "have the two fit different Kubernetes nodes"
            if snapshot.nodeset.spec.is_daemon_set
            else "give one of the two another template.spec.hostname"
        )
        note = f"{counted}; Slurm node {name} is a worker of NodeSet {holder}, and the cluster can have one of that name: {todo}"
        return broken("NameTaken", note, available=enough)
    if snapshot.controller is ClusterStands.MUTE:
        return _mute(snapshot, choice, workers, counted, usable)
    if not snapshot.slurm.is_current and workers:
        return _unheard(snapshot, choice, workers)
    if lost := _unregistered(snapshot, workers):
        said = f"Slurm does not know node {lost.hostname} of pod {lost.name}, which is ready: it is asked to register again"
        return broken("SlurmNodeNotRegistered", f"{counted}; {said}", available=enough)
    if invalid := next((worker for worker in workers if _is_invalid(worker)), None):
        said = f"Slurm does not use node {invalid.hostname}: {_reason(invalid)}"
        return broken("SlurmNodeInvalid", f"{counted}; {said}", available=enough)
    if wrong:  # some of many are always away: that alone is no alarm
        return under_way(wrong.reason, f"{counted}; {wrong.message}", available=True)
    return _at_work(snapshot, choice, workers, counted, usable)


def _at_work(snapshot: Snapshot, choice: Choice, workers: list[Worker], counted: str, usable: int) -> Standing:
    """Nothing is wrong."""
    enough = _are_enough(usable, snapshot, choice)
    updated = sum(worker.revision == snapshot.revision for worker in workers)
    if not enough:
        return under_way("WorkersStarting", counted)
    if _is_updating(snapshot, workers) and not _is_on_delete(snapshot):
        note = f"{updated} of {choice.total} workers are of the present template"
        return under_way("RollingUpdate", f"{note}{_held(snapshot, choice)}", available=True)
    if usable < choice.total:
        return under_way("WorkersStarting", counted, available=True)
    if choice.going:
        note = f"{len(choice.going)} workers are to go{_held(snapshot, choice)}"
        return under_way("ScalingDown", note, ready=True)
    if _is_updating(snapshot, workers):
        older = f"{len(workers) - updated} of an earlier template stay until they are deleted"
        return settled(f"{counted}; {older} (updateStrategy OnDelete)")
    return settled(counted)


def _are_enough(usable: int, snapshot: Snapshot, choice: Choice) -> bool:
    """No more are missing than maxUnavailable allows, and there is one if any is wanted."""
    return usable >= min(choice.total, max(1, choice.total - most_away(snapshot, choice.total)))


def _worker_trouble(snapshot: Snapshot, workers: list[Worker]) -> PodTrouble | None:
    if stuck := next((worker for worker in workers if worker.was_never_started), None):
        return PodTrouble("WorkersFailing", f"pod {stuck.name}: {_waits_for(stuck)}")
    assigned = (worker.pod for worker in snapshot.workers if worker.is_assigned)
    return pod_trouble(assigned, snapshot.nodes.get, snapshot.now)


def _unheard(snapshot: Snapshot, choice: Choice, workers: list[Worker]) -> Standing:
    """Of the workers only their pods are seen."""
    ready = sum(_is_available(worker, snapshot) for worker in workers)
    counted = f"{min(ready, choice.total)} of {choice.total} workers have a ready pod"
    said = f"{counted}; Slurm does not answer, and nothing is drained or deleted until it does"
    if snapshot.is_silent:
        name = snapshot.nodeset.spec.controller_ref.name
        more = f"the status of Controller {name} says more"
        return broken("SlurmNotAnswering", f"{said}: {more}")
    enough = _are_enough(ready, snapshot, choice)
    return under_way("SlurmNotAnswering", said, available=enough)


def _deleting(snapshot: Snapshot, choice: Choice) -> Standing:
    left, why = len(snapshot.pods), unasked(snapshot)
    workers = f"{left} {'worker is' if left == 1 else 'workers are'} left"
    if not left:
        return under_way("Deleting", f"no worker is left; {_still_to_do(snapshot)}")
    if why and not snapshot.is_abandoned:
        again = f"make {'a RestApi' if snapshot.controller is ClusterStands.MUTE else 'it'} again"
        ways = f"{again}, set drainDeadlineSeconds, or give the jobs up by annotation {ABANDON}=true"
        return broken(
            "NoRestApi" if snapshot.controller is ClusterStands.MUTE else "ControllerGone",
            f"{workers}, and {why}: nobody can say whether jobs run there; {ways}",
        )
    return under_way("Deleting", f"{workers}{_held(snapshot, choice)}")


def _still_to_do(snapshot: Snapshot) -> str:
    if not snapshot.slurm.is_current:
        return "Slurm does not answer, and is to be asked whether jobs wait in its partition"
    if waiting := snapshot.slurm.waiting:
        named = ", ".join(map(str, waiting[:10])) + (" …" if len(waiting) > 10 else "")
        return f"jobs wait in its partition, which goes with it: {named}. Cancel them, move them, or set drainDeadlineSeconds"
    return "its records in Slurm go"


def _mute(snapshot: Snapshot, choice: Choice, workers: list[Worker], counted: str, usable: int) -> Standing:
    """Nobody can be asked, and that is how the cluster was written: its pods are all that is seen."""
    if choice.going or _is_updating(snapshot, workers):
        seconds = snapshot.nodeset.spec.drain_deadline_seconds
        when = (
            "make one, or set drainDeadlineSeconds" if seconds is None else f"each goes {seconds} s after it was to (drainDeadlineSeconds)"
        )
        return broken(
            "NoRestApi",
            f"{counted}; the cluster has no RestApi, so nobody can say whether jobs run on workers that are to go: {when}",
            available=_are_enough(usable, snapshot, choice),
        )
    if usable < choice.total:
        enough = _are_enough(usable, snapshot, choice)
        return under_way("WorkersStarting", counted, available=enough)
    return settled(f"{counted}; the cluster has no RestApi: whether Slurm knows them is not seen, and none can be drained", "NoRestApi")


def _is_usable(worker: Worker, snapshot: Snapshot) -> bool:
    """Ready, and known to Slurm as what it is, where that can be seen."""
    is_seen = worker.slurm is not None or snapshot.controller is ClusterStands.MUTE
    return is_seen and not _is_invalid(worker) and _is_available(worker, snapshot)


def _is_invalid(worker: Worker) -> bool:
    """Slurm refuses what its slurmd says of the machine: fewer GRES, cores or memory than the node is to have."""
    return worker.slurm is not None and worker.is_ready and any(state.startswith("INVALID") for state in worker.slurm.states)


def _reason(worker: Worker) -> str:
    return (worker.slurm.reason if worker.slurm else "") or "it was registered with less than it is to have"


def _is_available(worker: Worker, snapshot: Snapshot) -> bool:
    return worker.is_available(snapshot.now, snapshot.nodeset.spec.min_ready_seconds)


def _is_updating(snapshot: Snapshot, workers: list[Worker]) -> bool:
    return bool(snapshot.revision) and any(worker.revision != snapshot.revision for worker in workers)


def _is_on_delete(snapshot: Snapshot) -> bool:
    return snapshot.nodeset.spec.update_strategy.type is not Update.ROLLING


def _held(snapshot: Snapshot, choice: Choice) -> str:
    """Why those that are to go are still there: the first of them by name."""
    for worker in sorted(live(snapshot), key=lambda worker: worker.name):
        if worker.uid in choice.going:
            return f"; {worker.name}: {may_go(worker, snapshot, choice.going[worker.uid]).why}"
    return ""


def is_unregistered(worker: Worker) -> bool:
    """Its slurmd is ready, and Slurm does not know it."""
    return worker.slurm is None and worker.is_ready and not worker.is_leaving


def _unregistered(snapshot: Snapshot, workers: list[Worker]) -> Worker | None:
    def is_late(worker: Worker) -> bool:
        since = worker.ready_changed_at
        is_old = since is not None and snapshot.now - since >= REGISTERING
        return is_unregistered(worker) and is_old

    return next((worker for worker in workers if is_late(worker)), None)


def _waits_for(worker: Worker) -> str:
    for status in worker.pod.status.container_statuses:
        if status.name == marks.SLURMD and status.state.waiting:
            return f"{status.state.waiting.reason} {status.state.waiting.message}".strip()
    return "its slurmd does not start"


def _pins(snapshot: Snapshot, workers: list[Worker]) -> dict[str, str]:
    """Where each number is, or was last; a Kubernetes node that is gone is forgotten."""
    held = {number: node for number, node in (snapshot.nodeset.status.ordinal_to_node or {}).items() if node in snapshot.nodes}
    return held | {str(worker.ordinal): worker.pod.spec.node_name for worker in workers if worker.is_assigned and worker.ordinal >= 0}
