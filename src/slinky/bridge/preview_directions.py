"""Where a job would be sent, as far as that can be told without a cluster: what holds within a gang, and labels that the site has as features. Pure.

Comes in: a workload, its job's components, the site's map of labels to features. Goes out: the components as they would be submitted, or a refusal. What must stay true: the functions that decide are those that the bridge directs its jobs by; nodes that are
left out by name are not known here.
"""

from collections.abc import Iterator, Mapping, Sequence

from slinky.bridge.capacity import NodeRoom
from slinky.bridge.eligibility import within_gang
from slinky.bridge.eligibility.gang import HOSTNAME, UNMAPPED
from slinky.bridge.label_features import features_from
from slinky.bridge.translate import Site, members
from slinky.bridge.whereabouts import Whereabouts, put_on, usable_of, where
from slinky.bridge.workload import Workload
from slinky.kube import Pod
from slinky.slurm import JobDescription

__all__ = ["DirectionsError", "directed"]


class DirectionsError(Exception):
    """Slurm cannot be told where it may go."""


def directed(
    workload: Workload, jobs: Sequence[JobDescription], site: Site, mapped: Mapping[str, str], namespace_labels: Mapping[str, str] | None
) -> list[JobDescription]:
    """Raises DirectionsError. `mapped` is the setting nodes.featureLabels."""
    rules = within_gang(workload.everyone, namespace_labels).also_in(workload.same_domain)
    if rules.refusal:
        raise DirectionsError(rules.refusal)
    label = "" if rules.same_domain == HOSTNAME else rules.same_domain or ""
    if label and label not in mapped:
        raise DirectionsError(UNMAPPED.format(label=label))
    found = []
    for job, pods in zip(jobs, members(workload, site), strict=True):
        asked = _asked(pods, job, mapped, label)
        found.append(put_on(job, Whereabouts(asked, (), rules.one_per_node, rules.same_domain == HOSTNAME)))
    return found


def _asked(pods: Sequence[Pod], job: JobDescription, mapped: Mapping[str, str], one_of: str) -> str:
    """As if there were one node, with every feature that is asked for."""
    features = frozenset(feature for pod in pods for labels in _wanted(pod) for feature in features_from(labels, mapped))
    partition = job.partition or ""
    room = NodeRoom(partitions=frozenset(partition.split(",")), cpus=0, memory=0, gres={}, features=features)
    return where(pods, (), usable_of({"any": room}, partition), said=job.constraints or "", mapped=mapped, one_of=one_of).constraint


def _wanted(pod: Pod) -> Iterator[Mapping[str, str]]:
    yield pod.spec.node_selector
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    for term in affinity.required.node_selector_terms if affinity and affinity.required else ():
        for wish in term.match_expressions:
            if wish.operator == "In":
                yield from ({wish.key: value} for value in wish.values)
