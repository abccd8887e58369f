"""A workload as a Slurm job.

Comes in: a workload and what the site has decided. Goes out: a `JobDescription`. Pure: the same in gives the same out, so what a pod becomes can be shown, tested and compared
without a cluster. What must stay true: what Slurm sets aside is never less than what Kubernetes will count; nothing is ever rounded to zero, which Slurm reads as "all".

One pod is one task. A gang is one job of as many tasks as it has pods, several to a node where they fit: memory then goes by CPU, as by node it would be wrong as soon as
two tasks share one. Annotations that count per node (`mem-per-node`, `gres`, `ntasks-per-node`) also say how many pods a node may have: as many as they hold. Slurm then gives each node the CPUs of so many
tasks, and GRES go by node, as Slurm never starts a job with GRES by task whose tasks do not divide evenly. A gang whose pods are of several kinds (a leader and its workers, say) is a hetjob, with a component for each kind, that of rank 0 first; it is one job with the largest needs for all where
the site or the server has no hetjobs, where there are more than `MOST_KINDS`, where an annotation says something about the nodes of the job as a whole, and where all pods must be together.
"""

import datetime as dt
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from slinky.bridge.annotation_values import Moment
from slinky.bridge.eligibility import within_gang
from slinky.bridge.gres_needs import gres_of, per_node, pods_held
from slinky.bridge.marker import comment_for
from slinky.bridge.needs import Needs, needs_of
from slinky.bridge.settings import Settings
from slinky.bridge.task import PerTask
from slinky.bridge.workload import Workload
from slinky.kube import Pod
from slinky.kube.quantities import mebibytes, whole
from slinky.slurm import JobDescription

__all__ = ["GPU_RESOURCES", "Site", "components", "members", "one_for_all", "site_of", "template_of", "translate", "whereto"]

GPU_RESOURCES = {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
MOST_NAME = 255
MOST_KINDS = 8  # Slurm plans the components of a hetjob one by one, and each on nodes of its own
# Settings about a job's nodes, which a hetjob would take for each component's, and what users call them.
OF_THE_WHOLE = {
    "min_nodes": "min-nodes",
    "max_nodes": "max-nodes",
    "tasks_per_node": "ntasks-per-node",
    "memory_per_node": "mem-per-node",
    "gres": "gres",
    "contiguous": "contiguous",
    "segment": "segment",
    "switches": "switches",
}
OF_THE_LEADER = ("licenses", "dependency", "begin_time")  # licenses are to be counted once, and the others wait for the leader


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What does not come from the workload. `cluster` is its name in jobs' markers; `nodes_cluster` that in the marks of nodes, where it is another.

    `even_share(task, tasks, most)` tells how many such tasks (at most `most`) each node is to have so that the site's nodes hold them all;
    None where the nodes are not known.
    """

    cluster: str
    partition: str
    mcs_label: str = ""
    exclusive: bool = False
    default_cpus: int = 1
    default_memory_mib: int = 256
    account: str = ""
    qos: str = ""
    user_id: str = ""
    group_id: str = ""
    gres: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(GPU_RESOURCES))
    no_hetjobs: str = ""  # why, where there can be none
    nodes_cluster: str = ""
    even_share: Callable[[PerTask, int, int], int] | None = None

    @property
    def registrar(self) -> str:
        """As who nodes are registered."""
        return self.nodes_cluster or self.cluster


def components(workload: Workload, site: Site, attempt: int = 0) -> list[JobDescription]:
    """What is to be submitted: one job, or the components of a hetjob, its leader first. All carry the workload's marker, and each the ranks that are its own."""
    kinds = _kinds(workload, site)
    if len(kinds) == 1 or _why_one(workload, site, len(kinds)):
        return [translate(workload, site, attempt)]
    found = []
    for number, ranks in enumerate(kinds):
        job = translate(_part(workload, ranks), site)
        others = {} if number == 0 else dict.fromkeys(OF_THE_LEADER)
        comment = _comment(workload, site, attempt, ranks, whereto(workload.everyone[ranks[0]]))
        found.append(msgspec.structs.replace(job, admin_comment=comment, **others))
    return found


def members(workload: Workload, site: Site) -> list[tuple[Pod, ...]]:
    """The pods of each of its components."""
    kinds = _kinds(workload, site)
    if len(kinds) == 1 or _why_one(workload, site, len(kinds)):
        return [workload.everyone]
    everyone = workload.everyone
    return [tuple(everyone[rank] for rank in ranks) for ranks in kinds]


def one_for_all(workload: Workload, site: Site) -> str:
    """Why pods that differ are one job all the same; empty where they are alike, or a hetjob."""
    count = len(_kinds(workload, site))
    return _why_one(workload, site, count) if count > 1 else ""


def _why_one(workload: Workload, site: Site, kinds: int) -> str:
    if said := [word for name, word in OF_THE_WHOLE.items() if getattr(workload.settings, name)]:
        return f"{', '.join(said)} speaks of the job as a whole"
    if label := workload.same_domain or within_gang(workload.everyone).same_domain:
        return f"they are to be on nodes of one {label}, which each component would choose for itself"
    if kinds > MOST_KINDS:
        return f"they are of {kinds} kinds, and at most {MOST_KINDS} are told apart"
    return site.no_hetjobs


def _kinds(workload: Workload, site: Site) -> list[tuple[int, ...]]:
    """The ranks of the pods that are described alike, rank 0's kind first."""
    if not workload.is_gang:
        return [(0,)]
    everyone = workload.everyone
    by_template: dict[object, list[int]] = {}
    for rank, pod in enumerate(everyone):
        by_template.setdefault(template_of(pod), []).append(rank)
    by_needs: dict[object, list[int]] = {}
    for ranks in by_template.values():
        by_needs.setdefault(_told_apart_by(everyone[ranks[0]]), []).extend(ranks)
    if len(by_needs) == 1:  # as a rule
        return [tuple(range(len(everyone)))]
    alike: dict[tuple[bytes, str], list[int]] = {}
    for ranks in by_needs.values():
        first = msgspec.structs.replace(workload, pods=(everyone[min(ranks)],), coming=None)
        job = msgspec.structs.replace(translate(first, site), admin_comment=None)
        alike.setdefault((msgspec.json.encode(job), whereto(everyone[ranks[0]])), []).extend(ranks)
    return sorted(tuple(sorted(ranks)) for ranks in alike.values())


def template_of(pod: Pod) -> tuple[int, ...]:
    """The same for pods whose needs and wishes about nodes are the same objects, as those of one pod template are: what is worked out for one holds for all. Good only while the pods are held."""
    spec = pod.spec
    parts = (spec.containers, spec.init_containers, spec.overhead, spec.resources, spec.node_selector, spec.affinity, spec.tolerations)
    return tuple(map(id, parts))


def _told_apart_by(pod: Pod) -> object:
    """Pods of one such are described alike, and may go to the same nodes; those of two may be too, once amounts are rounded."""
    return frozenset(needs_of(pod).amounts.items()), whereto(pod)


def whereto(pod: Pod) -> str:
    """A word for what it says about nodes: a leader for one pool and workers for another are two kinds."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    said = msgspec.json.encode((sorted(spec.node_selector.items()), affinity.required if affinity else None, spec.tolerations))
    return hashlib.sha256(said).hexdigest()[:12]


def _part(workload: Workload, ranks: Iterable[int]) -> Workload:
    everyone = workload.everyone
    return msgspec.structs.replace(workload, pods=tuple(everyone[rank] for rank in ranks), coming=None)


def translate(workload: Workload, site: Site, attempt: int = 0) -> JobDescription:
    """As one job, with the largest needs for all."""
    said = workload.settings
    needs = _largest(needs_of(pod) for pod in workload.everyone)
    cpus = max(said.cpus_per_task or 0, whole(needs.cpu)) or site.default_cpus
    job = JobDescription(
        name=(said.job_name or f"{workload.namespace}/{workload.name}")[:MOST_NAME],
        partition=said.partition or site.partition,
        account=said.account or site.account or None,
        qos=said.qos or site.qos or None,
        user_id=said.user_id or site.user_id or None,
        group_id=said.group_id or site.group_id or None,
        reservation=said.reservation,
        wckey=said.wckey,
        licenses=said.licenses,
        constraints=said.constraints,
        priority=said.priority,
        time_limit=said.time_limit or workload.time_limit,
        tasks=workload.count,
        cpus_per_task=cpus,
        shared=_shared(said.exclusive, site),
        mcs_label=site.mcs_label or None,
        kill_on_node_fail=False,
        current_working_directory="/tmp",  # noqa: S108
        admin_comment=_comment(workload, site, attempt),
    )
    asked = gres_of(needs, site.gres)
    task = PerTask(cpus=cpus, memory=mebibytes(needs.memory) or site.default_memory_mib, typed_gres=asked)
    job = msgspec.structs.replace(job, tasks_per_node=_tasks_per_node(workload, task, site))
    job = _with_memory(job, workload, mebibytes(needs.memory), site)
    job = _with_gres(job, workload, asked)
    return _with_wishes(_with_nodes(job, workload), workload)


def _tasks_per_node(workload: Workload, task: PerTask, site: Site) -> int | None:
    """How many pods a node is to have, where an annotation counts per node: at most as many as each of them holds.

    Slurm sets aside the CPUs of so many tasks on each node, so the number is as small as the number of nodes allows.
    """
    said = workload.settings
    if not workload.is_gang:
        return None
    limits = [said.tasks_per_node] if said.tasks_per_node else []
    if said.memory_per_node:
        limits.append(said.memory_per_node // task.memory)
    limits += pods_held(said.gres, task.typed_gres).values()
    if not limits:
        return None
    tasks = len(workload.everyone)
    most = max(min(*limits, tasks), 1)
    if within_gang(workload.everyone).one_per_node:
        most = 1
    if site.even_share and (said.memory_per_node or said.gres):
        most = max(site.even_share(task, tasks, most), 1)
    nodes = max(-(-tasks // most), min(said.min_nodes or 1, tasks))
    return -(-tasks // nodes)


def _with_memory(job: JobDescription, workload: Workload, asked: int, site: Site) -> JobDescription:
    """`asked` is a pod's, in MiB. What the annotation says is per node: for as many pods as it holds (`_tasks_per_node`), and one at least."""
    if workload.settings.memory_per_node:
        return msgspec.structs.replace(job, memory_per_node=max(workload.settings.memory_per_node, asked))
    per_pod = asked or site.default_memory_mib
    if not workload.is_gang:
        return msgspec.structs.replace(job, memory_per_node=per_pod)
    return msgspec.structs.replace(job, memory_per_cpu=-(-per_pod // (job.cpus_per_task or 1)))


def _with_gres(job: JobDescription, workload: Workload, asked: Mapping[str, int]) -> JobDescription:
    """`asked` is what one pod asks for: per task, unless it is told how many pods a node has. What the annotation says is per node."""
    said = workload.settings.gres
    if job.tasks_per_node or (said and not workload.is_gang):
        return msgspec.structs.replace(job, tres_per_node=_as_tres(per_node(said, asked, job.tasks_per_node or 1)))
    job = msgspec.structs.replace(job, tres_per_task=_as_tres(asked))
    # Without a number of pods for each node, the annotation names nothing that the pods ask for.
    return msgspec.structs.replace(job, tres_per_node=_as_tres(per_node(said, {}, 0))) if said else job


def _as_tres(counts: Mapping[str, int]) -> str | None:
    return ",".join(f"gres/{gres}:{count}" for gres, count in counts.items()) or None


def _with_nodes(job: JobDescription, workload: Workload) -> JobDescription:
    said = workload.settings
    least, most = said.min_nodes, said.max_nodes
    if not workload.is_gang:
        least, most = 1, 1
    elif most and not least:
        least = 1
    return msgspec.structs.replace(job, minimum_nodes=least, maximum_nodes=most)


def _with_wishes(job: JobDescription, workload: Workload) -> JobDescription:
    """What is handed on as it was said. Tasks per node, switches and the like are about nodes side by side: they mean something for a gang only."""
    said = workload.settings
    now = max((pod.metadata.creation_timestamp for pod in workload.pods if pod.metadata.creation_timestamp), default=None)
    job = msgspec.structs.replace(
        job,
        nice=said.nice,
        dependency=said.dependency,
        comment=said.comment,
        prefer=said.prefer,
        excluded_nodes=[said.exclude] if said.exclude else None,
        begin_time=_moment(said.begin, now),
        deadline=_moment(said.deadline, now),
    )
    if not workload.is_gang:
        return job
    return msgspec.structs.replace(
        job,
        contiguous=said.contiguous or None,
        segment_size=said.segment,
        required_switches=said.switches.count if said.switches else None,
        wait_for_switch=said.switches.seconds if said.switches else None,
    )


def _moment(said: Moment | None, now: dt.datetime | None) -> int | None:
    """What is said from now on counts from the creation of the youngest pod, so that it is the same however often the job is submitted. A pod that was never created (a file, say) has no such moment."""
    if said is None or (said.relative and now is None):
        return None
    return said.at(now) if now else said.seconds


def _shared(exclusive: str | None, site: Site) -> list[str] | None:
    if exclusive is None:
        return ["none"] if site.exclusive else None
    return [exclusive] if exclusive else None


def _largest(all_needs: Iterable[Needs]) -> Needs:
    most: dict[str, Fraction] = {}
    for needs in {id(needs): needs for needs in all_needs}.values():  # those of one template are one object
        for name, amount in needs.amounts.items():
            most[name] = max(most.get(name, amount), amount)
    return Needs(most)


def _comment(workload: Workload, site: Site, attempt: int, ranks: Sequence[int] = (), where: str = "") -> str:
    """`ranks` where it is of a component: only its own pods are named then."""
    names = ((workload.namespace, workload.name_at(rank)) for rank in ranks or range(workload.count))
    return comment_for(site.cluster, str(workload.key), names, workload.uids, attempt, ranks, where)


def site_of(settings: Settings, cluster: str) -> Site:
    """What job descriptions take from the settings, for the cluster of that name."""
    return Site(
        cluster=cluster,
        partition=settings.partition,
        mcs_label=settings.mcs_label,
        exclusive=settings.exclusive,
        default_cpus=settings.default_cpus,
        default_memory_mib=settings.default_memory_mib,
        gres=settings.gres,
    )
