"""Names in paths: one segment, whatever is in them."""

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.slurm import ConfigurationError, JobDescription
from slinky.slurm.descriptions import encode
from slinky.slurm.paths import escaped, segment


@given(st.text(min_size=1).filter(lambda name: name not in (".", "..")))
def test_a_name_stays_one_segment_and_is_what_it_was(name: str) -> None:
    written = segment(name, "node")
    assert not set(written) & set("/?#& \r\n;:")
    assert written.isascii()
    assert unquote(written) == name


@pytest.mark.parametrize("name", ["", ".", "..", "\udcff"])
def test_what_can_be_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"{name!r} is no name of a node")):
        segment(name, "node")


def test_a_path_of_the_callers_own_cannot_climb_or_break_out() -> None:
    assert escaped("/slurm/v0.0.45/node/n 1?x=y\r\nHost: z") == "/slurm/v0.0.45/node/n%201%3Fx=y%0D%0AHost:%20z"
    assert escaped("/slurm/v0.0.45/node/a%2Fb") == "/slurm/v0.0.45/node/a%2Fb"
    with pytest.raises(ConfigurationError, match=r"'\.\.'"):
        escaped("/slurm/v0.0.45/node/../job/3")


def test_what_is_no_text_is_said_before_it_is_sent() -> None:
    with pytest.raises(ConfigurationError, match="no text"):
        encode({"job": JobDescription(name="n\udcff")})
