"""Bad circumstances: each gets a sentence that says what to do."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from slinky.sandbox import debian, golang
from slinky.sandbox.errors import BuildError, PartDiedError, PartSlowError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.progress import Progress
from slinky.sandbox.versions import versions
from tests.conftest import CHECKOUT, Cli

pytestmark = pytest.mark.sandbox

SLINKY = str(CHECKOUT / ".venv/bin/slinky")


def test_not_root() -> None:
    """As another user, from a copy of the environment that this user may read."""
    code = "import os; os.setgid(65534); os.setuid(65534); from slinky.sandbox.up import check_circumstances as c; c()"
    done = subprocess.run(
        [str(CHECKOUT / ".venv/bin/python"), "-c", f"import slinky.sandbox.up; {code}"], capture_output=True, text=True, check=False
    )
    assert "the sandbox needs root" in done.stderr
    assert "run it with sudo" in done.stderr


def test_no_room_on_the_disk(tmp_path: Path) -> None:
    script = f"mount -t tmpfs -o size=50m tmpfs {tmp_path} && SLINKY_CACHE={tmp_path} exec {SLINKY} sandbox up --name full --nodes 1"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "make room, or set SLINKY_CACHE to a larger disk" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_registry_that_does_not_answer(tmp_path: Path, cli: Cli) -> None:
    """With an empty cache, no Go proxy and no Debian mirror, the first error is said, with the log's last lines."""
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{tmp_path}/sources.list"; Dir::Etc::sourceparts "-"; Dir::State::lists "{tmp_path}/lists"; Acquire::Retries "0";\n'
    )
    codename = next(
        line.split("=")[1].strip('"') for line in Path("/etc/os-release").read_text().splitlines() if line.startswith("VERSION_CODENAME")
    )
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] http://127.0.0.1:9/debian {codename} main\n")
    env = {
        "SLINKY_CACHE": str(tmp_path / "cache"),
        "APT_CONFIG": str(tmp_path / "apt.conf"),
        "GOPROXY": "http://127.0.0.1:9",
        "GOFLAGS": "",
    }
    done = cli("sandbox", "up", "--name", "offline", "--nodes", "1", env=env)
    assert done.returncode == 1
    assert "reachable?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_go_module_that_cannot_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLINKY_CACHE", str(tmp_path))
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:9")
    with Progress() as progress, pytest.raises(BuildError, match=r"the sources of kwok .* could not be fetched: is the registry reachable"):
        golang.build_program("kwok", progress)
    assert [path.suffix for path in (tmp_path / "programs").iterdir()] == [".lock"]


def test_a_suite_that_the_mirror_lacks(tmp_path: Path) -> None:
    wanted = type(versions().debian)(suite="nosuchsuite", script="trixie", slurm="25.11", broken={}, cures=[])
    log = tmp_path / "log"
    log.touch()
    (tmp_path / "root").mkdir()
    with pytest.raises(
        BuildError, match="Debian nosuchsuite could not be fetched from the mirror that apt uses: does it carry that suite"
    ) as caught:
        debian.bootstrap(tmp_path / "root", wanted, debian.find_mirror(log), log)
    assert "nosuchsuite" in str(caught.value).split("\n", 1)[1]


async def test_a_part_that_dies_is_told_with_the_end_of_its_log(sandbox: Sandbox) -> None:
    async def never() -> bool:
        return False

    await sandbox.link.signal("kube-scheduler", signal.SIGKILL)
    try:
        with pytest.raises(PartDiedError, match="kube-scheduler ended with -9 before it danced") as caught:
            await sandbox.until("kube-scheduler", "it danced", never)
        assert len(str(caught.value).splitlines()) > 3
        assert str(sandbox.log("kube-scheduler")) in str(caught.value)
    finally:
        await sandbox.restart("kube-scheduler")


async def test_a_part_that_stalls_is_told_too(sandbox: Sandbox) -> None:
    async with sandbox.kube() as kube:
        with pytest.raises(PartSlowError, match=r"kwok runs, but the moon was blue did not come true within 0.2 s \(GET /nosuch: 404"):
            await sandbox.until("kwok", "the moon was blue", lambda: kube.get("/nosuch"), 0.2)


@pytest.mark.long
def test_a_record_that_cannot_be_read_can_still_be_taken_down(cli: Cli) -> None:
    name = f"broken-{os.getpid()}"
    assert cli("sandbox", "up", "--name", name, "--nodes", "1").returncode == 0
    found = Sandbox.running(name)
    (found.folder / "record.json").write_text("{")
    assert "cannot be read" in cli("sandbox", "status", "--name", name).stderr
    assert "broken" in cli("sandbox", "list").stdout
    kept = (found.folder / "keeper.json").read_text()
    (found.folder / "keeper.json").write_text("")
    assert "end the sandbox's keeper by hand" in cli("sandbox", "down", "--name", name).stderr
    assert found.is_running
    (found.folder / "keeper.json").write_text(kept)
    assert cli("sandbox", "down", "--name", name).returncode == 0
    assert not found.is_running


@pytest.mark.long
def test_a_damaged_keeper_file_is_made_good_by_the_record(cli: Cli) -> None:
    name = f"damaged-{os.getpid()}"
    assert cli("sandbox", "up", "--name", name, "--nodes", "1").returncode == 0
    found = Sandbox.running(name)
    (found.folder / "keeper.json").write_text("")
    assert cli("sandbox", "down", "--name", name).returncode == 0
    assert not found.is_running
