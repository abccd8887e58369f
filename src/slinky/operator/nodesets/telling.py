"""Events of a pass: one for each thing that happened, however many workers it happened to. Pure."""

from collections.abc import Iterator, Sequence

from slinky.operator.nodesets.acts import Act, DeletePod, Drain, Resume, in_order
from slinky.slurm import compress

__all__ = ["told_of"]

LONGEST = 400


def told_of(acts: Sequence[Act], created: Sequence[str], deleted: Sequence[DeletePod]) -> Iterator[tuple[str, str]]:
    """Reason and note of each."""
    for act in acts:
        match act:
            case Drain(names, reason):
                yield "Draining", f"Slurm nodes {_few(names)} take no new jobs: {reason}"
            case Resume(names):
                yield "Resumed", f"Slurm nodes {_few(names)} take jobs again"
            case _:
                pass
    if created:
        yield "ScalingUp", f"{len(created)} workers were created: {_few(created)}"
    by_reason: dict[str, list[str]] = {}
    for gone in deleted:
        by_reason.setdefault(gone.why.partition(":")[0], []).append(gone.name)
    for why, gone_names in by_reason.items():
        reason = {"update": "RollingUpdate", "scale-in": "ScalingDown"}.get(why, "WorkersDeleted")
        yield reason, f"{len(gone_names)} workers were deleted ({why}): {_few(gone_names)}"


def _few(names: Sequence[str]) -> str:
    written = compress(in_order(names))
    return written if len(written) <= LONGEST else f"{written[:LONGEST]}…"
