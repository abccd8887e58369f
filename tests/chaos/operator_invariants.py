"""What must always be true of the operator's workers, held against what was seen. Pure: a history comes in; for each invariant, how often it was looked at and every place where it does not hold go out.

What must stay true: an invariant is judged by what the servers said, and where their clocks are coarse (accounting tells whole seconds, cut) in favour of the operator by that much and no more.
"""

from collections.abc import Callable, Iterator, Mapping

from tests.chaos.history import JobRecord, PodSeen
from tests.chaos.invariants import Checked, Finding, checked
from tests.chaos.operator_history import OperatorHistory

__all__ = ["OPERATOR_INVARIANTS", "OURS", "SETTLE_SECONDS", "check_operator", "nothing_left_over"]

SECOND = 1.0
SETTLE_SECONDS = 120.0  # for many workers that are to be made anew, on a machine that was just tormented
OURS = "slurm-operator: "
FOREVER = float("inf")


def check_operator(history: OperatorHistory) -> list[Checked]:
    """All invariants, in order."""
    return [checked(name, look(history)) for name, look in OPERATOR_INVARIANTS.items()]


# 1


def no_worker_goes_under_a_job(history: OperatorHistory) -> Iterator[Finding]:
    """From the moment at which a pod's deletion was seen, or it was gone, until it was gone, no job runs on its node. A job runs for certain from a second after its start, as accounting tells it, to its end."""
    by_node: dict[str, list[JobRecord]] = {}
    for job in history.jobs:
        for node in job.nodes if job.start else ():
            by_node.setdefault(node, []).append(job)
    for began, gone in _departures(history.pods):
        jobs = [job for job in by_node.get(began.name, ()) if job.start + SECOND <= gone and (job.end or FOREVER) > began.at]
        told = ", ".join(f"job {job.job_id} ({job.state}, {job.start:.0f} to {f'{job.end:.0f}' if job.end else 'now'})" for job in jobs)
        yield f"pod {began.name} ({began.uid})", f"went from {began.at:.1f} on, with {told}" if jobs else ""


def _departures(pods: list[PodSeen]) -> Iterator[tuple[PodSeen, float]]:
    """The first sign of each pod's end, and when it was gone. One that never had a node, or ended by itself before, had no job to lose."""
    begun: dict[str, PodSeen] = {}
    told: set[str] = set()
    for pod in pods:
        if (pod.deleting or pod.gone) and pod.node:
            begun.setdefault(pod.uid, pod)
        if pod.gone and pod.uid in begun and pod.uid not in told:
            told.add(pod.uid)
            yield begun[pod.uid], pod.at
    yield from ((pod, FOREVER) for uid, pod in begun.items() if uid not in told)


# 2


def no_job_ends_by_itself(history: OperatorHistory) -> Iterator[Finding]:
    """Jobs here end only when somebody cancels them, and that was the run itself."""
    cancelled = {int(act.subject): act.at for act in reversed(history.acts) if act.kind == "cancelled"}
    for job in history.jobs:
        if not job.end:
            continue
        when = cancelled.get(job.job_id)
        if when is None or job.end + SECOND < when:
            yield (
                f"job {job.job_id}",
                f"ended as {job.state} at {job.end:.0f} on {', '.join(job.nodes) or 'no node'}, and nobody had cancelled it",
            )
        else:
            yield f"job {job.job_id}", "" if job.state.startswith("CANCELLED") else f"was cancelled and ended as {job.state}"


# 3


def nothing_left_over(history: OperatorHistory) -> Iterator[Finding]:
    """At the last look: the workers that are wanted and no others, none drained by us, no record of a NodeSet that is gone."""
    waited = history.settled_at - history.last_fault
    yield "the last look", f"was taken {waited:.0f} s after the last fault" if waited > SETTLE_SECONDS + 15 else ""
    for name in history.nodesets_left:
        yield f"NodeSet {name}", "" if name in history.wanted else "is still there, though it was deleted"
    for name, (count, release) in history.wanted.items():
        there = [pod for pod in history.left if pod.nodeset == name]
        wrong = [pod.name for pod in there if pod.leaving or not pod.ready or pod.release != release]
        text = (
            f"has {len(there)} workers, not {count}"
            if len(there) != count
            else f"has workers that are not as they should be: {wrong}"
            if wrong
            else ""
        )
        yield f"NodeSet {name}", text
    pods = {pod.name for pod in history.left}
    for pod in history.left:
        yield f"pod {pod.name}", "" if pod.nodeset in history.wanted else f"is left of NodeSet {pod.nodeset}, which is gone"
    for node in history.nodes_left:
        if node.name in pods:
            yield (
                f"Slurm node {node.name}",
                f"is left drained: {node.reason}" if "DRAIN" in node.states and node.reason.startswith(OURS) else "",
            )
    known = {node.name for node in history.nodes_left}
    for name in sorted(pods - known):
        yield f"Slurm node {name}", "is not there, though its pod is"


# 4


def others_drains_stay(history: OperatorHistory) -> Iterator[Finding]:
    """From when an administrator's drain was carried out until he takes it back, Slurm tells it, with his reason."""
    for start, end, name, reason in _drains(history):
        seen = [sample for sample in history.samples if sample.name == name and start < sample.asked and sample.at < end]
        wrong = [sample for sample in seen if not sample.gone and ("DRAIN" not in sample.states or sample.reason != reason)]
        text = (
            f"was {', '.join(wrong[0].states)} ({wrong[0].reason!r}) at {wrong[0].at:.1f}, while an administrator had it drained ({reason!r})"
            if wrong
            else ""
        )
        yield f"Slurm node {name}", text


def _drains(history: OperatorHistory) -> Iterator[tuple[float, float, str, str]]:
    open_ones: dict[str, tuple[float, str]] = {}
    for act in history.acts:
        if act.kind == "drained":
            open_ones[act.subject] = (act.at, act.detail)
        elif act.kind == "undrained" and act.subject in open_ones:
            at, reason = open_ones.pop(act.subject)
            yield at, act.at, act.subject, reason


OPERATOR_INVARIANTS: Mapping[str, Callable[[OperatorHistory], Iterator[Finding]]] = {
    "no worker goes while a job runs on it": no_worker_goes_under_a_job,
    "no job ends that nobody cancelled": no_job_ends_by_itself,
    "no pod, drain or record is left over": nothing_left_over,
    "only the operator's own drains are undone": others_drains_stay,
}
