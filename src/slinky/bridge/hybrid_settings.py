"""The section `hybrid` of the configuration: nodes with a slurmd beside the kubelet."""

from typing import Annotated, Literal

from slinky.settings import Help, Section

__all__ = ["HybridSettings"]


class HybridSettings(Section, frozen=True):
    """Nodes that have a slurmd beside the kubelet."""

    devices: Annotated[
        Literal["refuse", "allow"],
        Help(
            "Whether pods that ask for a GRES may use them. The kubelet chooses devices by itself and may choose one that Slurm gave to a job of its own: `allow` only where Slurm's own jobs use none of them there."
        ),
    ] = "refuse"
