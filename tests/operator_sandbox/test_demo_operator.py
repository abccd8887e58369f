"""`make demo-operator`: all of its story comes true, and nothing is left."""

import pytest

from slinky.sandbox.handle import names
from tests.conftest import Cli

pytestmark = [pytest.mark.sandbox, pytest.mark.long]


def test_the_story_comes_true(cli: Cli) -> None:
    done = cli("demo-operator", timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the sum of all ranks is 6") == 4
    assert "hello from hello" in done.stdout
    assert not [name for name in names() if name.startswith("demo-operator-")]
