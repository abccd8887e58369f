"""The webhook's handlers: requests become decisions, refusals name their object, and everything is counted."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from slinky.bridge.keys import JOB_ID
from slinky.bridge.policy_settings import PolicySettings
from slinky.bridge.settings import Settings
from slinky.bridge.webhook_configuration import CHANGES, PODS, WORKLOADS
from slinky.bridge.webhooks import KINDS, Webhooks
from slinky.kube import AdmissionMetrics, AdmissionRequest, AdmissionResponse

OURS = Settings(managed_namespaces=["lab"])
NAME = OURS.scheduler_name
LIMIT = "slurmjob.slinky.slurm.net/timelimit"


def request(
    document: dict[str, Any], kind: str = "Pod", old: dict[str, Any] | None = None, user: str = "alice", **more: Any
) -> AdmissionRequest:
    body = {"kind": {"kind": kind}, "namespace": "lab", "operation": "UPDATE" if old else "CREATE", "userInfo": {"username": user}}
    return msgspec.convert(
        body | more | {"object": msgspec.Raw(msgspec.json.encode(document)), "oldObject": msgspec.Raw(msgspec.json.encode(old))},
        AdmissionRequest,
    )


class Asked:
    """The handlers, and what they counted."""

    def __init__(self, settings: Settings = OURS) -> None:
        self.labelled: list[Mapping[str, str]] = []  # as the watch has them, and then as the server has
        self.registry = CollectorRegistry()
        self.looked_up: list[str] = []
        self.handlers = Webhooks(settings, self, frozenset({"bridge"}), AdmissionMetrics(self.registry, KINDS)).handlers

    async def manages(self, name: str) -> bool:
        self.looked_up.append(name)
        if name == "lost":
            raise RuntimeError("no answer")
        return OURS.manages(name, {})

    async def labels(self, name: str, *, fresh: bool = False) -> Mapping[str, str]:
        assert name == "lab"
        return self.labelled[1 if fresh else 0]

    async def ask(self, path: str, asked: AdmissionRequest) -> AdmissionResponse:
        return await self.handlers[path](asked)

    def count(self, kind: str, operation: str, outcome: str) -> float:
        labels = {"kind": kind, "operation": operation, "outcome": outcome}
        return self.registry.get_sample_value("slinky_admission_requests_total", labels) or 0.0


@pytest.fixture
def asked() -> Asked:
    return Asked()


def pod(scheduler: str = "default-scheduler", **meta: Any) -> dict[str, Any]:
    return {"metadata": meta, "spec": {"schedulerName": scheduler, "containers": [{"name": "c"}]}}


async def test_the_namespace_is_the_requests(asked: Asked) -> None:
    answer = await asked.ask(PODS, request(pod(generateName="web-")))
    assert answer.allowed
    assert answer.patch
    assert asked.count("Pod", "CREATE", "changed") == 1
    assert not (await asked.ask(PODS, request(pod(name="x"), namespace="web"))).patch
    assert asked.count("Pod", "CREATE", "allowed") == 1


async def test_who_names_our_scheduler_is_ours_without_a_look_at_the_namespace(asked: Asked) -> None:
    assert (await asked.ask(PODS, request(pod(NAME, name="x"), namespace="lost"))).patch
    assert asked.looked_up == []


async def test_a_namespace_that_cannot_be_looked_up_is_a_failure_and_no_decision(asked: Asked) -> None:
    with pytest.raises(RuntimeError, match="no answer"):
        await asked.ask(PODS, request(pod(name="x"), namespace="lost"))
    assert asked.count("Pod", "CREATE", "failed") == 1


@pytest.mark.parametrize(
    ("meta", "named"),
    [
        ({"name": "x"}, "Pod lab/x: "),
        ({"generateName": "web-"}, "Pod lab/web-*: "),
        (
            {
                "generateName": "web-",
                "ownerReferences": [{"kind": "Node", "name": "n"}, {"kind": "Job", "name": "web", "controller": True}],
            },
            "Pod lab/web-* of Job web: ",
        ),
        ({}, "Pod lab/(no name): "),
    ],
)
async def test_a_refusal_begins_with_what_the_object_is_known_by(asked: Asked, meta: dict[str, Any], named: str) -> None:
    answer = await asked.ask(PODS, request(pod(annotations={LIMIT: "soon"}, **meta)))
    assert not answer.allowed
    assert answer.message.startswith(f"{named}annotation {LIMIT} is 'soon', and must be minutes")
    assert asked.count("Pod", "CREATE", "refused") == 1


@pytest.mark.parametrize(
    ("user", "allowed"), [("alice", False), ("system:serviceaccount:kube-system:job-controller", False), ("bridge", True)]
)
async def test_only_the_bridge_writes_its_own_keys(asked: Asked, user: str, allowed: bool) -> None:
    without, with_job = pod(NAME, name="x"), pod(NAME, name="x", labels={JOB_ID: "7"})
    assert (await asked.ask(CHANGES, request(with_job, old=without, user=user))).allowed is allowed
    assert (await asked.ask(PODS, request(with_job, user=user))).allowed is allowed


async def test_controllers_change_everything_else(asked: Asked) -> None:
    old = pod(NAME, name="x", labels={JOB_ID: "7"}, finalizers=["batch.kubernetes.io/job-tracking", "scheduler.slinky.slurm.net/finalizer"])
    new = pod(NAME, name="x", labels={JOB_ID: "7", "app": "y"})
    assert (await asked.ask(CHANGES, request(new, old=old))).allowed


async def test_a_resize_is_refused_by_its_name(asked: Asked) -> None:
    answer = await asked.ask(CHANGES, request(pod(NAME, name="x"), old=pod(NAME, name="x"), subResource="resize", name="x"))
    assert answer.message.startswith("Pod lab/x: pods/resize: Slurm has set aside")


async def test_a_workload_is_refused_for_what_its_change_brings_only(asked: Asked) -> None:
    def job(**annotations: str) -> dict[str, Any]:
        return {"metadata": {"name": "j", "annotations": {f"slurmjob.slinky.slurm.net/{key}": value for key, value in annotations.items()}}}

    bad = job(timelimit="soon")
    assert "must be minutes" in (await asked.ask(WORKLOADS, request(bad, "Job"))).message
    assert (await asked.ask(WORKLOADS, request(bad, "Job", old=bad))).allowed
    assert (await asked.ask(WORKLOADS, request(job(timelimit="soon", account="x"), "Job", old=bad))).allowed
    answer = await asked.ask(WORKLOADS, request(job(timelimit="soon", priority="high"), "Job", old=bad))
    assert answer.message.startswith("Job lab/j: annotation slurmjob.slinky.slurm.net/priority is 'high'")
    assert "timelimit" not in answer.message
    assert not (await asked.ask(WORKLOADS, request(job(timelimit="later"), "Job", old=bad))).allowed


async def test_kinds_that_nobody_asked_for_do_not_make_metrics_grow(asked: Asked) -> None:
    await asked.ask(WORKLOADS, request({"metadata": {}}, "Anything"))
    assert asked.count("other", "CREATE", "allowed") == 1


async def test_nobody_is_refused_for_labels_that_were_changed_a_moment_ago() -> None:
    policy = msgspec.convert({"rules": [{"selector": {"matchLabels": {"tier": "gold"}}, "qoses": ["high"]}]}, PolicySettings)
    asked = Asked(Settings(managed_namespaces=["lab"], policy=policy))
    sent = request(pod(annotations={"slurmjob.slinky.slurm.net/qos": "high"}))
    for labelled, allowed in (([{"tier": "gold"}, {}], True), ([{}, {"tier": "gold"}], True), ([{}, {}], False)):
        asked.labelled = labelled  # type: ignore[assignment]
        answer = await asked.ask(PODS, sent)
        assert answer.allowed is allowed
    assert "annotation slurmjob.slinky.slurm.net/qos is 'high', and namespace lab may name no QoS: leave it out" in answer.message


async def test_a_shadow_changes_and_refuses_nothing_and_warns_of_what_it_would_refuse() -> None:
    asked = Asked(msgspec.structs.replace(OURS, shadow=True))
    answer = await asked.ask(PODS, request(pod(name="fine")))
    assert (answer.allowed, answer.patch, answer.warnings) == (True, (), ())
    answer = await asked.ask(PODS, request(pod(name="typo", annotations={LIMIT: "soon"})))
    assert (answer.allowed, answer.patch) == (True, ())
    assert answer.warnings[0].startswith(f"slurm-bridge would refuse it: annotation {LIMIT} is 'soon'")
    assert (await asked.ask(WORKLOADS, request({"metadata": {"name": "j", "annotations": {LIMIT: "soon"}}}, kind="Job"))).allowed
    assert asked.count("Pod", "CREATE", "refused") == 1
