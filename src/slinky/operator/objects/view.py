"""A cluster as those see it who make objects: a Controller and all that points at it, in one moment.

What must stay true: no Secret's content is in it, so nothing made from it can show one; of a Secret whose change has to reach a daemon by a restart there is a digest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from slinky.operator import names
from slinky.operator.kinds import Accounting, Controller, KeyReference, LoginSet, NodeSet, RestApi
from slinky.operator.trouble import Trouble

__all__ = ["AccountingView", "ClusterView", "accounting_address", "host_keys", "jwt_key", "slurm_key", "sssd_conf"]

SSSD_CONF = "sssd.conf"


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """One cluster."""

    controller: Controller
    accounting: Accounting | None = None
    nodesets: tuple[NodeSet, ...] = ()
    """All that exist, also those being deleted: their lines stay in slurm.conf until they are gone, as jobs name their partitions."""
    restapis: tuple[RestApi, ...] = ()
    loginsets: tuple[LoginSet, ...] = ()
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The data of each ConfigMap that the Controller refers to, by its name."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of each Secret that a daemon reads, by its name: what changes when its content does. One that is read later than its view is made restarts daemons: read them first."""
    plain_digests: Mapping[str, str] = field(default_factory=dict)
    """Of Secrets with an sssd.conf, as earlier operators showed them on pods: from them, words could be tried against a password in it."""
    runs_without_cgroups: bool | None = None
    """Whether the cluster's configuration has cgroups off now; asked only where NodeSets differ."""
    unread: Mapping[tuple[str, str], Trouble] = field(default_factory=dict)
    """Secrets and keys in them that are not there or cannot be read, and why. Nothing may be made from their digests, which are empty."""
    slurm_nodes: int = 0
    """How many node records Slurm has, as far as is known."""
    cluster_domain: str = "cluster.local"
    network_policies: bool = True
    """Whether NetworkPolicies are wanted."""
    service_monitors: bool = False
    """Whether the API server knows ServiceMonitors."""

    @property
    def name(self) -> str:
        return self.controller.metadata.name

    @property
    def namespace(self) -> str:
        return self.controller.metadata.namespace

    @property
    def controller_address(self) -> tuple[str, int]:
        """Where slurmctld is reached, from anywhere in the cluster."""
        spec = self.controller.spec
        if spec.external and spec.external_config is not None:
            return spec.external_config.host, spec.external_config.port or names.SLURMCTLD_PORT
        return f"{names.controller(self.name)}.{self.namespace}", names.SLURMCTLD_PORT

    @property
    def worker_domain(self) -> str:
        return names.worker_service_domain(self.name, self.namespace, self.cluster_domain)

    def digest(self, secret: str) -> str:
        """Of a Secret that was not seen yet: nothing."""
        return self.digests.get(secret, "")

    def need(self, *references: tuple[str, str]) -> None:
        """Raise Trouble where one of these Secrets, or the key in it, is not known: pods show its digest, and must not change for its absence."""
        for reference in references:
            if reference in self.unread:
                raise self.unread[reference]


@dataclass(frozen=True, kw_only=True)
class AccountingView:
    """A slurmdbd and the clusters it records."""

    accounting: Accounting
    controllers: tuple[Controller, ...] = ()
    """Those that refer to it."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """As in a `ClusterView`."""
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The data of the ConfigMap with JWKS, where one is named."""
    password_mark: str = ""
    """Another when the database's password may be, and not made from it: pods show it."""
    network_policies: bool = True

    def digest(self, secret: str) -> str:
        return self.digests.get(secret, "")

    @property
    def slurm_key(self) -> tuple[str, str] | None:
        """The Secret with slurm.key, and the key in it: as written, else the oldest Controller's; None while there is neither."""
        reference = self.accounting.spec.slurm_key_ref
        if reference is not None:
            return reference.name, reference.key or names.SLURM_KEY
        return slurm_key(self._first) if self._first else None

    @property
    def jwt_key(self) -> tuple[str, str] | None:
        reference = self.accounting.spec.jwt_reference
        if reference is not None:
            return reference.name, reference.key or names.JWT_KEY
        return jwt_key(self._first) if self._first else None

    @property
    def _first(self) -> Controller | None:
        """The oldest: one that comes later must not take slurmdbd away from it."""
        return min(self.controllers, key=lambda one: (str(one.metadata.creation_timestamp), one.metadata.name), default=None)


def slurm_key(controller: Controller) -> tuple[str, str]:
    """The Secret with slurm.key, and the key in it."""
    return _key(controller.spec.slurm_key_ref, names.slurm_key_secret(controller.metadata.name), names.SLURM_KEY)


def jwt_key(controller: Controller) -> tuple[str, str]:
    """The Secret with jwt.key, and the key in it."""
    return _key(controller.spec.jwt_reference, names.jwt_key_secret(controller.metadata.name), names.JWT_KEY)


def sssd_conf(reference: KeyReference | None) -> tuple[tuple[str, str], ...]:
    """The Secret with sssd.conf, and the key in it; nothing where none is named."""
    return ((reference.name, reference.key or SSSD_CONF),) if reference is not None and reference.name else ()


def host_keys(loginset: LoginSet) -> tuple[str, str]:
    """The Secret with the host keys of logins; the empty key stands for all of them."""
    return names.host_keys(loginset.metadata.name), ""


def _key(reference: KeyReference | None, secret: str, key: str) -> tuple[str, str]:
    if reference is None:
        return secret, key
    return reference.name, reference.key or key


def accounting_address(accounting: Accounting) -> tuple[str, int]:
    """Where slurmdbd is reached."""
    spec = accounting.spec
    if spec.external and spec.external_config is not None:
        return spec.external_config.host, spec.external_config.port or names.SLURMDBD_PORT
    return f"{names.accounting(accounting.metadata.name)}.{accounting.metadata.namespace}", names.SLURMDBD_PORT
