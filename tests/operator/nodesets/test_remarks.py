"""An operator that shows other digests than the one before it replaces no worker for that."""

from dataclasses import replace
from typing import Any

import msgspec

from slinky.operator import labels
from slinky.operator.kinds import Controller, NodeSet
from slinky.operator.nodesets.acts import ChangePod, DeletePod, Drain
from slinky.operator.nodesets.plan import plan
from slinky.operator.nodesets.remarks import remarked
from slinky.operator.objects.view import ClusterView
from slinky.operator.objects.worker_pod import revision_of
from tests.operator.nodesets.scene import a_nodeset, a_pod, in_slurm, only, scene

KEY = "c-auth-slurm"


def sites() -> tuple[ClusterView, ClusterView]:
    """As an earlier operator saw it, and as this one does."""
    controller = msgspec.convert({"metadata": {"name": "c", "namespace": "hpc"}}, Controller)
    before = ClusterView(controller=controller, digests={KEY: "1", "sssd": "plain"})
    return before, replace(before, digests={KEY: "1", "sssd": "keyed"}, plain_digests={"sssd": "plain"})


def people(**spec: Any) -> NodeSet:
    return a_nodeset(replicas=2, ssh={"enabled": True, "sssdConfRef": {"name": "sssd"}}, **spec)


def test_workers_of_an_earlier_operator_are_marked_and_not_replaced() -> None:
    before, now = sites()
    nodeset = people()
    former, revision = revision_of(nodeset, before), revision_of(nodeset, now)
    assert former != revision
    notes = {labels.SSSD_CONF_HASH: "plain", "theirs": "x"}
    pods = [a_pod(number, revision=former, annotations=notes) for number in range(2)]
    seen = replace(scene(nodeset, pods, [in_slurm("workers-0"), in_slurm("workers-1")]), revision=revision)
    assert only(plan(seen), Drain), "each would be drained and replaced"
    after, acts = remarked(seen, now)
    assert [(act.name, act.labels, act.annotations) for act in acts] == [
        (f"workers-{number}", {labels.REVISION: revision}, {labels.SSSD_CONF_HASH: "keyed"}) for number in range(2)
    ]
    assert {worker.revision for worker in after.workers} == {revision}
    assert all(worker.pod.metadata.annotations["theirs"] == "x" for worker in after.workers)
    assert not only(plan(after), Drain) and not only(plan(after), DeletePod)
    assert remarked(after, now)[1] == []


def test_workers_that_are_made_of_something_else_are_replaced_as_ever() -> None:
    before, now = sites()
    other = revision_of(people(extraConf="Weight=2"), before)
    seen = replace(scene(people(), [a_pod(0, revision=other)]), revision=revision_of(people(), now))
    assert remarked(seen, now)[1] == []
    changed = replace(now, digests={**now.digests, "sssd": "keyed anew"}, plain_digests={"sssd": "another"})
    pod = a_pod(0, revision=revision_of(people(), before))
    seen = replace(scene(people(), [pod]), revision=revision_of(people(), changed))
    assert not [act for act in remarked(seen, changed)[1] if isinstance(act, ChangePod)]
