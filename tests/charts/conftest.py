import pytest

from slinky.sandbox.golang import build_program
from slinky.sandbox.progress import Progress
from tests.charts.helm import Helm


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Built where the cache has it not."""
    with Progress() as progress:
        program = build_program("helm", progress)
    return Helm(program, tmp_path_factory.mktemp("helm"))
