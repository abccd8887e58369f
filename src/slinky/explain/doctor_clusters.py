"""What the doctor looks at in the clusters that the operator makes. Pure.

What the operator says of each object, whether the daemons' pods run, whether Slurm can be asked,
workers that do not come to their end, tokens that run out.

*Invariants:* of an object that is wrong, the operator's own words are told. A daemon on a lost node
is found also where no operator is left to say so. A cluster that waits for its jobs is told only
when that takes long.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from slinky.explain.catalogue import entry
from slinky.explain.findings import Finding
from slinky.explain.installation import Installation, OperatorSide
from slinky.kube import Pod
from slinky.kube.objects import Condition
from slinky.operator.conditions import AVAILABLE, DEGRADED, PROGRESSING, READY
from slinky.operator.kinds import Written
from slinky.operator.kinds.schema import OFFERED
from slinky.operator.labels import APP, INSTANCE
from slinky.operator.left_alone import has_several
from slinky.operator.relations import controller_of
from slinky.operator.standings import pod_trouble
from slinky.operator.statuses import conditions_of
from slinky.operator.tokens import SHARE

__all__ = ["daemons", "objects", "tokens"]

UNSEEN = dt.timedelta(minutes=5)  # after which an operator that runs has seen what was written
LONG = dt.timedelta(hours=1)  # that workers may take to go
SOON = dt.timedelta(hours=1)
STARTING = dt.timedelta(minutes=1)  # that an object may take to be usable
SETTLING = dt.timedelta(minutes=15)  # and to be as written
GOING = frozenset({"ScalingDown", "RollingUpdate", "Deleting"})
LATE = SHARE + 0.1  # of a token's life, when it should have been renewed


def objects(seen: Installation) -> Iterator[Finding]:
    operator = seen.operator
    if operator is None:
        return
    for kind, all_ in operator.objects.items():
        for found in all_:
            yield from _object(kind, found, operator, seen.now)
    asked = {(each.metadata.namespace, controller_of(each)) for each in operator.objects.get("RestApi", ())}
    for controller in operator.objects.get("Controller", ()):
        meta = controller.metadata
        if (meta.namespace, meta.name) not in asked:
            yield entry("cluster-without-restapi").found(
                f"Controller {meta.key}", "no RestApi names it", namespace=meta.namespace, name=meta.name
            )


def daemons(seen: Installation) -> Iterator[Finding]:
    """One pod of each that has none which is ready."""
    operator = seen.operator
    groups: defaultdict[tuple[str, ...], list[Pod]] = defaultdict(list)
    for pod in operator.heads if operator is not None else ():
        said = pod.metadata.labels
        groups[said.get(APP, ""), pod.metadata.namespace, said.get(INSTANCE, "")].append(pod)
    for (daemon, namespace, name), pods in sorted(groups.items()):
        trouble = pod_trouble(pods, operator.nodes.get, seen.now) if operator is not None else None
        if trouble is None or any(map(_is_usable, pods)):
            continue
        yield entry("cluster-daemon-lost").found(
            f"{daemon} of {namespace}/{name}",
            f"{trouble.reason}: {trouble.message}",
            namespace=namespace,
            name=min(pod.metadata.name for pod in pods),
        )


def _is_usable(pod: Pod) -> bool:
    ready = pod.condition("Ready")
    is_leaving = pod.metadata.deletion_timestamp is not None
    return ready is not None and ready.status == "True" and not is_leaving


def _object(kind: str, found: Written, operator: OperatorSide, now: dt.datetime) -> Iterator[Finding]:
    meta, told = found.metadata, {condition.type: condition for condition in conditions_of(found.status)}
    about, plural = f"{kind} {meta.key}", OFFERED[kind].plural
    names: dict[str, Any] = {"kind": plural, "namespace": meta.namespace, "name": meta.name}
    if not told:
        if kind == "Controller" and has_several(found):
            yield entry("cluster-with-ha").found(about, "ha.enabled is true, and no operator of ours has looked at it", **names)
        if meta.creation_timestamp is not None and now - meta.creation_timestamp > UNSEEN:
            yield entry("object-unseen").found(about, "its status says nothing", advice=_unseen(meta.namespace, operator))
        return
    degraded = told.get(DEGRADED)
    if degraded is not None and degraded.status == "True":
        yield entry("object-degraded").found(about, f"{degraded.reason}: {degraded.message}", **names)
    elif kind == "NodeSet" and (since := _going_since(found, told)) and now - since > LONG:
        said = told[PROGRESSING]
        hours = (now - since).total_seconds() / 3600
        yield entry("nodeset-draining-long").found(about, f"for {hours:.0f} h {said.reason}: {said.message}", **names)

    elif meta.deletion_timestamp is not None:
        return
    elif usable := _unlike(told, AVAILABLE if AVAILABLE in told else READY, now, STARTING):
        why = f"{usable.reason}: {usable.message}"
        yield entry("object-unavailable").found(about, why, **names)
    elif not _is_going(told) and (ready := _unlike(told, READY, now, SETTLING)):
        why = f"{ready.reason}: {ready.message}"
        yield entry("object-not-ready").found(about, why, **names)


def _unlike(told: Mapping[str, Condition], type_: str, now: dt.datetime, borne: dt.timedelta) -> Condition | None:
    """A condition that has been False for longer than is borne."""
    found = told.get(type_)
    if found is None or found.status == "True" or found.last_transition_time is None:
        return None
    return found if now - found.last_transition_time > borne else None


def _is_going(told: Mapping[str, Condition]) -> bool:
    progressing = told.get(PROGRESSING)
    is_true = progressing is not None and progressing.status == "True"
    return progressing is not None and is_true and progressing.reason in GOING


def _unseen(namespace: str, operator: OperatorSide) -> str:
    only = operator.settings.namespaces
    if only and namespace not in only:
        return f"the operator works in {', '.join(sorted(only))} only: add {namespace} to its `namespaces`"
    return f"look whether the operator runs, and into its log: kubectl -n {operator.settings.namespace} get pods"


def _going_since(found: Written, told: Mapping[str, Condition]) -> dt.datetime | None:
    """Since when workers of a NodeSet are to go and have not gone."""
    progressing = told.get(PROGRESSING)
    if progressing is None or not _is_going(told):
        return None
    return found.metadata.deletion_timestamp or progressing.last_transition_time


def tokens(seen: Installation) -> Iterator[Finding]:
    for found in seen.operator.objects.get("Token", ()) if seen.operator else ():
        meta, status = found.metadata, found.status
        issued, ends = _time(status.get("issuedAt")), _time(status.get("expiresAt"))
        if ends is None:
            continue  # nothing was made yet, of which its conditions tell
        about, left = f"Token {meta.key}", ends - seen.now
        names = {"namespace": meta.namespace, "name": meta.name}
        if left <= dt.timedelta():
            yield entry("token-object-over").found(about, f"the token in its Secret ended at {ends:%Y-%m-%d %H:%M} UTC", **names)
        elif found.spec.get("refresh", True):
            if issued is not None and seen.now - issued > (ends - issued) * LATE:
                words = f"it ends in {_minutes(left)}, and should have been renewed"
                yield entry("token-object-expires").found(about, words, **names)
        elif left < SOON:
            yield entry("token-object-expires").found(about, f"it ends in {_minutes(left)}, and refresh is false", **names)


def _minutes(left: dt.timedelta) -> str:
    return f"{max(0, int(left.total_seconds() // 60))} minutes"


def _time(said: object) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(said) if isinstance(said, str) else None
    except ValueError:
        return None
