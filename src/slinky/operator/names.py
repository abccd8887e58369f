"""What the operator's objects are called, where daemons listen and where their files stand.

Names go in, names come out. What must stay true: these are the original's names (other tools read them), and no two kinds make an object of one name.
"""

__all__ = [
    "DAEMON_GROUP",
    "DAEMON_USER",
    "ETC",
    "JWKS_FILE",
    "JWT_KEY",
    "NOBODY",
    "SLURMCTLD_PORT",
    "SLURMDBD_PORT",
    "SLURMD_PORT",
    "SLURMRESTD_PORT",
    "SLURM_KEY",
    "SSH_PORT",
    "STATE_CLAIM",
    "TOKEN_KEY",
    "accounting",
    "config",
    "controller",
    "controller_host",
    "controller_internal",
    "host_keys",
    "jwt_key_secret",
    "restapi",
    "slurm_key_secret",
    "ssh_config",
    "state_folder",
    "token_secret",
    "worker_budget",
    "worker_service",
    "worker_service_domain",
]

SLURMCTLD_PORT = 6817
SLURMD_PORT = 6818
SLURMDBD_PORT = 6819
SLURMRESTD_PORT = 6820
SSH_PORT = 22

DAEMON_USER = DAEMON_GROUP = 401  # slurm, as in the images
NOBODY = 65534

ETC = "/etc/slurm"
SLURM_KEY = "slurm.key"
JWT_KEY = "jwt.key"
JWKS_FILE = "jwks.json"
STATE_CLAIM = "statesave"
TOKEN_KEY = "SLURM_JWT"  # noqa: S105 - the name of a key, not its value


def controller(name: str) -> str:
    """slurmctld's StatefulSet and the Service by which the cluster reaches it."""
    return f"{name}-controller"


def controller_internal(name: str) -> str:
    """The headless Service that gives slurmctld's pod a name of its own."""
    return f"{name}-controller-internal"


def controller_host(name: str, number: int = 0) -> str:
    """The host name of slurmctld's pod."""
    return f"{controller(name)}-{number}"


def config(name: str) -> str:
    """The ConfigMap with slurm.conf."""
    return f"{name}-config"


def slurm_key_secret(name: str) -> str:
    """The Secret with slurm.key, where the operator made it."""
    return f"{name}-auth-slurm"


def jwt_key_secret(name: str) -> str:
    """The Secret with jwt.key, where the operator made it."""
    return f"{name}-auth-jwt"


def state_folder(cluster: str) -> str:
    return f"/var/spool/slurmctld/{cluster}"


def accounting(name: str) -> str:
    """slurmdbd's StatefulSet, its Service and the Secret with slurmdbd.conf."""
    return f"{name}-accounting"


def restapi(name: str) -> str:
    """slurmrestd's Deployment and Service."""
    return f"{name}-restapi"


def ssh_config(name: str) -> str:
    """The ConfigMap with sshd_config, of a LoginSet or a NodeSet."""
    return f"{name}-ssh-config"


def host_keys(name: str) -> str:
    """The Secret with a LoginSet's host keys."""
    return f"{name}-ssh-host-keys"


def worker_service(controller: str) -> str:
    """The headless Service under which all workers of a cluster resolve."""
    return f"slurm-workers-{controller}"


def worker_service_domain(controller: str, namespace: str, cluster_domain: str) -> str:
    """Where a worker's host name is looked for: the search domain of workers and logins."""
    return f"{worker_service(controller)}.{namespace}.svc.{cluster_domain}"


def worker_budget(controller: str) -> str:
    """The PodDisruptionBudget of all workers of a cluster that have jobs."""
    return f"slurm-workers-pdb-{controller}"


def token_secret(name: str, user: str) -> str:
    return f"{name}-jwt-{user}"
