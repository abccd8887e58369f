"""A cluster made by the operator from the manifests in examples/operator, used as people use one, and changed while it is used. What does not meet is done side by side, as each of it waits for most of its time."""

import base64
import json

import pytest

from tests.operator_sandbox import changes, leaving
from tests.operator_sandbox.cluster import EXAMPLES, Cluster, side_by_side

pytestmark = pytest.mark.sandbox


def token_of(cluster: Cluster) -> str:
    return base64.b64decode(cluster.get("secret", "alice-jwt-alice")["data"]["SLURM_JWT"]).decode()


@pytest.fixture(scope="module")
def first_token(cluster: Cluster) -> str:
    """Asked for at the beginning, as the shortest that may be asked for lives a minute."""
    shortest = (EXAMPLES / "token.yaml").read_text().replace("lifetime: 15m", "lifetime: 60s")
    cluster.kubectl("apply", "--filename=-", written=shortest)
    cluster.until("there was a token", lambda: token_of(cluster))
    return token_of(cluster)


@pytest.mark.usefixtures("first_token")
def test_a_job_from_the_login_node_runs_and_is_accounted(cluster: Cluster) -> None:
    job = cluster.submit("hostname; sleep 1", "--job-name=first")
    assert cluster.until_job(job, "COMPLETED")["ExitCode"] == "0:0"
    told = ["sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={job}", "--format=JobName,State,NCPUS"]
    cluster.until("sacct showed it", lambda: cluster.login(*told).strip() == "first|COMPLETED|1")


def test_what_a_pod_may_use_of_its_host_is_what_slurm_counts_with(cluster: Cluster) -> None:
    node = cluster.login("scontrol", "--oneliner", "show", "node", "small-0")
    memory = {
        key: int(value) for key, value in (word.split("=") for word in node.split() if word.startswith(("RealMemory=", "MemSpecLimit=")))
    }
    assert memory["RealMemory"] - memory["MemSpecLimit"] == 1024


def test_a_real_mpi_program_runs_on_two_workers(cluster: Cluster) -> None:
    said = cluster.login("srun", "--nodes=2", "--ntasks=4", "mpi-ranks").splitlines()
    assert len(said) == 4
    assert all(line.endswith("the sum of all ranks is 6") for line in said)
    assert {line.split(" on ")[1].split(":")[0] for line in said} == {"compute-0", "compute-1"}


def test_whom_only_ldap_knows_logs_in_with_her_password_and_runs_a_job(cluster: Cluster) -> None:
    """By ssh, to the LoginSet's Service; her password comes from the program that ssh asks."""
    asks = "#!/bin/sh\necho an example\n"
    ssh = "SSH_ASKPASS=/tmp/ask SSH_ASKPASS_REQUIRE=force ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    script = f"printf '{asks!r}' > /tmp/ask; chmod 755 /tmp/ask; {ssh} erin@slurm-login 'id -un; pwd; srun id -u'".replace(
        "'#", "#"
    ).replace("\\n'' >", "\\n' >")
    assert cluster.login("bash", "-c", script).split() == ["erin", "/home/erin", "3001"]


def test_worker_host_names_resolve_on_the_login_node(cluster: Cluster) -> None:
    assert cluster.login("getent", "hosts", "compute-1").split()[0] == cluster.get("pod", "compute-1")["status"]["podIP"]


def test_reservations_dependencies_and_health_checks_are_honoured(cluster: Cluster) -> None:
    side_by_side(cluster, reservations_and_dependencies, a_health_check_drains_and_the_operator_leaves_that_alone)


def reservations_and_dependencies(cluster: Cluster) -> None:
    cluster.login(
        "scontrol", "create", "reservation", "ReservationName=lesson", "StartTime=now", "Duration=30", "Users=alice", "Nodes=compute-0"
    )
    stranger = cluster.submit("true", "--nodelist=compute-0")
    guest = cluster.submit("sleep 2", "--reservation=lesson", user="alice")
    after = cluster.submit("true", "--reservation=lesson", f"--dependency=afterok:{guest}", user="alice")
    failed = cluster.submit("false", "--reservation=lesson", user="alice")
    never = cluster.submit("true", "--reservation=lesson", f"--dependency=afterok:{failed}", "--kill-on-invalid-dep=yes", user="alice")
    cluster.until_job(guest, "COMPLETED")
    cluster.until_job(after, "COMPLETED")
    cluster.until_job(never, "CANCELLED")
    assert int(cluster.job(after)["JobId"]) == after
    assert cluster.job(stranger)["JobState"] == "PENDING"
    cluster.login("scontrol", "delete", "ReservationName=lesson")
    cluster.until_job(stranger, "COMPLETED")


def a_health_check_drains_and_the_operator_leaves_that_alone(cluster: Cluster) -> None:
    """What Slurm says of the node stands on its pod."""
    cluster.on("compute-1", "touch", "/tmp/sick")
    cluster.until("the health check drained compute-1", lambda: cluster.states()["compute-1"] in ("drained", "draining"))
    cluster.until("the pod said so", lambda: cluster.condition("pod", "compute-1", "SlurmNodeStateDrain") == ("True", "sick"), 15)
    cluster.on("compute-1", "rm", "/tmp/sick")
    assert cluster.states()["compute-1"] == "drained"
    cluster.login("scontrol", "update", "NodeName=compute-1", "State=RESUME")
    cluster.until_idle("compute-1")
    cluster.until("the pod said so", lambda: cluster.condition("pod", "compute-1", "SlurmNodeStateDrain")[0] != "True", 15)


def test_jobs_live_when_slurmctlds_pod_is_killed(cluster: Cluster) -> None:
    changes.slurmctld_is_killed(cluster)


def test_changes_of_files_are_applied_while_jobs_run(cluster: Cluster) -> None:
    changes.files_are_edited(cluster)


def test_workers_leave_when_their_jobs_have_ended_and_follow_nodes(cluster: Cluster) -> None:
    """Scaled to zero and back, a NodeSet that is deleted, and one worker a Kubernetes node that fits."""
    side_by_side(cluster, leaving.scaled_to_zero_and_back, leaving.a_nodeset_is_deleted, leaving.daemons_follow_nodes)


def test_cordoning_a_kubernetes_node_drains_its_workers_and_back(cluster: Cluster) -> None:
    leaving.a_node_is_cordoned(cluster)


def test_a_new_image_under_load_loses_no_job(cluster: Cluster) -> None:
    leaving.a_new_image_under_load(cluster)


def test_a_token_is_kept_fresh_and_is_good(cluster: Cluster, first_token: str) -> None:
    assert json.loads(base64.urlsafe_b64decode(first_token.split(".")[1] + "=="))["sun"] == "alice"
    cluster.until("it was made anew in time", lambda: token_of(cluster) != first_token, 80)
    assert cluster.login("env", f"SLURM_JWT={token_of(cluster)}", "scontrol", "ping", user="bob").split()[-1] == "UP"
    owner = cluster.get("secret", "alice-jwt-alice")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Token", "alice")
    cluster.kubectl("delete", "token", "alice")
    cluster.until("its Secret went with it", lambda: not cluster.get("secret", "alice-jwt-alice"))
