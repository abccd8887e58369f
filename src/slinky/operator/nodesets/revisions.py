"""Earlier templates of a NodeSet, kept as ControllerRevisions where revisionHistoryLimit asks for them: what a worker was made of can be looked up, and taken back.

In: the ControllerRevisions there are, and the revisions that pods have. Out: the one to create, and those to delete.
What must stay true: the present revision and those of living pods are never deleted; with a limit of 0 nothing is kept and nobody asks for any.
"""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from slinky.kube import KubeObject, Resource
from slinky.operator.kinds import NodeSet
from slinky.operator.labels import nodeset_selector
from slinky.operator.nodesets import marks
from slinky.operator.objects.meta import owner

__all__ = ["REVISIONS", "Revision", "new_revision", "surplus_revisions"]

MADE_OF = ("slurmd", "template", "extraConf", "logfile", "ssh", "ordinalPadding", "oversubscribeNode", "scalingMode")


class Revision(KubeObject, frozen=True):
    """A ControllerRevision, as far as it is read."""

    revision: int = 0


REVISIONS = Resource("apps", "v1", "controllerrevisions", Revision)


def new_revision(nodeset: NodeSet, revision: str, held: Collection[Revision]) -> dict[str, Any] | None:
    """Of the present template, where it is not the newest already."""
    newest = max(held, key=lambda one: one.revision, default=None)
    if newest is not None and _digest(newest) == revision:
        return None
    number = newest.revision + 1 if newest else 1
    spec = msgspec.to_builtins(nodeset.spec)
    meta = {
        "name": f"{nodeset.metadata.name}-{revision}-{number}",
        "namespace": nodeset.metadata.namespace,
        "labels": {**nodeset_selector(nodeset), marks.REVISION: revision},
        "ownerReferences": [owner(nodeset)],
    }
    data = {"spec": {name: spec[name] for name in MADE_OF if name in spec}}
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta, "revision": number, "data": data}


def surplus_revisions(held: Iterable[Revision], present: str, in_use: Collection[str], limit: int) -> list[Revision]:
    """The oldest, beyond `limit` of those that no pod has."""
    old = sorted((one for one in held if _digest(one) != present and _digest(one) not in in_use), key=lambda one: one.revision)
    return old[: max(0, len(old) - limit)]


def _digest(found: Revision) -> str:
    return found.metadata.labels.get(marks.REVISION, "")
