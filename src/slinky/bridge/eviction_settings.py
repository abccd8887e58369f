"""The section `eviction` of the configuration file: what a pod's disruption budget counts for when its Slurm job ends."""

from typing import Annotated, Literal

from slinky.settings import Help, Section

__all__ = ["EvictionSettings"]


class EvictionSettings(Section, frozen=True):
    """Pods whose job ends in Slurm. Their own grace period is honoured always."""

    budgets: Annotated[
        Literal["override", "honour", "ignore"],
        Help(
            "PodDisruptionBudgets: `override` honours them for as long as Slurm's decision can wait, at least `budgetSeconds`, and then deletes the pod with an Event that names the budget; `honour` waits for as long as it takes, and Slurm may give the pod's resources to others meanwhile, who wait for it; `ignore` does not ask."
        ),
    ] = "override"
    budget_seconds: Annotated[float, Help("How long a budget that is in the way is honoured at least, under `override`.")] = 60.0
