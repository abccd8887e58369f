"""The images, built by a real OCI builder from the same recipe that the sandbox reads: every stage, over a plain Debian where nothing is but what the recipe brings."""

import shutil

import pytest

from slinky import __version__
from slinky.sandbox.images import DAEMONS
from slinky.sandbox.progress import Progress
from slinky.sandbox.recipes import RECIPES, read_recipes
from tests.conftest import CHECKOUT
from tests.images.builder import Builder

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

STAGES = read_recipes([(CHECKOUT / RECIPES[0]).read_text()])


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Builder:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    folder = tmp_path_factory.mktemp("buildah")
    request.addfinalizer(lambda: shutil.rmtree(folder))  # gigabytes, also where a build fails
    with capture.global_and_fixture_disabled(), Progress() as progress:
        made = Builder(folder, CHECKOUT, progress)
        with progress.step("building the images with buildah") as step:
            made.start()
            for name in (*DAEMONS, "slinky"):
                step.say(name)
                made.build(name)
    return made


@pytest.mark.parametrize("name", [*DAEMONS, "slinky"])
def test_an_image_runs_what_the_sandbox_s_runs(builder: Builder, name: str) -> None:
    found, wanted = builder.about(name), STAGES[name]
    assert found["Entrypoint"] == list(wanted.entrypoint)
    assert found.get("User", "") == wanted.user
    environment = dict(each.split("=", 1) for each in found["Env"])
    assert environment.items() >= wanted.environment.items()
    assert not found.get("ExposedPorts")
    assert not found.get("Volumes")


# What each image has to say of itself, and in which words.
SAYS = {
    "slurmctld": ("slurmctld -V", "slurm-wlm 26.05"),
    "slurmd": ("slurmd -V", "slurm-wlm 26.05"),
    "slurmdbd": ("slurmdbd -V 2>&1 || true", "StorageType must be specified"),  # it reads its file first, whatever it is asked
    "slurmrestd": ("slurmrestd -d list", "data_parser/v0.0.45"),  # the interface that the client speaks
    "login": ("test -x /usr/sbin/sshd && test -x /usr/sbin/sssd && id slurm", "uid=401(slurm)"),
}


@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_is_there_with_its_entry_point_and_nothing_of_the_building(builder: Builder, name: str) -> None:
    init, _, program = STAGES[name].entrypoint
    command, said = SAYS[name]
    left = "ls -A /var/lib/apt/lists /etc/apt/sources.list.d /etc/apt/preferences.d /tmp"
    told = builder.says(name, ["sh", "-ec", f"test -x {init}; test -x {program}; {command}; echo; echo LEFT; {left}"])
    before, after = told.split("LEFT")
    assert said in before
    assert not {"borrowed.list", "borrowed", "build"} & set(after.split())
    assert "_Packages" not in after


def test_our_own_runs_as_its_user_and_has_the_checkout_s_source(builder: Builder) -> None:
    parts = ("bridge", "operator", "exporter")
    helps = "; ".join(f"slinky {part} --help" for part in parts)
    listing = "cd /opt/slinky/source; find slinky -name '*.py'"
    told = builder.says(
        "slinky", ["sh", "-ec", f"slinky --version; {helps}; test ! -w /opt/slinky; echo LISTED; {listing}"], user="65532:65532"
    )
    before, after = told.split("LISTED")
    assert f"version {__version__}" in before
    assert [before.count(f"Usage: slinky {part}") for part in parts] == [1, 1, 1]
    assert set(after.split()) == {str(path.relative_to(CHECKOUT / "src")) for path in (CHECKOUT / "src/slinky").rglob("*.py")}
