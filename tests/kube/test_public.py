"""The package's face: what stands there is importable, sorted and meant."""

import slinky.kube


def test_all_names_are_there_and_sorted() -> None:
    assert all(hasattr(slinky.kube, name) for name in slinky.kube.__all__)
    assert len(set(slinky.kube.__all__)) == len(slinky.kube.__all__)


def test_nothing_public_is_left_out() -> None:
    public = {
        name
        for name, value in vars(slinky.kube).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("slinky.kube")
    }
    assert public <= set(slinky.kube.__all__)
