"""Why a pod waits: each step of its way that it may not have passed, with the advice that helps."""

import msgspec
import pytest

from slinky.bridge.admission import DEVICE_CLASS
from slinky.bridge.keys import CLAIM_CONFLICT
from slinky.explain.facts import Facts
from slinky.explain.pods import pod_findings
from slinky.explain.report import explain_pod, text
from tests.explain.worlds import claim_lease, facts, job, lease, namespace, pod, with_job

WAITING = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
GATED = {"schedulingGates": [{"name": "example.com/quota"}]}

# The finding that must be there, what it must have seen, and what its advice must say.
CASES: dict[str, tuple[Facts, str, str]] = {
    "pod-not-found": (facts({"pod": None}), "no such pod", "kubectl get pods -n team"),
    "pod-over": (facts({"pod": pod(status={"phase": "Succeeded"})}), "succeeded", ""),
    "pod-running": (
        facts({"pod": pod(job=7, spec={"nodeName": "w1"})}, {"jobs": (job(7, "RUNNING", "None"),)}),
        "on node w1, by Slurm job 7",
        "",
    ),
    "pod-container-waiting": (
        facts({"pod": pod(spec={"nodeName": "w1"}, status={"containerStatuses": [{"name": "c", **WAITING}]})}),
        "ImagePullBackOff no such image",
        "kubectl describe pod train-0 -n team",
    ),
    "pod-leaving": (facts({"pod": pod(deletionTimestamp="2026-11-15T11:59:00Z", finalizers=["f"])}), "finalizers: f", "out-of-service"),
    "pod-not-ours": (
        facts({"pod": pod(namespace="web", spec={"schedulerName": "default-scheduler"}), "namespace": namespace("web")}, namespace="web"),
        "its scheduler is default-scheduler",
        "have namespace web managed",
    ),
    "pod-missed-by-webhook": (facts({"pod": pod(spec={"schedulerName": "default-scheduler"})}), "namespace team is managed", "made anew"),
    "pod-other-scheduler": (
        facts({"pod": pod(spec={"schedulerName": "volcano"})}),
        "its scheduler is volcano, not slurm-bridge-scheduler",
        "remove spec.schedulerName",
    ),
    "pod-of-daemonset": (
        facts(
            {
                "pod": pod(
                    spec={"schedulerName": "default-scheduler"}, ownerReferences=[{"kind": "DaemonSet", "name": "d", "controller": True}]
                )
            }
        ),
        "DaemonSet d",
        "",
    ),
    "pod-gated-by-kueue": (
        facts({"pod": pod(spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})}),
        "kueue.x-k8s.io/admission",
        "kubectl get workloads -n team",
    ),
    "pod-gated": (facts({"pod": pod(spec=GATED)}), "example.com/quota", "ask whoever sets the gate example.com/quota"),
    "bridge-not-running": (facts({"lease": lease(ago=600)}), "renewed by bridge-0, too long ago", "kubectl -n slinky get pods"),
    "bridge-claim-conflict": (
        facts({"claim": claim_lease(4711)}),
        "Slurm job 4711 carries claim 9.zz.4",
        "kubectl -n slinky annotate --overwrite lease slurm-bridge-claim slinky.slurm.net/take-over=9.zz",
    ),
    "pod-unheeded": (facts(), "no job, and no condition", "bridge's log"),
    "pod-just-arrived": (facts({"pod": pod(creationTimestamp="2026-11-15T11:59:55Z")}), "a moment ago", ""),
    "pod-owner-gone": (
        facts({"pod": pod(ownerReferences=[{"kind": "Job", "name": "train", "controller": True}]), "orphan": True}),
        "made by Job train, which is gone",
        "kubectl delete pod train-0 -n team",
    ),
    "pod-account-unknown": (
        facts({"pod": pod(standing=("Parked", "job/submit: Invalid account (ESLURM_INVALID_ACCOUNT 2045)"))}),
        "Invalid account",
        "slurmjob.slinky.slurm.net/account",
    ),
    "pod-qos-refused": (facts({"pod": pod(standing=("Parked", "Invalid qos (ESLURM_INVALID_QOS 2066)"))}), "Invalid qos", "set qos+="),
    "pod-partition-unknown": (
        facts({"pod": pod(standing=("Parked", "Invalid partition name (ESLURM_INVALID_PARTITION_NAME 2000)"))}),
        "Invalid partition",
        "there is bridge",
    ),
    "pod-too-large": (
        facts({"pod": pod(standing=("Parked", "no node of partition bridge could hold it: 999 CPUs"))}),
        "999 CPUs",
        "ask for less",
    ),
    "pod-nowhere": (
        facts({"pod": pod(standing=("Parked", "Kubernetes would take it on none of the 4 nodes of partition bridge: zone is not b"))}),
        "none of the 4 nodes",
        "nodeSelector",
    ),
    "pod-not-allowed": (
        facts({"pod": pod(standing=("Parked", "annotation x is 'ai', and namespace team may name physics"))}),
        "may name physics",
        "policy of the bridge's configuration",
    ),
    "pod-parked": (facts({"pod": pod(standing=("Parked", "something that nobody foresaw"))}), "nobody foresaw", "need not be made anew"),
    "pod-over-limit": (
        facts({"pod": pod(standing=("Parked", "Slurm refuses the job: Job violates accounting/QOS policy (job submit limit, …)"))}),
        "accounting/QOS policy",
        "ask for less",
    ),
    "pod-submit-limit": (
        facts({"pod": pod(standing=("SubmitLimit", "Slurm accepts no more jobs now: MaxJobCount; it is number 3 in line"))}),
        "number 3 in line",
        "maxsubmit",
    ),
    "pod-placed-in-turn": (
        facts(
            {
                "pod": pod(
                    standing=("PlacedInTurn", "pod ns/web-1 also asks for host port 80/TCP and has no node yet; it is the first in line")
                )
            }
        ),
        "host port 80/TCP",
        "ScheduleAnyway",
    ),
    "pod-window": (facts({"pod": pod(standing=("Window", "waits for its turn"))}), "its turn", "windows.namespace (1000)"),
    "pod-gathering": (facts({"pod": pod(standing=("Gathering", "3 pods of g are there"))}), "3 pods", "quota"),
    "pod-group-missing": (
        facts({"pod": pod(standing=("GroupMissing", "PodGroup team/g does not exist: 2 pods are waiting for it"))}),
        "PodGroup team/g does not exist",
        "create PodGroup team/g in namespace team",
    ),
    "pod-devices-unsupported": (
        facts(
            {
                "pod": pod(
                    standing=("Parked", "node w1 offers no example.com/gpu, but the pod requests 1"),
                    spec={"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]},
                ),
                "device_resources": {"example.com/gpu": "big-gpu"},
            }
        ),
        "example.com/gpu is served by DeviceClass big-gpu",
        "nvidia.com/gpu",
    ),
    "pod-waits-for-volumes": (
        facts({"pod": pod(standing=("WaitingForVolumes", "claim data is not bound"))}),
        "claim data",
        "kubectl get pvc -n team",
    ),
    "pod-node-not-free": (
        facts({"pod": pod(job=7, standing=("NodeNotFree", "Slurm job 7 has started; x"))}, {"jobs": (job(7, "RUNNING"),)}),
        "has started",
        "containers are gone",
    ),
    "pod-surplus": (facts({"pod": pod(standing=("Surplus", "was submitted for 2 pods"))}), "2 pods", "slot"),
    "job-unknown": (facts({"pod": pod(job=7)}, {"asked": 7}), "job 7, which Slurm does not know", "operations.md"),
    "pod-lost": (facts({"pod": pod(job=7, spec={"nodeName": "w1"})}, {"asked": 7}), "Slurm does not know job 7", "double booking"),
    "pod-job-over": (with_job(job(7, "CANCELLED", "None")), "ended as CANCELLED", ""),
}


@pytest.mark.parametrize("code", CASES)
def test_it_is_found_with_the_advice_that_helps(code: str) -> None:
    situation, seen, change = CASES[code]
    found = {each.code: each for each in pod_findings(situation)}
    assert code in found, sorted(found)
    assert seen in found[code].seen
    assert change in found[code].change


def test_a_pod_for_which_all_nodes_are_too_small_is_too_large() -> None:
    said = "none of the 4 nodes of partition p2 will do: node w1 has 64 cpu in total, but the pod requests 4000 (and 3 more like it)"
    assert [each.code for each in pod_findings(facts({"pod": pod(standing=("Parked", said))}))] == ["pod-too-large"]


def test_in_a_namespace_that_is_not_managed_the_scheduler_is_to_be_named() -> None:
    """Without a name there, the pod would be the default scheduler's."""
    foreign = {"pod": pod(namespace="web", spec={"schedulerName": "volcano"}), "namespace": namespace("web")}
    (found,) = pod_findings(facts(foreign, namespace="web"))
    assert found.code == "pod-other-scheduler"
    assert found.change == "to have Slurm schedule it: set spec.schedulerName to slurm-bridge-scheduler, and create the pod again"


def parked(message: str, resource: str = "", **kube: object) -> Facts:
    spec = {"containers": [{"name": "c", "resources": {"requests": {resource: "1"}}}]} if resource else {}
    return facts({"pod": pod(standing=("Parked", message), spec=spec), **kube})


DEVICES = {
    "by claim": parked("spec.resourceClaims: devices by claim are not supported; ask for GPUs as a resource"),
    "by the class's own name": parked("something", f"{DEVICE_CLASS}big"),
    "by the class's own name, said by the bridge": parked(f"resource {DEVICE_CLASS}big: devices of a DeviceClass are not supported"),
    "by another name": parked("node w1 has 0 x", "example.com/gpu", device_resources={"example.com/gpu": "big"}),
}


@pytest.mark.parametrize("how", DEVICES)
def test_devices_of_dynamic_resource_allocation_are_not_supported_however_they_are_requested(how: str) -> None:
    (found,) = pod_findings(DEVICES[how])
    assert found.code == "pod-devices-unsupported"
    assert "w1" not in found.seen, "it does not say that the pod is too large"


def test_where_device_classes_could_not_be_listed_that_is_said_of_resources_that_they_may_serve() -> None:
    said = "no node of partition bridge could hold it: node w1 offers no example.com/gpu, but the pod requests 1"
    (found,) = pod_findings(parked(said, "example.com/gpu", unread=frozenset({"deviceclasses"})))
    assert found.code == "pod-too-large"
    assert "You may not list deviceclasses.resource.k8s.io" in found.seen
    assert "example.com/gpu" in found.seen.rpartition("whether")[2]
    (known,) = pod_findings(parked(said, "example.com/gpu"))
    (plain,) = pod_findings(parked(said, "cpu", unread=frozenset({"deviceclasses"})))
    assert "deviceclasses" not in known.seen + plain.seen


def test_a_gated_pod_is_not_blamed_on_the_bridge() -> None:
    assert [each.code for each in pod_findings(facts({"pod": pod(spec=GATED), "lease": None}))] == ["pod-gated"]


def test_a_cause_in_slurm_is_told_of_the_pod_too_with_a_way_to_end_it_in_kubernetes() -> None:
    found = pod_findings(with_job(job(7, reason="DependencyNeverSatisfied")))
    assert [each.code for each in found] == ["job-dependency-never"]
    assert "kubectl delete pod train-0 -n team" in found[0].change


def test_what_could_not_be_read_is_not_taken_for_absent() -> None:
    blind = facts({"pod": pod(job=7), "lease": None, "unread": frozenset({"lease"})}, {"asked": 7, "unread": frozenset({"job"})})
    assert pod_findings(blind) == []
    assert pod_findings(facts({"pod": None, "unread": frozenset({"pod"})})) == []


def test_the_text_has_what_both_sides_say_and_the_worst_first() -> None:
    held = job(7, reason="JobHeldUser", priority={"set": True, "infinite": False, "number": 0})
    written = text(explain_pod(with_job(held, kube={"pod": pod(job=7, standing=("JobHeldUser", "Slurm job 7 waits"))})))
    assert written.startswith("pod team/train-0: something must be changed\n  ERROR    job-held-user: job 7: Slurm says JobHeldUser")
    assert "→ scontrol release 7" in written
    assert "Kubernetes says\n  pod team/train-0 is Pending, scheduler slurm-bridge-scheduler" in written
    assert "Slurm says\n  job 7 (team/train-0) is PENDING in partition bridge, reason JobHeldUser" in written


def test_a_claim_conflict_is_said_of_all_pods_that_wait_and_only_while_a_bridge_leads() -> None:
    """With it, a pod without a job is not unheeded; a conflict that an ended bridge left there says nothing."""
    conflict = {"claim": claim_lease(4711)}
    assert [each.code for each in pod_findings(facts(conflict))] == ["bridge-claim-conflict"]
    with_a_job = with_job(job(7), kube=conflict)
    assert next(each.code for each in pod_findings(with_a_job)) == "bridge-claim-conflict"
    assert explain_pod(with_a_job).was_found
    ended = [each.code for each in pod_findings(facts({**conflict, "lease": lease(ago=600)}))]
    assert ended == ["bridge-not-running"]
    assert [each.code for each in pod_findings(facts({"claim": claim_lease()}))] == ["pod-unheeded"]


@pytest.mark.parametrize("said", ["", "{", "[]", '{"jobId":"x"}', '{"jobId":1}', "null"])
def test_an_annotation_that_is_no_conflict_says_nothing(said: str) -> None:
    told = claim_lease()
    meta = msgspec.structs.replace(told.metadata, annotations={CLAIM_CONFLICT: said})
    broken = msgspec.structs.replace(told, metadata=meta)
    assert [each.code for each in pod_findings(facts({"claim": broken}))] == ["pod-unheeded"]
