"""Whether a NodeSet's slurmd is privileged, which is what making cgroups takes. Pure."""

from typing import Any

from slinky.operator.kinds import NodeSet
from slinky.operator.overlay import lay_over

__all__ = ["is_privileged"]

SLURMD = "slurmd"


def is_privileged(nodeset: NodeSet) -> bool:
    """As its pods are made: `spec.slurmd` is laid over our container, and `template.spec` over that."""
    ours = {"name": SLURMD, "securityContext": {"privileged": True}}
    context = "securityContext"
    told = {key: value for key, value in nodeset.spec.slurmd.items() if key == context}
    main = lay_over(ours, told) | {"name": SLURMD}
    written = nodeset.spec.template.spec.get("containers")
    made = lay_over({"containers": [main]}, {"containers": written} if written else {})["containers"]
    found: dict[str, Any] = next((one for one in made if one.get("name") == SLURMD), {})
    return (found.get(context) or {}).get("privileged") is True
