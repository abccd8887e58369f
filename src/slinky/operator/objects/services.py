"""Services: the one by which a daemon is reached, with an administrator's over it, and headless ones that only give names."""

from collections.abc import Mapping
from typing import Any

from slinky.operator.kinds import ServiceTemplate
from slinky.operator.objects.meta import Maker, metadata, resource
from slinky.operator.overlay import lay_over

__all__ = ["headless", "service"]


def service(
    maker: Maker, name: str, labels: Mapping[str, str], selector: Mapping[str, str], *, daemon: str, port: int, template: ServiceTemplate
) -> dict[str, Any]:
    """A daemon's Service. Where another port is asked for, the usual one stays too: slurm.conf names it."""
    asked = template.port or port
    ports = [_port(daemon, asked, daemon) | ({"nodePort": template.node_port} if template.node_port else {})]
    if asked != port and daemon in ("slurmctld", "slurmdbd"):
        ports.append(_port(f"{daemon}-usual", port, daemon))
    ours = {"type": "ClusterIP", "selector": dict(selector), "ports": ports}
    theirs = {key: value for key, value in template.spec.items() if key not in ("externalIPs", "selector")}
    return resource("v1", "Service", metadata(maker, name, labels, template.metadata), spec=lay_over(ours, theirs))


def headless(maker: Maker, name: str, labels: Mapping[str, str], selector: Mapping[str, str], *, daemon: str, port: int) -> dict[str, Any]:
    """Names for pods, also for those not ready: a daemon must be found to become ready."""
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": dict(selector),
        "ports": [_port(daemon, port, daemon)],
    }
    return resource("v1", "Service", metadata(maker, name, labels), spec=spec)


def _port(name: str, port: int, target: str) -> dict[str, Any]:
    return {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}
