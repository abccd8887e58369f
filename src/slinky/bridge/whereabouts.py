"""Where a job may go, as it is told to Slurm: a constraint in features, and nodes that are left out by name. Pure.

Comes in: the pods of a job, the nodes that Kubernetes refuses them and why, Slurm's nodes, and nodes that did not work out before. Goes out: `Whereabouts`, to be put on the job's description, or what is in the way where no node is left. What
must stay true: a node that Kubernetes refuses to one of the pods is kept out, by the constraint, by what Slurm itself counts there, or by name; only names that Slurm knows are named (it refuses the job otherwise), and never the nodes that may be used.
"""

import functools
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

import msgspec

from slinky.bridge.capacity import NodeRoom
from slinky.bridge.label_features import ANYWHERE, Constraint, constraint_of, is_plain
from slinky.bridge.marker import Told, made_by_others, names_in, told_of, told_that, with_told
from slinky.kube import Pod
from slinky.slurm import Job, JobDescription, compress

__all__ = [
    "EVERYWHERE",
    "Excluded",
    "Size",
    "Usable",
    "Whereabouts",
    "change_between",
    "change_of",
    "finding",
    "noted",
    "put_on",
    "put_on_all",
    "size_of",
    "usable_of",
    "where",
]

MOST_REASONS = 3
AT_ONCE = 250  # nodes of which it is said why they are refused
Size = tuple[int, int, tuple[tuple[str, int], ...]]  # CPUs, memory, GRES


class Excluded(tuple[str, ...]):
    """Names of nodes, in order; how Slurm is told of them is worked out once for all jobs that it is for."""

    @functools.cached_property
    def hostlist(self) -> str:
        return compress(self)


class Whereabouts(msgspec.Struct, frozen=True):
    """`nowhere` says why, where no node of its partitions is left. `apart`: a node for each pod; `together`: one node for all."""

    constraint: str = ""
    excluded: tuple[str, ...] = ()
    apart: bool = False
    together: bool = False
    nowhere: str = ""


EVERYWHERE = Whereabouts()


class Usable(msgspec.Struct, frozen=True):
    """The nodes of a job's partitions, by name and in the order of names, and the kinds that there are of them."""

    partition: str
    rooms: dict[str, NodeRoom]
    kinds: dict[int, tuple[NodeRoom, Size]]  # by the id of the room, which many nodes share


def size_of(room: NodeRoom) -> Size:
    """All that decides whether a room holds a task."""
    return room.cpus, room.memory, tuple(sorted(room.gres.items()))


def usable_of(rooms: Mapping[str, NodeRoom], partition: str) -> Usable:
    partitions = set(partition.split(",")) if partition else set[str]()
    kinds = {id(room): room for room in rooms.values()}  # nodes of one kind are one object, as a rule
    chosen = {kind for kind, room in kinds.items() if not partitions or not partitions.isdisjoint(room.partitions)}
    found = {name: rooms[name] for name in sorted(rooms) if id(rooms[name]) in chosen}
    return Usable(partition, found, {kind: (kinds[kind], size_of(kinds[kind])) for kind in chosen})


def where(
    pods: Sequence[Pod],
    refusals: Iterable[Mapping[str, str]],
    usable: Usable,
    *,
    said: str = "",
    mapped: Mapping[str, str] | None = None,
    one_of: str = "",
    holding: Collection[Size] | None = None,
    avoided: Mapping[str, str] | None = None,
) -> Whereabouts:
    """`refusals` are those of each pod, by node; `avoided` nodes that did not work out, which are always named; `said` the
    user's own constraint; `one_of` the label by which all nodes must be of one kind. `holding`: the sizes of nodes that hold
    a task by Slurm's own count; a node of another size is not named, as Slurm does not use it."""
    steps = finding(pods, refusals, usable, said=said, mapped=mapped, one_of=one_of, holding=holding, avoided=avoided)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: Whereabouts = end.value
        return found


def finding(
    pods: Sequence[Pod],
    refusals: Iterable[Mapping[str, str]],
    usable: Usable,
    *,
    said: str = "",
    mapped: Mapping[str, str] | None = None,
    one_of: str = "",
    holding: Collection[Size] | None = None,
    avoided: Mapping[str, str] | None = None,
) -> Generator[None, None, Whereabouts]:
    """The same in steps: why none of thousands of nodes will do takes long to say."""
    nodes = usable.rooms
    refused: dict[str, Mapping[str, str]] = {}  # with where the reason is found: few are ever read
    for found in (avoided or {}, *refusals):  # what is judged now has the last word
        refused |= dict.fromkeys(filter(nodes.__contains__, found), found)
    if not refused and not mapped and not one_of:
        return EVERYWHERE  # as a rule: no look at each node
    constraint = _constraint(pods, usable, said, mapped or {})
    same = _same(one_of, nodes, refused, mapped or {})
    if not refused and constraint.is_anything and not same:
        return EVERYWHERE
    without = {kind for kind, (room, _) in usable.kinds.items() if not constraint.holds(room.features)}
    kept_out = {name for name, room in nodes.items() if id(room) in without} if without else set[str]()
    if any(nodes[name].has_slurmd and name not in refused for name in kept_out):
        constraint, kept_out = ANYWHERE, set()  # its features are the site's, not ours: it has the labels, and Slurm is not told so
    if nodes and len(kept_out | refused.keys()) == len(nodes):
        return Whereabouts(nowhere=(yield from _in_words(usable.partition, nodes, refused)))
    own = _joinable(said)
    if same and own is None:
        return Whereabouts(
            nowhere=f"its constraint {said!r} cannot be joined with nodes of one {one_of}: say it with features joined by & or by |"
        )
    text = "&".join(filter(None, (own if constraint.text() or same else "", constraint.text(), same)))
    return Whereabouts(text, _to_be_named(refused.keys() - kept_out, usable, holding, avoided or {}))


def _to_be_named(refused: Collection[str], usable: Usable, holding: Collection[Size] | None, avoided: Mapping[str, str]) -> Excluded:
    """One that departs takes no jobs, and could not go while a job names it."""
    named = {kind for kind, (_, size) in usable.kinds.items() if holding is None or size in holding}
    rooms = usable.rooms.items()
    return Excluded(name for name, room in rooms if name in refused and (id(room) in named or name in avoided) and not room.departing)


def _joinable(said: str) -> str | None:
    """A user's constraint so that more can be joined to it with &; None where that would change its meaning."""
    if not said or is_plain(said):
        return said
    return f"({said})" if is_plain(said.replace("|", "&")) and "&" not in said else None


def put_on(job: JobDescription, whereabouts: Whereabouts) -> JobDescription:
    """The job as it is submitted. Nodes that the user leaves out stay left out."""
    if whereabouts == EVERYWHERE:
        return job
    excluded = _joined(tuple(job.excluded_nodes or ()), whereabouts.excluded)
    return msgspec.structs.replace(
        job,
        constraints=whereabouts.constraint or job.constraints,
        excluded_nodes=[excluded] if excluded else None,
        tasks_per_node=1 if whereabouts.apart else job.tasks_per_node,
        minimum_nodes=1 if whereabouts.together else job.minimum_nodes,
        maximum_nodes=1 if whereabouts.together else job.maximum_nodes,
    )


def _joined(said: tuple[str, ...], excluded: tuple[str, ...]) -> str:
    """As one hostlist: the same object for all jobs that it is for, where the user says nothing."""
    if not any(said):
        return excluded.hostlist if isinstance(excluded, Excluded) else compress(excluded)
    return _with_users(said, excluded)


@functools.lru_cache(maxsize=16)
def _with_users(said: tuple[str, ...], excluded: tuple[str, ...]) -> str:
    return compress(sorted(_names(said).union(excluded)))


def put_on_all(jobs: Sequence[JobDescription], whereabouts: Sequence[Whereabouts]) -> list[JobDescription]:
    """Each of a hetjob's on its own. Where it has become one job since, that one is kept from all that any of them was."""
    if len(jobs) == len(whereabouts):
        return [put_on(job, where) for job, where in zip(jobs, whereabouts, strict=True)]
    excluded = {name for where in whereabouts for name in where.excluded}
    all_of_them = Whereabouts("", tuple(sorted(excluded)), apart=any(where.apart for where in whereabouts))
    return [put_on(job, all_of_them) for job in jobs]


def change_between(before: JobDescription | Job, after: JobDescription) -> JobDescription | None:
    """What must be changed about a job that waits; None for nothing. An empty name takes the last exclusion away, an empty text the constraint."""
    change = JobDescription()
    constraint = (before.features if isinstance(before, Job) else before.constraints) or ""
    excluded = [before.excluded_nodes] if isinstance(before, Job) else before.excluded_nodes or []
    if constraint != (after.constraints or ""):
        change.constraints = after.constraints or ""
    if _names(excluded) != _names(after.excluded_nodes or []):
        change.excluded_nodes = after.excluded_nodes or [""]
    return None if change == JobDescription() else change


def noted(job: JobDescription) -> JobDescription:
    """With what it is told about where it may go in its comment too: what its record says besides, somebody else has said."""
    if not job.admin_comment:
        return job
    return msgspec.structs.replace(job, admin_comment=with_told(job.admin_comment, _told(job)))


def change_of(record: Job, wanted: JobDescription) -> JobDescription | None:
    """What must be changed about a job that waits, given its record; None for nothing. Nodes that somebody else has it leave out stay left out, and a constraint of somebody else's stays."""
    told = told_of(record.admin_comment)
    named = _names(wanted.excluded_nodes or [])
    theirs = made_by_others(names_in(record.excluded_nodes or ""), told, named)
    constraint = wanted.constraints if told.is_ours(record.features or "") else record.features
    both = msgspec.structs.replace(wanted, constraints=constraint)
    if not theirs <= named:
        both.excluded_nodes = [compress(sorted(named | theirs))]
    change = change_between(record, both)
    if change is not None:
        change.admin_comment = with_told(record.admin_comment, _told(wanted))
    return change


def _told(job: JobDescription) -> Told:
    excluded = job.excluded_nodes or []
    return told_that(job.constraints or "", excluded[0] if len(excluded) == 1 else compress(sorted(_names(excluded))))


def _names(hostlists: Iterable[str]) -> frozenset[str]:
    return frozenset().union(*(names_in(words) for words in hostlists if words))


def _constraint(pods: Sequence[Pod], usable: Usable, said: str, mapped: Mapping[str, str]) -> Constraint:
    """Of a gang's pods: where they all say the same, as they do. A constraint of the user's that is more than features joined by & cannot be added to."""
    if not mapped or (said and not is_plain(said)):
        return ANYWHERE
    features = {feature for room, _ in usable.kinds.values() for feature in room.features}
    shapes = {(id(pod.spec.affinity), id(pod.spec.node_selector)): pod for pod in pods}  # equal ones are one object, as a rule
    constraints = [constraint_of(pod, mapped, features) for pod in shapes.values()]
    first = constraints[0] if constraints else ANYWHERE
    if any(other != first for other in constraints) or (said and len(first.ways) > 1):
        return ANYWHERE
    return first


def _same(label: str, nodes: Mapping[str, NodeRoom], refused: Collection[str], mapped: Mapping[str, str]) -> str:
    """`[zone=a|zone=b]`: all nodes of one of them."""
    if not label or label not in mapped:
        return ""
    beginning = f"{mapped[label]}="
    values = {feature for name, room in nodes.items() if name not in refused for feature in room.features if feature.startswith(beginning)}
    return f"[{'|'.join(sorted(values))}]" if values else ""


def _in_words(partition: str, nodes: Mapping[str, NodeRoom], refused: Mapping[str, Mapping[str, str]]) -> Generator[None, None, str]:
    """What most nodes are refused for, by an example each. Yields after some nodes; one that changes meanwhile may be told with what it says then."""
    examples: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for number, name in enumerate(nodes, 1):
        if number % AT_ONCE == 0:
            yield
        found = refused.get(name)
        why = (
            found.get(name, f"node {name} was refused a moment ago")
            if found is not None
            else f"node {name} does not have the labels that are asked for"
        )
        kind = why.replace(name, "…")
        examples.setdefault(kind, why)
        counts[kind] += 1
    parts = [
        f"{examples[kind]}" + (f" (and {count - 1} more like it)" if count > 1 else "") for kind, count in counts.most_common(MOST_REASONS)
    ]
    return f"none of the {len(nodes)} nodes of partition {partition} will do: {'; '.join(parts)}"
