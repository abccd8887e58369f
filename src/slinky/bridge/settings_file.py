"""The bridge's configuration file, read and checked.

Comes in: a YAML file. Goes out: `Settings`, or a `SettingsError` that names the file, the key and what would be right. What must stay true: a file that is let pass can be worked with: what would fail later, at a pod or at a node, is said here.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from slinky.bridge.node_settings import NodeSettings
from slinky.bridge.policy_settings import mistakes
from slinky.bridge.settings import AdmissionSettings, Settings
from slinky.bridge.sink import address_of
from slinky.settings import SettingsError, load

__all__ = ["check_managed", "load_settings"]

_GRES = re.compile(r"[A-Za-z][\w.-]*(:(?!\d+$)[\w.-]+)?")  # a type of digits only would be read as a number of them
_SHARE = re.compile(r"\d{1,2}%|100%")
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/+-]*")


def load_settings(path: Path) -> Settings:
    """Raises SettingsError."""
    settings = load(path, Settings, documented="docs/bridge-configuration.md")
    if wrong := next(_wrong(settings), None):
        raise SettingsError(f"{path}: {wrong}")
    return settings


def check_managed(path: Path, settings: Settings) -> Settings:
    """The same once the bridge's own namespace is known. Raises SettingsError."""
    if wrong := next(_wrong_namespaces(settings), None):
        raise SettingsError(f"{path}: {wrong}")
    return settings


def _wrong(settings: Settings) -> Iterator[str]:
    yield from _wrong_namespaces(settings)
    for name, value in {
        "schedulerName": settings.scheduler_name,
        "slurmRestApi": settings.slurm_rest_api,
        "partition": settings.partition,
    }.items():
        if not value.strip():
            yield f"{name} is empty; it must say which"
    if settings.scheduler_name == "default-scheduler":
        yield "schedulerName is Kubernetes' own default-scheduler; choose a name of the bridge's own, such as slurm-bridge-scheduler"
    for name, number in {"defaultCpus": settings.default_cpus, "defaultMemoryMib": settings.default_memory_mib}.items():
        if number < 1:
            yield f"{name} is {number}; it must be 1 or more, as none means all to Slurm"
    if settings.windows.namespace < 1 or settings.windows.total < 1:
        yield "windows.namespace and windows.total must be 1 or more, or nothing would ever be submitted"
    if settings.gangs.replacement_seconds < 0:
        yield f"gangs.replacementSeconds is {settings.gangs.replacement_seconds:g}; it must be 0 (give back at once) or more"
    if settings.eviction.budget_seconds < 0:
        yield f"eviction.budgetSeconds is {settings.eviction.budget_seconds:g}; it must be 0 (a budget counts for nothing once the job is over) or more"
    if settings.leader.seconds < 3:
        yield f"leader.seconds is {settings.leader.seconds:g}; it must be 3 or more, or a slow API server would cost the lead"
    if settings.nodes.sink:
        try:
            address_of(settings.nodes.sink)
        except ValueError as error:
            yield f"nodes.sink: {error}"
    yield from _wrong_names(settings)
    yield from _wrong_nodes(settings.nodes)
    yield from mistakes(settings.policy, settings.priority_classes)
    if settings.volumes.bind_seconds <= 0:
        yield f"volumes.bindSeconds is {settings.volumes.bind_seconds:g}; it must be more than 0, or no volume could ever be bound"
    yield from _wrong_admission(settings.admission)


def _wrong_namespaces(settings: Settings) -> Iterator[str]:
    """A list is taken at its word, so what cannot be is refused; what a selector happens to match is left out without a word."""
    if settings.managed_namespace_selector is not None:
        return
    for name in settings.managed_namespaces:
        if name in settings.never_managed:
            whose = {"kube-system": "Kubernetes' own", settings.namespace: "the bridge's own"}.get(name, "Slurm's own (slurm.namespaces)")
            yield f"managedNamespaces has {name}, which is {whose} and can never be managed: its pods would wait for themselves; remove it"


def _wrong_names(settings: Settings) -> Iterator[str]:
    """Of what is called otherwise in Slurm."""
    for resource, gres in settings.gres.items():
        if resource in ("cpu", "memory"):
            yield f"gres.{resource}: Slurm counts {resource} by itself; only other resources can stand for a GRES"
        elif not _GRES.fullmatch(gres):
            yield f"gres.{resource} is {gres!r}; it must be a GRES as Slurm names it, such as gpu, gpu:h100 or mig:1g.10gb"
        elif gres.partition(":")[0] in ("shard", "mps"):
            yield (
                f"gres.{resource} is {gres!r}: on nodes made at run time Slurm's own shard and mps cannot be used any more once slurmctld was restarted; give shared devices a GRES name of their own"
            )
    prefixes = list(settings.nodes.feature_labels.values())
    for label, prefix in settings.nodes.feature_labels.items():
        if not _PREFIX.fullmatch(prefix):
            yield f"nodes.featureLabels.{label} is {prefix!r}; it must be what a feature of Slurm's can begin with, such as zone"
        elif prefixes.count(prefix) > 1:
            yield f"nodes.featureLabels.{label} is {prefix!r}, and so is another's: their features could not be told apart"


def _wrong_nodes(nodes: NodeSettings) -> Iterator[str]:
    if isinstance(nodes.max_renewing, str) and not _SHARE.fullmatch(nodes.max_renewing):
        yield f"nodes.maxRenewing is {nodes.max_renewing!r}; it must be a number, or a share such as 5%"
    for label, topology in nodes.topology_labels.items():
        if not _PREFIX.fullmatch(topology):
            yield f"nodes.topologyLabels.{label} is {topology!r}; it must be the name of a topology of Slurm's, such as topo-switch"
    if nodes.flap_changes < 2:
        yield f"nodes.flapChanges is {nodes.flap_changes}; it must be 2 or more, or every node that was not ready once would count as flapping"
    for name, number in {"notReadySeconds": nodes.not_ready_seconds, "flapSeconds": nodes.flap_seconds}.items():
        if number < 0:
            yield f"nodes.{name} is {number:g}; it must be 0 or more"


def _wrong_admission(ours: AdmissionSettings) -> Iterator[str]:
    if bool(ours.certificate_file) != bool(ours.key_file):
        yield "admission.certificateFile and admission.keyFile go together; give both, or none to have one made"
    if ours.url and not ours.url.startswith("https://"):
        yield f"admission.url is {ours.url!r}; the API server calls https only: https://HOST:PORT"
