"""The sandbox's Slurm: its files, its servers as parts, its accounts, and the words in which nodes are told to it.

Comes in: the shape and the addresses. Goes out: files below the head's /etc/slurm, `Part`s, and command lines and node descriptions that
`up` carries out. Nothing is started and nothing is sent from here.
"""

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from slinky.sandbox.keeper import Part
from slinky.sandbox.network import Addresses
from slinky.sandbox.shape import Shape
from slinky.slurm import NodeDescription, NodeGres

__all__ = ["ACCOUNTING", "DATABASE", "accounts", "external_node", "parts", "write_files"]

CLUSTER = "sandbox"

# GRES that run-time nodes bring must be known beforehand: gpu, and some more to try.
SLURM_CONF = """\
ClusterName={cluster}
SlurmctldHost=head({head})
SlurmUser=slurm
AuthType=auth/slurm
CredType=auth/slurm
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt_hs256.key
AuthInfo=ttl=900
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldPort=6817
SlurmdPort=6818
SlurmctldParameters=enable_configless,idle_on_node_suspend
LogTimeFormat=iso8601_ms,format_stderr
SlurmctldDebug=info
MetricsType=metrics/openmetrics
ReturnToService=2
MaxNodeCount=10000
MaxJobCount=200000
MinJobAge=60
KillWait=30
BatchStartTimeout=300
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
PropagateResourceLimits=NONE

SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu,mig,hca,slice
Licenses=matlab:20
SchedulerType=sched/backfill
# A pod should not wait for the next round: schedule at each submit, look deep into the queue.
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,default_queue_depth=10000,bf_interval=2,bf_max_job_test=5000,bf_continue,max_rpc_cnt=0
PreemptType=preempt/qos
PreemptMode=CANCEL
PriorityType=priority/multifactor
PriorityDecayHalfLife=1-0
PriorityCalcPeriod=1
PriorityWeightFairshare=100000
PriorityWeightAge=1000
PriorityWeightQOS=1000000
PriorityMaxAge=7-0

AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=6819
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
TrackWCKey=yes
AccountingStoreFlags=job_comment,job_extra

NodeSet=bridge Feature=bridge
NodeSet=compute Feature=compute
PartitionName=bridge Nodes=bridge Default=YES MaxTime=INFINITE State=UP
PartitionName=compute Nodes=compute MaxTime=INFINITE State=UP
PartitionName=all Nodes=ALL MaxTime=INFINITE State=UP
"""

SLURMDBD_CONF = """\
AuthType=auth/slurm
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt_hs256.key
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=6819
SlurmUser=slurm
StorageType=accounting_storage/mysql
TrackWCKey=yes
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
LogTimeFormat=iso8601_ms,format_stderr
DebugLevel=info
PidFile=/run/slurmdbd/slurmdbd.pid
CommitDelay=1
"""

MY_CNF = """\
[mysqld]
datadir=/var/lib/mysql
socket=/run/mysqld/mysqld.sock
pid-file=/run/mysqld/mysqld.pid
tmpdir=/run/mysqld
{network}
user=mysql
innodb_buffer_pool_size=128M
innodb_flush_log_at_trx_commit=0
innodb_lock_wait_timeout=900
innodb_snapshot_isolation=OFF
skip-log-bin

[client]
socket=/run/mysqld/mysqld.sock
"""

DATABASE = """
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
"""

# QoS: name → what makes it different. `high` takes from `low` and `normal`; `low` gives way to anyone.
QOS = {
    "normal": "Priority=100 Preempt=low",
    "low": "Priority=10",
    "high": "Priority=1000 Preempt=low,normal",
    "limited": "Priority=100 GrpJobs=2 MaxJobsPerUser=1",
}

# Account → (parent, shares, its people).
ACCOUNTING = {
    "research": ("root", 60, ()),
    "physics": ("research", 40, ("alice", "bob")),
    "biology": ("research", 20, ("carol",)),
    "ai": ("root", 40, ("alice", "dave")),
}


def write_files(etc: Path, var: Path, addresses: Addresses, *, reachable: bool = False) -> None:
    """Configuration, keys and state folders, owned by those who may read them."""
    home = etc / "slurm"
    home.mkdir(exist_ok=True)
    (home / "slurm.conf").write_text(SLURM_CONF.format(cluster=CLUSTER, head=addresses.head))
    (home / "slurmdbd.conf").write_text(SLURMDBD_CONF)
    (home / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    (home / "slurm.key").write_bytes(secrets.token_bytes(1024))
    (home / "jwt_hs256.key").write_bytes(secrets.token_bytes(32))
    for name in ("slurmdbd.conf", "slurm.key", "jwt_hs256.key"):
        (home / name).chmod(0o600)
        shutil.chown(home / name, SLURM_UID, SLURM_UID)
    for name in ("slurmctld", "slurmd"):
        folder = var / "lib/slurm" / name
        folder.mkdir(parents=True, exist_ok=True)
        shutil.chown(folder, SLURM_UID, SLURM_UID)
    (etc / "mysql").mkdir(exist_ok=True)
    tls = "ssl_ca=/etc/mysql/ca.crt\nssl_cert=/etc/mysql/mariadb.crt\nssl_key=/etc/mysql/mariadb.key"
    network = f"bind-address={addresses.head}\n{tls}" if reachable else "skip-networking"  # pods have databases there too
    (etc / "mysql/sandbox.cnf").write_text(MY_CNF.format(network=network))
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{addresses.head} head\n")
    for service in ("slurm", "mysql"):
        (var / "lib" / service).mkdir(parents=True, exist_ok=True)


SLURM_UID = 64030  # Debian's own for the user slurm, the same in every release

PREPARE = """
install -d -o slurm -g slurm /run/slurmctld /run/slurmdbd /run/slurm
install -d -o mysql -g mysql /run/mysqld
"""

MAKE_DATABASE = "mariadb-install-db --defaults-file=/etc/mysql/sandbox.cnf --user=mysql --skip-test-db --auth-root-authentication-method=socket >/dev/null"


def parts() -> dict[str, Part]:
    """By name; `up` starts them in this order, each when the one before it answers."""
    found = [
        Part("mariadb", "head", ["mariadbd", "--defaults-file=/etc/mysql/sandbox.cnf"], user="mysql"),
        Part("slurmdbd", "head", ["slurmdbd", "-D"], {"RUNTIME_DIRECTORY": "/run/slurmdbd"}, user="slurm"),
        Part("slurmctld", "head", ["slurmctld", "-D", "-R"], {"RUNTIME_DIRECTORY": "/run/slurmctld"}, user="slurm"),
        Part(
            "slurmrestd",
            "head",
            ["slurmrestd", "-a", "rest_auth/jwt", "-t", "20", "0.0.0.0:6820"],
            {"SLURM_JWT": "daemon"},
            user="slurmrest",
        ),
    ]
    return {part.name: part for part in found}


def accounts() -> Iterator[list[str]]:
    """The sacctmgr commands that make the accounts, people and QoS."""
    start = ["sacctmgr", "--immediate", "--quiet"]
    for name, settings in QOS.items():
        if name != "normal":
            yield [*start, "add", "qos", name, *(s for s in settings.split() if not s.startswith("Preempt="))]
    for name, settings in QOS.items():
        yield [*start, "modify", "qos", name, "set", *settings.split()]
    every = ",".join(QOS)
    for account, (parent, shares, _) in ACCOUNTING.items():
        yield [*start, "add", "account", account, f"Parent={parent}", f"Fairshare={shares}", f"QOS={every}", "DefaultQOS=normal"]
    for account, (_, _, people) in ACCOUNTING.items():
        for person in people:
            yield [*start, "add", "user", person, f"Account={account}"]
    yield [*start, "add", "user", "root", f"Account={','.join(ACCOUNTING)}"]
    yield [*start, "modify", "user", "root", "set", f"QOS={every}", "DefaultQOS=normal"]


def external_node(name: str, address: str, shape: Shape) -> NodeDescription:
    """A node without a slurmd. With sockets and cores told, Slurm schedules twice as fast as with bare CPUs. Each CPU is a core of one thread: with two threads a core Slurm gives away whole cores, and a pod of
    one CPU would cost two.
    """
    cpus = shape.node_cpus
    sockets = 2 if cpus % 2 == 0 else 1
    return NodeDescription(
        name=name,
        address=address,
        cpus=cpus,
        boards=1,
        sockets_per_board=sockets,
        cores_per_socket=cpus // sockets,
        threads_per_core=1,
        real_memory=shape.node_memory_mib,
        features=["bridge"],
        gres=[NodeGres(name="gpu", count=shape.node_gpus)] if shape.node_gpus else [],
    )
