"""Real nodes: pods are processes with addresses, names and volumes; Slurm's own daemons run beside kubelets and in pods."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from slinky.sandbox.bridge import sandbox_bridge
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from slinky.slurm import expand
from tests.conftest import CHECKOUT, Starter
from tests.sandbox.leftovers import HeldNamespace, leftovers

pytestmark = pytest.mark.sandbox

WEB = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-address}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: web}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: sandbox/busybox:1
        command: [sh, -c, "hostname > /data/index.html; exec httpd -f -p 8080 -h /data"]
        readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
"""


@pytest.fixture(scope="module")
def real(start_sandbox: Starter) -> Sandbox:
    return start_sandbox("real", Shape(nodes=2, real_nodes=2, slurmd=True, addons=("jobset",)))


def run(sandbox: Sandbox, *command: str, text: str | None = None) -> str:
    """A command as after `eval "$(slinky sandbox env)"`, at a place that every machine has."""
    done = subprocess.run(
        command, env=os.environ | sandbox.exports(), cwd="/", input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pods_on_two_nodes_answer_each_other_by_name(real: Sandbox) -> None:
    run(real, "kubectl", "apply", "-f", "-", text=WEB)
    run(real, "kubectl", "rollout", "status", "statefulset/web", "--timeout=90s")
    nodes = run(real, "kubectl", "get", "pods", "--selector=app=web", "--output=jsonpath={.items[*].spec.nodeName}").split()
    assert sorted(nodes) == ["node-0", "node-1"]
    for asker, asked in (("web-0", "web-1"), ("web-1", "web-0")):
        all_answer(real, asker, f"http://{asked}.web:8080", {asked})
        all_answer(real, asker, "http://web-address", {"web-0", "web-1"})


def all_answer(real: Sandbox, asker: str, address: str, who: set[str]) -> None:
    """DNS and kube-proxy hear of the last pod's readiness a moment after kubectl does: until then they may know one of them, or none."""
    answers: set[str] = set()
    deadline = time.monotonic() + 60
    while answers != who:
        assert time.monotonic() < deadline, f"{asker} got answers of {sorted(answers)} only from {address}"
        command = ("kubectl", "exec", asker, "--", "wget", "-qO-", "-T", "5", address)
        asked = subprocess.run(command, env=os.environ | real.exports(), cwd="/", capture_output=True, text=True, timeout=120, check=False)
        if asked.returncode == 0:
            answers.add(asked.stdout.strip())


def test_the_api_server_reaches_pods_by_their_service(real: Sandbox) -> None:
    """As it must for the webhooks of controllers that run in pods: the head has kube-proxy and a way to the pods too."""
    run(real, "kubectl", "rollout", "status", "statefulset/web", "--timeout=90s")
    address = run(real, "kubectl", "get", "service", "web-address", "--output=jsonpath={.spec.clusterIP}")
    assert "web-" in real.run_in("head", "busybox", "wget", "-qO-", f"http://{address}")


def test_logs_and_exit_codes_are_the_containers_own(real: Sandbox) -> None:
    options = ["--image=sandbox/busybox:1", "--restart=Never", "--command", "--", "sh", "-c", "echo spoken; exit 7"]
    run(real, "kubectl", "run", "speaker", *options)
    run(real, "kubectl", "wait", "--for=jsonpath={.status.phase}=Failed", "pod/speaker", "--timeout=60s")
    assert run(real, "kubectl", "logs", "speaker").strip() == "spoken"
    code = "{.status.containerStatuses[0].state.terminated.exitCode}"
    assert run(real, "kubectl", "get", "pod", "speaker", f"--output=jsonpath={code}") == "7"


def test_slurmd_beside_the_kubelet_runs_jobs_that_are_accounted(real: Sandbox) -> None:
    assert sorted(run(real, "srun", "--partition=compute", "--nodes=2", "hostname").split()) == ["node-0", "node-1"]
    command = [
        "sbatch",
        "--parsable",
        "--wait",
        "--partition=compute",
        "--account=physics",
        "--qos=high",
        "--output=/dev/null",
        "--wrap=true",
    ]
    job = run(real, *command).strip()
    told = ""
    for _ in range(100):
        told = run(real, "sacct", "-nXPj", job, "--format=Account,QOS,State,ExitCode").strip()
        if "COMPLETED" in told:
            break
    assert told == "physics|high|COMPLETED|0:0"


async def test_slurmd_pods_run_a_job_together(real: Sandbox) -> None:
    run(real, "kubectl", "apply", "-f", str(CHECKOUT / "examples/slurmd-pods.yaml"))
    run(real, "kubectl", "rollout", "status", "statefulset/worker", "--namespace=slurm", "--timeout=90s")

    async def idle() -> bool:
        told = await real.link.run(
            "head", "sinfo", "--noheader", "--Node", "--nodes=worker-0,worker-1", "--partition=all", "--format=%N %t"
        )
        return sorted(told.split("\n")) == ["", "worker-0 idle", "worker-1 idle"]

    await real.until("slurmctld", "both pods were idle nodes", idle)
    assert sorted(run(real, "srun", "--partition=all", "--constraint=pod", "--nodes=2", "hostname").split()) == ["worker-0", "worker-1"]


TASKS = """
apiVersion: batch/v1
kind: Job
metadata:
  name: tasks
  annotations: {slurmjob.slinky.slurm.net/gang: "true", slurmjob.slinky.slurm.net/partition: compute, slurmjob.slinky.slurm.net/timelimit: "5"}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  backoffLimitPerIndex: 0  # one that fails does not end the other
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: task
        image: sandbox/busybox:1
        command: [sh, -c, "env | grep ^SLURM | sort; exit $((SLURM_PROCID * 3))"]
        resources: {requests: {cpu: "NEARLY_ALL", memory: 64Mi}}
"""


async def test_a_gang_placed_by_the_bridge_finds_its_slurm_environment_in_its_containers(real: Sandbox, tmp_path: Path) -> None:
    """Two tasks that need more than half a node each: one a node. The second ends with 3, and so does their job."""
    cpus = int(run(real, "sinfo", "-h", "-N", "-n", "node-0", "-p", "compute", "-o", "%c"))
    run(real, "kubectl", "create", "namespace", "team")
    async with sandbox_bridge(real, tmp_path, managedNamespaces=["team"]):
        run(real, "kubectl", "apply", "-n", "team", "-f", "-", text=TASKS.replace("NEARLY_ALL", str(cpus // 2 + 1)))
        run(real, "kubectl", "wait", "-n", "team", "--for=condition=Failed", "job/tasks", "--timeout=90s")
        told = {}
        for index in range(2):
            selector = f"--selector=batch.kubernetes.io/job-completion-index={index}"
            lines = run(real, "kubectl", "logs", "-n", "team", selector, "--tail=-1").splitlines()
            told[index] = dict(line.split("=", 1) for line in lines)
        job_id = told[0]["SLURM_JOB_ID"]
        nodes = expand(told[0]["SLURM_JOB_NODELIST"])  # in Slurm's order
        assert sorted(nodes) == ["node-0", "node-1"]
        for index, environment in told.items():
            expected = {
                "SLURM_JOB_ID": job_id,
                "SLURM_JOBID": job_id,
                "SLURM_PROCID": str(index),
                "SLURM_LOCALID": "0",
                "SLURM_NODEID": str(index),
                "SLURMD_NODENAME": nodes[index],
                "SLURM_NTASKS": "2",
                "SLURM_NPROCS": "2",
                "SLURM_NNODES": "2",
                "SLURM_JOB_NUM_NODES": "2",
                "SLURM_JOB_NODELIST": told[0]["SLURM_JOB_NODELIST"],
                "SLURM_TASKS_PER_NODE": "1(x2)",
                "SLURM_CPUS_PER_TASK": str(cpus // 2 + 1),
                "SLURM_JOB_NAME": "team/tasks",
                "SLURM_JOB_PARTITION": "compute",
            }
            assert environment.items() >= expected.items()

        async def accounted() -> bool:
            line = await real.link.run("head", "sacct", "-nXPj", job_id, "--format=JobName,State,ExitCode")
            return line.strip() == "team/tasks|FAILED|3:0"

        await real.until("slurmctld", "sacct told the job's end", accounted)
        run(real, "kubectl", "delete", "namespace", "team", "--timeout=60s")
    assert sorted(run(real, "srun", "--partition=compute", "--nodes=2", "hostname").split()) == ["node-0", "node-1"]


JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: set
  annotations: {slurmjob.slinky.slurm.net/partition: compute, slurmjob.slinky.slurm.net/timelimit: "5"}
spec:
  network: {enableDNSHostnames: false}
  replicatedJobs:
  - {name: driver, template: {spec: TASK}}
  - {name: worker, template: {spec: TASK}}
"""
TASK = """{parallelism: 1, completions: 1, backoffLimit: 0, template: {spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [
      {name: task, image: sandbox/busybox:1, command: [sh, -c, "echo $SLURM_PROCID of $SLURM_NTASKS"], resources: {requests: {cpu: 100m, memory: 64Mi}}}]}}}"""


@pytest.mark.long
async def test_a_jobset_placed_by_the_bridge_is_one_job_of_slurm(real: Sandbox, tmp_path: Path) -> None:
    run(real, "kubectl", "create", "namespace", "sets")
    async with sandbox_bridge(real, tmp_path, managedNamespaces=["sets"]):
        run(real, "kubectl", "apply", "-n", "sets", "-f", "-", text=JOBSET.replace("TASK", TASK))
        run(real, "kubectl", "wait", "-n", "sets", "--for=condition=Completed", "jobset/set", "--timeout=90s")
        for rank, part in enumerate(("driver", "worker")):
            told = run(real, "kubectl", "logs", "-n", "sets", f"--selector=jobset.sigs.k8s.io/replicatedjob-name={part}", "--tail=-1")
            assert told.strip() == f"{rank} of 2"

        async def accounted() -> bool:
            lines = await real.link.run("head", "sacct", "-nXP", "--name=sets/set", "--format=JobName,State,ExitCode")
            return lines.strip() == "sets/set|COMPLETED|0:0"

        await real.until("slurmctld", "sacct told the job's end", accounted)
        run(real, "kubectl", "delete", "namespace", "sets", "--timeout=60s")


def test_the_hosts_kernel_settings_stay_as_they_were(real: Sandbox) -> None:
    """A kubelet would set kernel.panic=10; the host is not the sandbox's to change."""
    shown = real.run_in("node-0", "cat", "/proc/sys/kernel/panic").strip()
    assert shown == "10"
    assert "bind" in real.run_in("node-0", "sh", "-c", "grep /proc/sys/kernel/panic /proc/mounts && echo bind")


def test_nothing_is_left_of_it(real: Sandbox) -> None:
    """Last in this module: containers, shims, overlay mounts, cgroups and cables go with the keeper."""
    inside = HeldNamespace(real.record.keeper.pid)
    assert list(Path("/sys/fs/cgroup").glob(f"**/*{real.record.identity}*"))
    down(real.record.name)
    assert leftovers(real.record.identity, real.folder, inside) == []
    inside.close()
