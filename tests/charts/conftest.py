from collections.abc import AsyncIterator

import pytest

from slinky.sandbox.golang import build_program
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.progress import Progress
from tests.charts.foreign_kinds import foreign_crds
from tests.charts.helm import Helm
from tests.charts.serving import serve


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Built where the cache has it not."""
    with Progress() as progress:
        program = build_program("helm", progress)
    return Helm(program, tmp_path_factory.mktemp("helm"))


@pytest.fixture
async def foreign(sandbox: Sandbox) -> AsyncIterator[None]:
    """Others' kinds, for as long as this test lasts: who watches what the API server serves should not find them."""
    with Progress() as progress:
        found = foreign_crds(progress)
    await serve(sandbox, found)
    yield
    async with sandbox.kube() as kube:
        for crd in found:
            await kube.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}")
