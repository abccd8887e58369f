"""Slurm's words for resources, whatever they are, are read or left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.slurm.tres import GresKind, Resources, parse_gres, read_gres, read_gres_asked, read_tres


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", Resources()),
        ("cpu=4,mem=4G,node=2,billing=4", Resources(4, 4 * 1024**3, 2)),
        ("cpu=1,mem=512", Resources(1, 512 * 1024**2)),
        ("gres/gpu=2,gres/gpu:h100=2,gres/hca:x=1", Resources(gres={"gpu": 2, "hca": 1})),
        ("cpu=,mem=lots,=,x", Resources()),
    ],
)
def test_tres(text: str, found: Resources) -> None:
    assert read_tres(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("(null)", {}),
        ("gpu:8", {GresKind("gpu"): 8}),
        ("gpu", {GresKind("gpu"): 1}),
        ("gpu:h100:2(IDX:0,3-4),hca:1(IDX:0)", {GresKind("gpu", "h100"): 2, GresKind("hca"): 1}),
        ("mig:1g.10gb:7(S:0-1)", {GresKind("mig", "1g.10gb"): 7}),
        ("gpu:a:2,gpu:a:3", {GresKind("gpu", "a"): 5}),
        ("bandwidth:4K", {GresKind("bandwidth"): 4096}),
    ],
)
def test_gres(text: str, found: dict[GresKind, float]) -> None:
    assert read_gres(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, {}),
        ("gres/gpu:h100:2,gres/shard:3", {"gpu:h100": 2, "shard": 3}),
        ("gres/gpu=2", {"gpu": 2}),
        ("gres:gpu:a100:1,gres/gpu:a100:2", {"gpu:a100": 2}),  # as Slurm counts it
        ("gres/gpu:1,gres/gpu:1,gres/gpu:1,gres/gpu:1", {"gpu": 1}),
        ("cpu:4,mem=2G,license/matlab:1,gres/gpu", {"gpu": 1}),
        ("gres/gpu:h100", {"gpu:h100": 1}),
    ],
)
def test_gres_that_a_job_asks_for(text: str | None, found: dict[str, int]) -> None:
    assert read_gres_asked(text) == found


@given(st.text(alphabet="gres/pu:=,(0a)KM", max_size=40))
def test_nothing_is_raised(text: str) -> None:
    for read in (read_tres, read_gres, read_gres_asked):
        read(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu", {"gpu": 1}),
        ("gpu:0", {"gpu": 0}),
        ("gpu=4", {"gpu": 4}),
        ("gres/gpu:h100=4,hca:2", {"gpu:h100": 4, "hca": 2}),
        ("gres:gpu:h100:4,gres/gpu:a100:1", {"gpu:h100": 4, "gpu:a100": 1}),
        ("bandwidth:1K,scratch:2g", {"bandwidth": 1024, "scratch": 2 << 30}),
        ("mig:3g.40gb", {"mig:3g.40gb": 1}),
    ],
)
def test_what_a_user_asks_for_is_read_as_slurm_reads_it(text: str, found: dict[str, int]) -> None:
    assert parse_gres(text) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpu:1,gpu:1,gpu:1,gpu:1", "gpu is named twice, and Slurm would count only the last one"),
        ("gpu:1,gres/gpu:1", "gpu is named twice"),
        ("gpu:h100:1,gres:gpu:h100", "gpu:h100 is named twice"),
        ("gpu:2,gpu:h100:1", "gpu is named both with and without a type"),
        ("gpu:h100:1,gpu:2", "gpu is named both with and without a type"),
        ("none", "'none' is not a GRES"),
        ("gpu:", "'gpu:' is not a GRES"),
        ("gpu:2:3", "'gpu:2:3' is not a GRES"),
        ("gpu:1,", "'' is not a GRES"),
    ],
)
def test_what_slurm_would_not_count_as_it_is_written_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_gres(text)
