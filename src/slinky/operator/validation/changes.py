"""What may not be changed in an object that is there.

Pure. Comes in: the object as it was and as it is to be. The CRDs' rules say the same of what they can see; claims have no schema, so of them it is said only here.
"""

from collections.abc import Callable, Iterator
from typing import Any

from slinky.operator.kinds import Accounting, Controller, LoginSet, NodeSet, RestApi, Token
from slinky.operator.kinds.reading import Problem

__all__ = ["change_problems"]

Look = Callable[[Any], Any]

KEY = "cannot be changed: daemons that run would be locked out; change the content of the Secret instead"
MEMBER = "cannot be changed: delete the object, and make one for the other cluster"
STATE = "cannot be changed: the jobs' state would be lost; make a new Controller"
KEPT: dict[type, list[tuple[str, Look, str]]] = {
    Controller: [
        (
            "clusterName",
            lambda of: of.cluster_name,
            "cannot be changed: slurmctld and the accounting database know the cluster by it; make a new Controller",
        ),
        ("slurmKeyRef", lambda of: _key(of.spec.slurm_key_ref), KEY),
        ("jwtKeyRef", lambda of: _key(of.spec.jwt_reference), KEY),
        ("persistence.enabled", lambda of: of.spec.persistence.enabled, STATE),
        ("persistence.existingClaim", lambda of: of.spec.persistence.existing_claim, STATE),
    ],
    Accounting: [
        ("slurmKeyRef", lambda of: _key(of.spec.slurm_key_ref), KEY),
        ("jwtKeyRef", lambda of: _key(of.spec.jwt_reference), KEY),
    ],
    Token: [("jwtKeyRef", lambda of: _key(of.spec.jwt_reference), "cannot be changed: make a new Token")],
    RestApi: [("controllerRef", lambda of: of.spec.controller_ref.name, MEMBER)],
    LoginSet: [("controllerRef", lambda of: of.spec.controller_ref.name, MEMBER)],
    NodeSet: [
        ("controllerRef", lambda of: of.spec.controller_ref.name, MEMBER),
        (
            "volumeClaimTemplates",
            lambda of: of.spec.volume_claim_templates or [],
            "cannot be changed: the workers that run have their claims by it; make a new NodeSet, and delete this one when its jobs are done",
        ),
    ],
}


def change_problems(old: Any, new: Any) -> list[Problem]:
    """Both of one kind."""
    return list(_changed(old, new))


def _changed(old: Any, new: Any) -> Iterator[Problem]:
    for field, look, message in KEPT[type(new)]:
        if look(old) != look(new):
            yield Problem(f"spec.{field}", message)


def _key(reference: Any) -> tuple[str, str]:
    return (reference.name, reference.key) if reference else ("", "")
