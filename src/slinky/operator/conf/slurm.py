"""slurm.conf and cgroup.conf, made from a Controller and all that points at it.

A `ClusterView` goes in, files come out. What must stay true: what an administrator wrote (extraConf, or a file of that name among configFileRefs) wins; the same view makes the same text; no secret is in it.

What is written beyond what Slurm must have, and why:

- `SelectType`: dynamic nodes need cons_tres. Its own default counts cores and memory, and so should it: jobs that share a worker must not run its pod out of memory.
- `ReturnToService=2`: a worker's pod that comes back registers under its old name, whatever Slurm thought of it in between.
- `MaxNodeCount`: room for all workers twice over, in powers of two: Slurm refuses nodes beyond it, and forgets some, with their jobs, when it falls.
- `GresTypes`: all that NodeSets name in `Gres=` and gres.conf names, and gpu where a worker has GPUs (slurmd finds them by itself); Slurm refuses nodes with others.
- `PrologFlags=Contain`: where people may log in to workers, so that pam_slurm_adopt finds the job they belong to.
- `ProctrackType`: processes instead of cgroups where the NodeSets' slurmd are unprivileged, for they may not make cgroups then.
"""

import re
from collections.abc import Iterable

from slinky.operator import names
from slinky.operator.conf.text import Line, Pair, joined, line, pairs_of, parse, words
from slinky.operator.kinds import Controller, ControllerSpec, NameReference, NodeSet
from slinky.operator.objects.privilege import is_privileged
from slinky.operator.objects.view import ClusterView, accounting_address

__all__ = [
    "WITHOUT_CGROUPS",
    "all_files",
    "gres_types",
    "is_without_cgroups",
    "max_node_count",
    "proctrack",
    "referenced_files",
    "slurm_conf",
]

CGROUPS, WITHOUT_CGROUPS = "proctrack/cgroup", "proctrack/linuxproc"

LEAST_NODES = 16384  # costs nothing that was seen; four times as much costs two fifths of the jobs a second
MOST_NODES = 65536


def all_files(view: ClusterView) -> dict[str, str]:
    """File name → text, of all that stands in slurmctld's /etc/slurm beside its keys: what the operator makes, and copies of what the Controller refers to. In one place, so that they reach a pod in one step."""
    spec = view.controller.spec
    plain = {reference.name for some in _file_references(spec) for reference in some}
    given = {file: text for name in sorted(plain) for file, text in view.files.get(name, {}).items()}
    made = slurm_conf(view)
    if spec.jwks_key_ref and (jwks := view.files.get(spec.jwks_key_ref.name, {}).get(spec.jwks_key_ref.key or names.JWKS_FILE)):
        made[names.JWKS_FILE] = jwks
    return given | made


def referenced_files(controller: Controller) -> list[str]:
    """The ConfigMaps that the Controller refers to, each once."""
    jwks = [controller.spec.jwks_key_ref.name] if controller.spec.jwks_key_ref else []
    return sorted({*jwks, *(reference.name for some in _file_references(controller.spec) for reference in some)})


def _file_references(spec: ControllerSpec) -> Iterable[list[NameReference]]:
    yield spec.config_file_refs or []
    yield spec.prolog_script_refs or []
    yield spec.epilog_script_refs or []
    yield spec.prolog_slurmctld_script_refs or []
    yield spec.epilog_slurmctld_script_refs or []


def slurm_conf(view: ClusterView) -> dict[str, str]:
    """File name → text, of the files the operator makes."""
    ours = _external(view) if view.controller.spec.external else _internal(view)
    made = {"slurm.conf": joined(ours, view.controller.spec.extra_conf, _given_files(view))}
    if not view.controller.spec.external and "cgroup.conf" not in _given_files(view):
        made["cgroup.conf"] = _cgroup_conf(view)
    return made


def _given_files(view: ClusterView) -> dict[str, str]:
    """Of configFileRefs: these stand in /etc/slurm beside ours."""
    return {
        name: text for reference in view.controller.spec.config_file_refs or [] for name, text in view.files.get(reference.name, {}).items()
    }


def _internal(view: ClusterView) -> list[Line]:
    controller = view.controller
    host = names.controller_host(view.name)
    return [
        line(ClusterName=controller.cluster_name),
        line(SlurmUser="slurm"),
        line(SlurmctldHost=f"{host}({host}.{names.controller_internal(view.name)}.{view.namespace})"),
        line(SlurmctldPort=names.SLURMCTLD_PORT),
        line(SlurmctldAddr=view.controller_address[0]),
        line(StateSaveLocation=names.state_folder(controller.cluster_name)),
        line(SlurmdUser="root"),
        line(SlurmdPort=names.SLURMD_PORT),
        line(SlurmdSpoolDir="/var/spool/slurmd"),
        line(LogTimeFormat="iso8601_ms,format_stderr"),
        *_auth(view),
        line(SlurmctldParameters="enable_configless,reconfig_on_restart"),
        line(ReturnToService=2),
        line(SelectType="select/cons_tres"),
        line(MaxNodeCount=max_node_count(view)),
        *([line(GresTypes=",".join(gres_types(view)))] if gres_types(view) else []),
        *([line(ProctrackType=WITHOUT_CGROUPS)] if is_without_cgroups(view) else []),
        *([line(PrologFlags="Contain")] if any(nodeset.spec.ssh.enabled for nodeset in view.nodesets) else []),
        *([line(MetricsType="metrics/openmetrics")] if controller.spec.metrics.enabled else []),
        *_accounting(view),
        *_scripts(view),
        *(one for nodeset in sorted(view.nodesets, key=lambda one: one.metadata.name) for one in _nodeset(nodeset)),
    ]


def _external(view: ClusterView) -> list[Line]:
    """Only what slurmrestd needs to reach a slurmctld elsewhere."""
    host, port = view.controller_address
    return [
        line(ClusterName=view.controller.cluster_name),
        line(SlurmUser="slurm"),
        line(SlurmctldHost=host),
        line(SlurmctldPort=port),
        *_auth(view),
        *_accounting(view),
    ]


def _auth(view: ClusterView) -> Iterable[Line]:
    jwks = f",jwks={names.ETC}/{names.JWKS_FILE}" if view.controller.spec.jwks_key_ref else ""
    yield line(AuthType="auth/slurm")
    yield line(CredType="cred/slurm")
    yield line(AuthAltTypes="auth/jwt")
    yield line(AuthAltParameters=f"jwt_key={names.ETC}/{names.JWT_KEY}{jwks}")
    yield line(AuthInfo="use_client_ids")


def _accounting(view: ClusterView) -> Iterable[Line]:
    if view.accounting is None:
        yield line(AccountingStorageType="accounting_storage/none")
        return
    host, port = accounting_address(view.accounting)
    yield line(AccountingStorageType="accounting_storage/slurmdbd")
    yield line(AccountingStorageHost=host)
    yield line(AccountingStoragePort=port)
    if gres_types(view):
        yield line(AccountingStorageTRES=",".join(f"gres/{name}" for name in gres_types(view)))


def _scripts(view: ClusterView) -> Iterable[Line]:
    """slurmctld runs its own from /etc/slurm; a bare name is sent to every slurmd with the configuration."""
    spec = view.controller.spec
    yield from (line(PrologSlurmctld=f"{names.ETC}/{file}") for file in _files(view, spec.prolog_slurmctld_script_refs))
    yield from (line(EpilogSlurmctld=f"{names.ETC}/{file}") for file in _files(view, spec.epilog_slurmctld_script_refs))
    yield from (line(Prolog=file) for file in _files(view, spec.prolog_script_refs))
    yield from (line(Epilog=file) for file in _files(view, spec.epilog_script_refs))


def _files(view: ClusterView, references: list[NameReference] | None) -> list[str]:
    return [file for reference in references or [] for file in sorted(view.files.get(reference.name, {}))]


def _nodeset(nodeset: NodeSet) -> Iterable[Line]:
    name = nodeset.slurm_name
    yield line(NodeSet=name, Feature=name)
    if nodeset.spec.partition.enabled:
        said = [pair for pair in words(nodeset.spec.partition.config) if pair.key.lower() != "partitionname"]
        ours = [] if any(pair.key.lower() == "nodes" for pair in said) else [Pair("Nodes", name)]
        yield Line((Pair("PartitionName", name), *ours, *said))


def max_node_count(view: ClusterView) -> int:
    """Twice the workers that are wanted or still there, and all records that Slurm has, as a power of two: one that falls loses nodes, with their jobs."""
    there = (max(one.status.desired if one.spec.is_daemon_set else one.spec.replicas, one.status.replicas) for one in view.nodesets)
    wanted = max(2 * sum(there), view.slurm_nodes)
    return min(max(LEAST_NODES, 1 << max(wanted - 1, 0).bit_length()), MOST_NODES)


def gres_types(view: ClusterView) -> list[str]:
    """The names in the NodeSets' `Gres=gpu:h100:8,shard:16` and in gres.conf, and `gpu` where a worker's limits have some."""
    written = (pair.value for nodeset in view.nodesets for pair in words(nodeset.spec.extra_conf) if pair.key.lower() == "gres")
    named = {re.split(r"[:(]", item, maxsplit=1)[0].strip() for value in written for item in value.split(",")}
    gres_conf = parse(_given_files(view).get("gres.conf", ""))
    named |= {pair.value for one in gres_conf for pair in one.pairs if pair.key.lower() == "name"}
    has_gpus = any(name.endswith("/gpu") for nodeset in view.nodesets for name in _limits(nodeset))
    return sorted((named | ({"gpu"} if has_gpus else set())) - {""})


def _limits(nodeset: NodeSet) -> Iterable[str]:
    return ((nodeset.spec.slurmd.get("resources") or {}).get("limits") or {}).keys()


def is_without_cgroups(view: ClusterView) -> bool:
    """Slurm has one setting for all its nodes. An administrator's ProctrackType decides; else the NodeSets, where they are all alike. A mixture, which validation
    refuses, never changes what the cluster runs; in a new cluster the oldest NodeSet decides."""
    privileged = {is_privileged(nodeset) for nodeset in view.nodesets}
    if (told := proctrack(view.controller)) is not None:
        return False in privileged and told != CGROUPS
    if privileged != {True, False}:
        return privileged == {False}
    if view.runs_without_cgroups is not None:
        return view.runs_without_cgroups
    oldest = min(view.nodesets, key=lambda one: (str(one.metadata.creation_timestamp), one.metadata.name))
    return not is_privileged(oldest)


def proctrack(controller: Controller) -> str | None:
    """The ProctrackType that `extraConf` names, in small letters."""
    said = [pair.value.lower() for pair in pairs_of(parse(controller.spec.extra_conf)) if pair.key.lower() == "proctracktype"]
    return said[-1] if said else None


def _cgroup_conf(view: ClusterView) -> str:
    if is_without_cgroups(view):
        return "CgroupPlugin=disabled\n"
    return "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"
