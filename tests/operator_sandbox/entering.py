"""People who log in: to workers, where Slurm says who may, and to several kinds of login nodes."""

from tests.operator_sandbox.cluster import Cluster

__all__ = ["a_worker_lets_in_who_has_a_job", "login_nodes_of_two_kinds", "ssh"]

SHELL = """
apiVersion: slinky.slurm.net/v1beta1
kind: NodeSet
metadata: {name: shell, namespace: slurm}
spec:
  controllerRef: {name: slurm}
  replicas: 1
  oversubscribeNode: true
  slurmd: {image: "sandbox/slurmd:1"}
  partition: {enabled: true}
  ssh:
    enabled: true
    extraSshdConfig: Banner /etc/debian_version
    sssdConfRef: {name: sssd, key: sssd.conf}
"""

SECOND = """
apiVersion: slinky.slurm.net/v1beta1
kind: LoginSet
metadata: {name: keepers, namespace: slurm}
spec:
  controllerRef: {name: slurm}
  replicas: 1
  login: {image: "sandbox/login:1"}
  rootSshAuthorizedKeys: KEY
"""

PASSWORD = "SSH_ASKPASS=/tmp/ask SSH_ASKPASS_REQUIRE=force"
QUIET = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"


def ssh(cluster: Cluster, where: str, command: str, options: str = "") -> str:
    """From the login node, with the password that LDAP knows; what is said on either stream, and the code at the end."""
    ask = r"printf '#!/bin/sh\necho an example\n' > /tmp/ask; chmod 755 /tmp/ask"
    return cluster.login("bash", "-c", f"{ask}; {PASSWORD} timeout 30 ssh {QUIET} {options} {where} '{command}' 2>&1; echo code $?")


def a_worker_lets_in_who_has_a_job(cluster: Cluster) -> None:
    """pam_slurm_adopt, on a NodeSet with `ssh`: the name resolves, who has no job is refused in Slurm's words, who has one is in it, until it ends."""
    cluster.kubectl("apply", "--filename=-", written=SHELL)
    cluster.until_idle("shell-0")
    assert cluster.login("getent", "hosts", "shell-0").split()[0] == cluster.get("pod", "shell-0")["status"]["podIP"]
    cluster.until("she is refused", lambda: "you have no active jobs on this node" in ssh(cluster, "erin@shell-0", "id -un"))
    job = cluster.submit("sleep 600", "--partition=shell", user="erin")
    cluster.until_job(job, "RUNNING")
    said = ssh(cluster, "erin@shell-0", "id -un; hostname; echo job $SLURM_JOB_ID").splitlines()
    assert said[-4:] == ["erin", "shell-0", f"job {job}", "code 0"], said
    others = cluster.submit("sleep 600", "--nodelist=compute-0", "--ntasks=1", user="erin")
    cluster.until_job(others, "RUNNING")
    cluster.login("scancel", str(job))
    cluster.until_job(job, "CANCELLED")
    cluster.until("she is refused again", lambda: "you have no active jobs on this node" in ssh(cluster, "erin@shell-0", "id -un"))
    cluster.login("scancel", str(others))
    _a_local_user_needs_a_job_too(cluster)
    cluster.kubectl("delete", "nodeset", "shell", "--wait=false")
    cluster.until("the NodeSet was gone", lambda: not cluster.get("nodeset", "shell"))


def _a_local_user_needs_a_job_too(cluster: Cluster) -> None:
    """A user of the worker's own /etc/passwd, for whom pam_localuser in common-account is sufficient. With a job that user gets in, and the session belongs to the job; root gets in without."""
    add = "id -u local || useradd --uid 4001 --create-home --shell /bin/bash local"
    for where in ("shell-0", "deploy/slurm-login"):
        cluster.kubectl("exec", where, "--", "sh", "-ec", f"{add}; echo 'local:an example' | chpasswd")
    assert "sufficient" in cluster.on("shell-0", "grep", "pam_localuser", "/etc/pam.d/common-account")
    said = ssh(cluster, "local@shell-0", "id -un")
    assert "you have no active jobs on this node" in said, said
    assert "code 0" not in said
    job = cluster.submit("sleep 600", "--partition=shell", user="local")
    cluster.until_job(job, "RUNNING")
    told = ssh(cluster, "local@shell-0", "id -un; echo job $SLURM_JOB_ID; scontrol listpids $SLURM_JOB_ID; echo mine $$").splitlines()
    assert told[0] == "local", told
    assert f"job {job}" in told
    extern = {line.split()[0] for line in told if line.split()[2:3] == ["extern"]}
    assert extern, f"no process of the job's extern step: {told}"
    cluster.login("scancel", str(job))
    cluster.until_job(job, "CANCELLED")
    cluster.until("local is refused again", lambda: "no active jobs" in ssh(cluster, "local@shell-0", "id -un"))
    key = "rm -f /tmp/root*; ssh-keygen -q -t ed25519 -N '' -f /tmp/root; cat /tmp/root.pub"
    public = cluster.login("sh", "-ec", key).strip()
    cluster.on("shell-0", "sh", "-ec", f"mkdir -p -m 700 /root/.ssh; echo '{public}' > /root/.ssh/authorized_keys")
    said = ssh(cluster, "root@shell-0", "id -un", "-i /tmp/root -o BatchMode=yes")
    assert said.split()[-3:] == ["root", "code", "0"], said


def login_nodes_of_two_kinds(cluster: Cluster) -> None:
    """A second LoginSet of the cluster is a host of its own: other host keys, root by key, and no LDAP."""
    cluster.login("bash", "-c", "rm -f /tmp/key*; ssh-keygen -q -t ed25519 -N '' -f /tmp/key")
    public = cluster.login("cat", "/tmp/key.pub").strip()
    cluster.kubectl("apply", "--filename=-", written=SECOND.replace("KEY", public))
    cluster.until("it was ready", lambda: cluster.condition("loginset", "keepers", "Ready")[0] == "True")
    said = ssh(cluster, "root@keepers", "id -un; sinfo --noheader --format=%R; id erin", "-i /tmp/key -o BatchMode=yes")
    assert said.splitlines()[0] == "root", said
    assert {"compute", "small"} <= set(said.split())
    assert "no such user" in said
    keys = [cluster.login("ssh-keyscan", "-t", "ed25519", host).split()[-1] for host in ("slurm-login", "keepers")]
    assert keys[0] != keys[1]
    cluster.kubectl("delete", "loginset", "keepers")
    cluster.until("its host keys went with it", lambda: not cluster.get("secret", "keepers-ssh-host-keys"))
