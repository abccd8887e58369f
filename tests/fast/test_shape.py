"""What a user may ask of `up`, and what is said to what cannot be."""

import pytest

from slinky.sandbox.errors import UsageError
from slinky.sandbox.shape import Shape, parse_memory


@pytest.mark.parametrize(
    ("text", "mib"), [("256G", 262144), ("512M", 512), ("1.5T", 1572864), ("2Gi", 2048), ("1048576", 1), ("4 GB", 4096)]
)
def test_memory(text: str, mib: int) -> None:
    assert parse_memory(text) == mib


@pytest.mark.parametrize("text", ["", "lots", "-1G", "12X", "256"])
def test_memory_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_memory(text)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (Shape(nodes=-1), "--nodes -1: 0 to"),
        (Shape(real_nodes=4), "--real-nodes 4: 0 to 3"),
        (Shape(addons=("kueue",)), "--with kueue: unknown; there is cert-manager, keda, jobset, lws, podgroup"),
        (Shape(kubernetes="1.20"), "Kubernetes 1.20 is not pinned; there is 1.35, 1.36, 1.37"),
        (Shape(slurmd=True), "--slurmd starts a slurmd on each real node"),
        (Shape(node_cpus=0), "--node-cpus"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_what_would_do(shape: Shape, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", "\\(")):
        shape.checked()
