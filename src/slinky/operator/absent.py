"""What is said of a ConfigMap or Secret that an object names and that is not there, or cannot be read.

*Invariants:* such trouble changes nothing that runs: whatever would be made from the content waits.
"""

from slinky.kube import KubeError
from slinky.operator.trouble import Trouble

__all__ = ["not_there", "unreadable", "without_key"]

HELD = "What runs stays as it is, and no pod that needs it is made"


def not_there(kind: str, name: str, namespace: str) -> Trouble:
    """Its return is seen, so nobody has to ask again."""
    return Trouble(
        f"{kind}NotFound",
        f"there is no {kind} {name} in namespace {namespace}. {HELD}: make {kind} {name} again, or name another {kind} in the spec",
        lasting=True,
    )


def without_key(kind: str, name: str, key: str) -> Trouble:
    return Trouble(
        f"{kind}NotFound",
        f"{kind} {name} has no key {key}, or the key is empty. {HELD}: write the key, or name another {kind} in the spec",
        lasting=True,
    )


def unreadable(kind: str, name: str, namespace: str, error: KubeError) -> Trouble:
    """Refused, or not answered in time: asked again, ever more rarely."""
    return Trouble(
        f"{kind}Unreadable",
        f"{kind} {name} in namespace {namespace} cannot be read: {error}. {HELD}: let the operator's "
        f"ServiceAccount get {kind}s there; it asks again by itself",
    )
