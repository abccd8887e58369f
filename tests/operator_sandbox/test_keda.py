"""Workers by KEDA, as examples/operator/keda.yaml has it: KEDA's own operator and adapter, Kubernetes' autoscaler, and jobs that wait in a partition without a node."""

import pytest

from tests.operator_sandbox.cluster import EXAMPLES, Cluster

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

ADDONS = ("keda",)
SERVICE = "slurm-controller.slurm:6817"
SOON = "15"  # seconds, in the stead of those of a site


def scaled_object(cluster: Cluster) -> str:
    """The example; but KEDA runs on the head here, where no Service has a name, and nobody waits for minutes."""
    address = cluster.kubectl("get", "pod", "slurm-controller-0", "--output=jsonpath={.status.podIP}")
    text = (EXAMPLES / "keda.yaml").read_text()
    assert (text.count(SERVICE), text.count("300")) == (2, 2)
    return text.replace(SERVICE, f"{address}:6817").replace("300", SOON)


def test_keda_brings_workers_for_jobs_that_wait_and_takes_them_when_none_is_left(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--filename=-", written=scaled_object(cluster))
    cluster.until("KEDA knew what to ask", lambda: cluster.condition("scaledobject", "small", "Ready")[0] == "True")
    cluster.until("nobody was left, as there was no job", lambda: not cluster.workers("small"))
    jobs = [cluster.submit(f"sleep {seconds}", "--partition=small", "--exclusive") for seconds in (20, 90)]
    assert {cluster.job(job)["JobState"] for job in jobs} == {"PENDING"}
    for job in jobs:
        cluster.until_job(job, "RUNNING")
    assert {cluster.job(job)["NodeList"] for job in jobs} == {"small-0", "small-1"}
    assert cluster.condition("hpa", "keda-hpa-small", "ScalingActive")[0] == "True", "the second came by Kubernetes' own autoscaler"
    cluster.until_job(jobs[0], "COMPLETED")
    cluster.until("the other one was there alone", lambda: list(cluster.workers("small")) == [cluster.job(jobs[1])["NodeList"]])
    for job in jobs:
        ended = cluster.until_job(job, "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED")
        assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0")
    cluster.until("nobody was left again", lambda: not cluster.workers("small"))
