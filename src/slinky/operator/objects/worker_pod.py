"""A worker: the pod with a slurmd that registers as a dynamic node of Slurm under its host name.

A NodeSet, its cluster and which of the workers it is go in; a pod comes out, of what all have in common and what is its own. What must stay true: the same goes in, the same comes out, name included, so that a pod made twice is refused by the API server and not made
twice; the revision says what a worker is made of and nothing else, so that neither a label nor a newer operator replaces workers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from slinky.kube.objects import Node
from slinky.operator import labels, names
from slinky.operator.conf.sshd import worker_sshd_config
from slinky.operator.kinds import NodeSet
from slinky.operator.objects.meta import digest_of, owned_pod
from slinky.operator.objects.pods import pod_spec
from slinky.operator.objects.view import ClusterView, slurm_key
from slinky.operator.objects.worker_names import host_name, pod_name
from slinky.operator.objects.worker_parts import slurmd_container, worker_volumes
from slinky.operator.objects.worker_placement import keep_apart, on_node, tolerations
from slinky.operator.overlay import lay_over, without_empty_lists

__all__ = ["revision_of", "worker_base", "worker_claims", "worker_pod"]

SHAPE = 1  # of the pods made here: a change of it replaces all workers everywhere, each drained first


def revision_of(nodeset: NodeSet, view: ClusterView) -> str:
    """What a worker is made of, as a digest."""
    spec = nodeset.spec
    made_of: list[Any] = [
        SHAPE,
        without_empty_lists(spec.slurmd),  # they say nothing: who writes them or not has the same workers
        [
            spec.template.metadata.labels or {},
            spec.template.metadata.annotations or {},
            without_empty_lists(spec.template.spec),
        ],
        spec.extra_conf.split(),
        spec.ordinal_padding,
        spec.oversubscribe_node,
        spec.scaling_mode.value,
        view.controller_address,
        view.worker_domain,
        _hashes(nodeset, view),
    ]
    return digest_of(made_of)[:10]


class WorkerBase(msgspec.Struct, frozen=True):
    """What all workers of a NodeSet have in common: made once for many, and changed by none."""

    spec: dict[str, Any]
    annotations: dict[str, str]


def worker_base(nodeset: NodeSet, view: ClusterView) -> WorkerBase:
    spec = nodeset.spec
    given = {key: value for key, value in spec.template.spec.items() if key != "hostname"}
    ours: dict[str, Any] = {
        "subdomain": names.worker_service(view.name),
        "dnsConfig": {"searches": [view.worker_domain]},
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},  # of a privileged container, Kubernetes takes no notice of it
        "tolerations": tolerations(nodeset),
        "volumes": worker_volumes(nodeset, view),
    }
    if not spec.oversubscribe_node:
        ours["affinity"] = keep_apart()
    if given.get("hostNetwork"):
        ours["dnsPolicy"] = "ClusterFirstWithHostNet"
        del ours["subdomain"]
    made = pod_spec(ours, slurmd_container(nodeset, view), spec.slurmd, msgspec.structs.replace(spec.template, spec=given))
    return WorkerBase(made, {labels.DEFAULT_CONTAINER: "slurmd", **_hashes(nodeset, view)})


def worker_pod(
    nodeset: NodeSet, base: WorkerBase, *, ordinal: int | None, node: Node | None, revision: str, name: str = ""
) -> dict[str, Any]:
    """Worker `ordinal` (mode StatefulSet, on `node` where it is pinned there), or the worker of `node` (mode DaemonSet). `name`: the pod's, where it is not the usual one."""
    name, host = name or pod_name(nodeset, ordinal, node), host_name(nodeset, ordinal, node)
    made = base.spec if base.spec.get("hostNetwork") else {"hostname": host, **base.spec}
    if claimed := list(_claimed(nodeset, name)):
        made = lay_over(made, {"volumes": claimed})
    if node is not None:
        made = on_node(made, node.metadata.name, alone=nodeset.spec.is_daemon_set)
    topology = node.metadata.annotations.get(labels.TOPOLOGY, "") if node else ""
    annotations = base.annotations | ({labels.TOPOLOGY: topology} if topology else {})
    labelled = _labels(nodeset, name, host, ordinal, revision)
    meta = owned_pod(nodeset, name, labelled, nodeset.spec.template.metadata, annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": made}


def _labels(nodeset: NodeSet, name: str, host: str, ordinal: int | None, revision: str) -> dict[str, str]:
    more = {labels.POD_INDEX: "" if ordinal is None else str(ordinal), labels.POD_HOSTNAME: host}
    return {
        **labels.worker_labels(nodeset),
        labels.POD_NAME: name,
        labels.REVISION: revision,
        **{key: value for key, value in more.items() if value},
    }


def _hashes(nodeset: NodeSet, view: ClusterView) -> dict[str, str]:
    """Of what a running worker cannot take: keys, and what only sshd and SSSD read at their start."""
    ssh = nodeset.spec.ssh
    made = {labels.SLURM_KEY_HASH: view.digest(slurm_key(view.controller)[0])}
    if ssh.enabled:
        made[labels.SSHD_CONF_HASH] = digest_of(worker_sshd_config(nodeset))
        if ssh.sssd_conf_ref:
            made[labels.SSSD_CONF_HASH] = view.digest(ssh.sssd_conf_ref.name)
    return made


def _claimed(nodeset: NodeSet, pod: str) -> Iterable[dict[str, Any]]:
    for template in nodeset.spec.volume_claim_templates or []:
        volume = template["metadata"]["name"]
        yield {"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{pod}"}}


def worker_claims(nodeset: NodeSet, pod: str) -> list[dict[str, Any]]:
    """The claims that a worker has of its own, by its pod's name. They have no owner here: what becomes of them, the NodeSet's retention policy says."""
    return [_claim(nodeset, template, pod) for template in nodeset.spec.volume_claim_templates or []]


def _claim(nodeset: NodeSet, template: Mapping[str, Any], pod: str) -> dict[str, Any]:
    meta = template["metadata"]
    made: dict[str, Any] = {
        "name": f"{meta['name']}-{pod}",
        "namespace": nodeset.metadata.namespace,
        "labels": {**(meta.get("labels") or {}), **labels.nodeset_selector(nodeset), labels.CLUSTER: nodeset.spec.controller_ref.name},
    }
    if meta.get("annotations"):
        made["annotations"] = dict(meta["annotations"])
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": made, "spec": dict(template.get("spec") or {})}
