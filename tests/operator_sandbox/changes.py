"""What may happen to a cluster's head while jobs run: its pod is killed, its files are edited, well or badly."""

from tests.operator_sandbox.cluster import Cluster

__all__ = ["files_are_edited", "gres_is_edited", "slurmctld_is_killed", "unreadable_files"]


def slurmctld_is_killed(cluster: Cluster) -> None:
    job = cluster.submit("sleep 18", "--job-name=survivor")
    cluster.until_job(job, "RUNNING")
    before = cluster.get("pod", "slurm-controller-0")["metadata"]["uid"]
    cluster.kubectl("delete", "pod", "slurm-controller-0", "--grace-period=0", "--force")
    cluster.until("slurmctld was back", lambda: cluster.get("pod", "slurm-controller-0")["metadata"]["uid"] != before and cluster.job(job))
    ended = cluster.until_job(job, "COMPLETED")
    assert (ended["Restarts"], ended["ExitCode"]) == ("0", "0:0")


def files_are_edited(cluster: Cluster) -> None:
    """Lines of slurm.conf, gres.conf and a prolog, each seen where it counts; neither slurmctld nor a worker is restarted."""
    job = cluster.submit("sleep 600", "--nodelist=compute-0", "--ntasks=1")
    cluster.until_job(job, "RUNNING")
    pods = [cluster.get("pod", name)["metadata"]["uid"] for name in ("slurm-controller-0", "compute-0")]
    extra = cluster.get("controller", "slurm")["spec"]["extraConf"]
    cluster.patch("controller", "slurm", {"spec": {"extraConf": f"{extra}MinJobAge=123\n"}})
    cluster.patch("configmap", "slurm-files", {"data": {"gres.conf": "Name=disk Count=2 Flags=CountOnly\n# seen\n"}})
    cluster.patch("configmap", "slurm-prolog", {"data": {"prolog.sh": "#!/bin/sh\ntouch /tmp/prolog-ran\n"}})
    cluster.until("slurmctld ran the new slurm.conf", lambda: cluster.configured("MinJobAge").startswith("123"), 180)
    cluster.until("gres.conf was on the workers", lambda: "# seen" in cluster.on("compute-1", "cat", "/run/slurm/conf/gres.conf"), 180)
    again = cluster.submit("true", "--nodelist=compute-1")
    cluster.until_job(again, "COMPLETED")
    cluster.until("the new prolog ran", lambda: not cluster.on("compute-1", "ls", "/tmp/prolog-ran").startswith("ls:"))
    cluster.until(
        "the Controller said that all is as written", lambda: cluster.condition("controller", "slurm", "Progressing")[0] == "False", 180
    )
    assert cluster.job(job)["JobState"] == "RUNNING"
    assert [cluster.get("pod", name)["metadata"]["uid"] for name in ("slurm-controller-0", "compute-0")] == pods
    cluster.login("scancel", str(job))


def unreadable_files(cluster: Cluster) -> None:
    """A word that Slurm does not know is refused at once. With a value that it cannot read slurmctld goes on with the one before, the Controller says so, and workers that begin meanwhile get what slurmctld runs."""
    job = cluster.submit("sleep 600", "--nodelist=compute-0", "--ntasks=1")
    cluster.until_job(job, "RUNNING")
    before = cluster.get("pod", "slurm-controller-0")
    extra = cluster.get("controller", "slurm")["spec"]["extraConf"]
    cluster.patch("controller", "slurm", {"spec": {"extraConf": f"{extra}SlurmctldDebug=loud\n"}})
    cluster.until("the Controller said so", lambda: cluster.condition("controller", "slurm", "Degraded")[0] == "True")
    assert cluster.job(job)["JobState"] == "RUNNING"
    cluster.until(
        "the files were those before", lambda: "SlurmctldDebug=loud" not in cluster.get("configmap", "slurm-config")["data"]["slurm.conf"]
    )
    cluster.until("all daemons ran them", lambda: cluster.condition("controller", "slurm", "Available")[0] == "True")
    assert cluster.condition("controller", "slurm", "Degraded")[0] == "True"
    cluster.kubectl("delete", "pod", "compute-1")
    cluster.until(
        "a new worker took a job", lambda: cluster.login("srun", "--immediate=2", "--nodelist=compute-1", "hostname").strip() == "compute-1"
    )
    cluster.patch("controller", "slurm", {"spec": {"extraConf": extra}})
    cluster.until("it was as written again", lambda: cluster.condition("controller", "slurm", "Degraded")[0] == "False")
    after = cluster.get("pod", "slurm-controller-0")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == before["status"]["containerStatuses"][0]["restartCount"]
    assert cluster.job(job)["JobState"] == "RUNNING"
    cluster.login("scancel", str(job))


def gres_is_edited(cluster: Cluster) -> None:
    """What gres.conf has and a NodeSet's `Gres=` counts reaches Slurm worker by worker, each when its jobs have ended."""
    cluster.until_idle("compute-0", "compute-1")
    job = cluster.submit("sleep 20", "--nodelist=compute-0", "--ntasks=1", "--gres=disk:1")
    cluster.until_job(job, "RUNNING")
    cluster.patch("configmap", "slurm-files", {"data": {"gres.conf": "Name=disk Count=5 Flags=CountOnly\n"}})
    cluster.patch("nodeset", "compute", {"spec": {"extraConf": "Gres=disk:5"}})

    def counted(node: str) -> set[str]:
        said = cluster.login("scontrol", "--oneliner", "show", "node", node)
        return {word for word in said.replace(",", " ").split() if word.startswith(("Gres=", "gres/disk="))}

    cluster.until("the free worker counted five", lambda: {"Gres=disk:5", "gres/disk=5"} <= counted("compute-1"))
    if cluster.job(job)["JobState"] == "RUNNING":
        assert {"Gres=disk:2", "gres/disk=2"} <= counted("compute-0")
    ended = cluster.until_job(job, "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED")
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0")
    cluster.until("the other one too", lambda: {"Gres=disk:5", "gres/disk=5"} <= counted("compute-0"))
    cluster.until_idle("compute-0", "compute-1")
    cluster.until_job(cluster.submit("true", "--nodes=2", "--ntasks=2", "--gres=disk:5"), "COMPLETED")
