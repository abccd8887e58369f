"""NetworkPolicies: who may speak to whom in a cluster. One for each kind of daemon; none where the operator's settings say so.

What must stay true: nothing that Slurm needs is cut. Within a cluster everyone may reach slurmctld, and workers and logins may reach each other on any port (srun, job steps and MPI choose theirs); only slurmdbd's way out is
narrow. Policies add up: what a site needs beyond these, it allows with one of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slinky.operator import labels, names
from slinky.operator.conf.slurmdbd import slurmdbd_conf
from slinky.operator.conf.text import pairs_of, parse
from slinky.operator.kinds import Accounting, LoginSet, RestApi, ServiceTemplate
from slinky.operator.objects.meta import Maker, metadata, resource
from slinky.operator.objects.view import AccountingView, ClusterView

__all__ = ["accounting_policy", "cluster_policies", "login_policy", "restapi_policy"]

Rule = dict[str, Any]


def cluster_policies(site: ClusterView) -> list[dict[str, Any]]:
    """Of slurmctld and of the workers; both belong to the Controller."""
    controller = site.controller
    ours = {labels.CLUSTER: site.name}
    workers = _policy(
        controller,
        names.worker_service(site.name),
        {**labels.cluster_workers(site.name), labels.COMPONENT: "worker"},
        labels.cluster_workers(site.name),
        [_from([_pods(ours)]), *([_to_port(names.SLURMD_PORT)] if controller.spec.external else [])],
    )
    if controller.spec.external:
        return [workers]
    open_to_all = controller.spec.metrics.enabled or _is_open(controller.spec.service) or _on_hosts(site)
    callers = None if open_to_all else [_pods(ours), _pods({labels.APP: "slurmdbd"})]
    head = _policy(
        controller,
        names.controller(site.name),
        {**labels.controller_labels(controller), labels.COMPONENT: "controller"},
        labels.controller_labels(controller),
        [_to_port(names.SLURMCTLD_PORT, callers)],
    )
    return [head, workers]


def restapi_policy(restapi: RestApi) -> dict[str, Any]:
    """Anyone may ask: who they are, their token says."""
    selector = labels.restapi_labels(restapi)
    name = names.restapi(restapi.metadata.name)
    return _policy(restapi, name, {**selector, labels.COMPONENT: "restapi"}, selector, [_to_port(names.SLURMRESTD_PORT)])


def login_policy(loginset: LoginSet, site: ClusterView) -> dict[str, Any]:
    """People come by ssh, on whichever port the pod names for it; of the cluster, job steps and slurmctld speak back to the commands that run here."""
    selector = labels.login_labels(loginset)
    rules = [_to_port("login"), _from([_pods({labels.CLUSTER: site.name})])]
    if site.controller.spec.external:
        rules = [{}]
    return _policy(loginset, loginset.metadata.name, {**selector, labels.COMPONENT: "login"}, selector, rules)


def accounting_policy(accounting: Accounting, site: AccountingView) -> dict[str, Any]:
    """In: daemons and commands of clusters in the namespace. Out: pods, and beyond them no more than it needs."""
    selector = labels.accounting_labels(accounting)
    daemons = {"key": labels.APP, "operator": "In", "values": ["login", "slurmctld", "slurmd", "slurmrestd"]}
    callers = None if _is_open(accounting.spec.service) else [{"podSelector": {"matchExpressions": [daemons]}}]
    return _policy(
        accounting,
        names.accounting(accounting.metadata.name),
        {**selector, labels.COMPONENT: "accounting"},
        selector,
        [_to_port(names.SLURMDBD_PORT, callers)],
        [{"to": [{"namespaceSelector": {}}]}, {"ports": list(_beyond(accounting, site))}],
    )


def _beyond(accounting: Accounting, site: AccountingView) -> Iterable[Rule]:
    """Ports that slurmdbd may reach beyond the cluster's pods: of names, of the database, of a slurmctld elsewhere. (Within, a policy sees the ports behind Services, which nobody told us.)"""
    yield from ({"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP"))
    written = pairs_of(parse(slurmdbd_conf(accounting, "")))
    ports = {int(pair.value) for pair in written if pair.key.lower() == "storageport" and pair.value.isdecimal()}
    elsewhere = (one.spec.external_config for one in site.controllers if one.spec.external)
    ports |= {where.port or names.SLURMCTLD_PORT for where in elsewhere if where}
    yield from ({"port": port, "protocol": "TCP"} for port in sorted(ports))


def _policy(
    maker: Maker, name: str, everyone: Mapping[str, str], pods: Mapping[str, str], into: Sequence[Rule], out: Sequence[Rule] | None = None
) -> dict[str, Any]:
    spec: dict[str, Any] = {"podSelector": {"matchLabels": dict(pods)}, "policyTypes": ["Ingress"], "ingress": list(into)}
    if out is not None:
        spec |= {"policyTypes": ["Ingress", "Egress"], "egress": list(out)}
    return resource("networking.k8s.io/v1", "NetworkPolicy", metadata(maker, name, everyone), spec=spec)


def _pods(matching: Mapping[str, str]) -> Rule:
    return {"podSelector": {"matchLabels": dict(matching)}}


def _from(callers: Sequence[Rule]) -> Rule:
    return {"from": list(callers)}


def _to_port(port: int | str, callers: Sequence[Rule] | None = None) -> Rule:
    return {"ports": [{"port": port, "protocol": "TCP"}], **(_from(callers) if callers is not None else {})}


def _is_open(service: ServiceTemplate) -> bool:
    """Whether it is offered beyond the cluster: then its callers are no pods."""
    return service.spec.get("type") in ("LoadBalancer", "NodePort") or bool(service.node_port)


def _on_hosts(site: ClusterView) -> bool:
    """Whether workers or logins are on their hosts' network: they call with the hosts' addresses."""
    pods = [*(one.spec.template for one in site.nodesets), *(one.spec.template for one in site.loginsets)]
    return any(template.spec.get("hostNetwork") for template in pods)
