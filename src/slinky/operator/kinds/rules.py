"""What the API server itself refuses, beyond types: rules in CEL, each with the sentence that is read when it is broken.

Pure data, by the part they are about; `schema` puts them into the CRDs. What must stay true: each holds on a spec with fields left out (hence `?`), and `slinky.operator.validation` says the same where
the API server has no CRD of ours, or one of an earlier version.
"""

from slinky.operator.kinds.accounting import AccountingSpec
from slinky.operator.kinds.controller import ControllerSpec, Ha
from slinky.operator.kinds.loginset import LoginSetSpec
from slinky.operator.kinds.nodeset import NodeSetSpec, RollingUpdate, UpdateStrategy
from slinky.operator.kinds.restapi import RestApiSpec
from slinky.operator.kinds.token import TokenSpec

__all__ = ["CLUSTER_NAME_LENGTH", "HA", "LONGEST", "REQUIRED", "RULES", "SCHEDULED_UPDATE", "SCHEDULED_UPDATE_TYPE", "TAINTS", "Rule"]

Rule = tuple[str, str]

CLUSTER_NAME_LENGTH = 40
LONGEST = {"clusterName": CLUSTER_NAME_LENGTH, "name": 253, "namespace": 63, "key": 253, "host": 253, "existingClaim": 253, "lifetime": 64}
REQUIRED: dict[type, tuple[str, ...]] = {
    RestApiSpec: ("controllerRef",),
    NodeSetSpec: ("controllerRef",),
    LoginSetSpec: ("controllerRef",),
    TokenSpec: ("username",),
}

HA = (
    "ha.enabled is true, but several slurmctld at once are not supported; leave it false. Kubernetes"
    " restarts a slurmctld that ends, and it takes up its state from the persistent volume. On a"
    " Kubernetes node that is lost it does not: the Controller says NodeNotReady then, and the"
    " taint node.kubernetes.io/out-of-service on that node lets the pod move"
)
TAINTS = "taintKubeNodes is true, but it is not supported; taint the Kubernetes nodes yourself, and give template.spec.tolerations"
SCHEDULED_UPDATE_TYPE = "ScheduledUpdate"
SCHEDULED_UPDATE = (
    "ScheduledUpdate is not supported; use OnDelete and delete workers when it suits you, or RollingUpdate, which lets running jobs end"
)
EXTERNAL = "external is true, so externalConfig.host has to say where the daemon listens"


def _said(whose: str, path: str) -> str:
    """Whether a text stands there; an empty one is none."""
    parts = path.split(".")
    steps = [f"has({whose}.{'.'.join(parts[: length + 1])})" for length in range(len(parts))]
    return f"({' && '.join(steps)} && {whose}.{path} != '')"


def _same(*paths: str) -> str:
    """Whether the text at the first of `paths` that has one is as it was. Without `orValue`: the API server reckons what a rule may cost, and of that it cannot."""

    def first(whose: str, path: str) -> str:
        return " && ".join([*(f"!{_said(whose, each)}" for each in paths[: paths.index(path)]), _said(whose, path)])

    both = [f"({first('self', new)} && {first('oldSelf', old)} && self.{new} == oldSelf.{old})" for new in paths for old in paths]
    none = " && ".join(f"!{_said(whose, path)}" for whose in ("self", "oldSelf") for path in paths)
    return " || ".join([*both, f"({none})"])


def _kept(field: str, *older: str) -> Rule:
    """A reference that stays the one it was; by which of its names is all the same."""
    same = " && ".join(f"({_same(*(f'{name}.{part}' for name in (field, *older)))})" for part in ("name", "key"))
    return same, f"{field} cannot be changed: daemons that run would be locked out; change the content of the Secret instead"


def _controller_kept() -> Rule:
    return "self.controllerRef.name == oldSelf.controllerRef.name", (
        "controllerRef cannot be changed: delete the object, and make one for the other cluster"
    )


NAMED: Rule = (
    "has(self.controllerRef.name) && self.controllerRef.name != ''",
    "controllerRef.name is empty; it has to name a Controller in this namespace",
)
WHERE: Rule = ("!self.?external.orValue(false) || self.?externalConfig.?host.orValue('') != ''", EXTERNAL)

RULES: dict[type, tuple[Rule, ...]] = {
    ControllerSpec: (
        WHERE,
        (
            _same("clusterName"),
            "clusterName cannot be changed: slurmctld and the accounting database know the cluster by it; make a new Controller",
        ),
        _kept("slurmKeyRef"),
        _kept("jwtKeyRef", "jwtHs256KeyRef"),
        (
            "self.?persistence.?enabled.orValue(true) == oldSelf.?persistence.?enabled.orValue(true)",
            "persistence.enabled cannot be changed: the jobs' state would be lost; make a new Controller",
        ),
        (
            _same("persistence.existingClaim"),
            "persistence.existingClaim cannot be changed: the jobs' state would be lost; make a new Controller",
        ),
    ),
    Ha: (("!self.?enabled.orValue(false)", HA),),
    AccountingSpec: (
        WHERE,
        _kept("slurmKeyRef"),
        _kept("jwtKeyRef", "jwtHs256KeyRef"),
        (
            "self.?external.orValue(false) || self.?storageConfig.?host.orValue('') != ''",
            "storageConfig.host is missing; it has to say where the database is (or external be true, where slurmdbd runs elsewhere)",
        ),
    ),
    RestApiSpec: (NAMED, _controller_kept()),
    LoginSetSpec: (NAMED, _controller_kept()),
    NodeSetSpec: (NAMED, _controller_kept(), ("!self.?taintKubeNodes.orValue(false)", TAINTS)),
    UpdateStrategy: ((f"self.?type.orValue('') != '{SCHEDULED_UPDATE_TYPE}'", SCHEDULED_UPDATE),),
    RollingUpdate: (
        (
            "!has(self.maxUnavailable) || (type(self.maxUnavailable) == int ? self.maxUnavailable > 0 : string(self.maxUnavailable).matches('^[1-9][0-9]*%$'))",
            "maxUnavailable has to be a whole number of 1 or more, or a share such as 25%: with none, no worker could ever be replaced",
        ),
    ),
    TokenSpec: (
        ("self.username != ''", "username is empty; it has to name a Slurm user"),
        (
            "self.?jwtKeyRef.?name.orValue(self.?jwtHs256KeyRef.?name.orValue('')) != ''",
            "jwtKeyRef is missing; it has to name the Secret and the key with the cluster's jwt.key",
        ),
        _kept("jwtKeyRef", "jwtHs256KeyRef"),
        (
            "!has(self.lifetime) || self.lifetime.matches('^([0-9]+([.][0-9]+)?(h|m|s|ms|us|µs|ns))+$')",
            "lifetime has to be a time such as 15m, 1h30m or 24h",
        ),
    ),
}
