"""`slinky demo` as its user meets it, where standard output is no terminal: what it shows comes true, and nothing of it is left but the picture."""

import re
import signal
from pathlib import Path
from xml.etree import ElementTree

import pytest

from slinky.sandbox.cache import sandbox_folder
from slinky.sandbox.handle import Sandbox, names
from tests.conftest import CHECKOUT, Cli
from tests.sandbox.leftovers import HeldNamespace, leftovers
from tests.sandbox.processes import children, started

pytestmark = [pytest.mark.sandbox, pytest.mark.long]  # minutes by itself


def test_the_story_comes_true_and_becomes_a_picture(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "timeline.svg"
    done = cli("demo", "--picture", str(picture), timeout=900)
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    for file in ("ring.yaml", "low.yaml", "urgent.yaml"):
        assert f"$ kubectl apply -n team -f examples/demo/{file}" in said
    first, second = re.findall(r"job \d+ has (node-\d) and (node-\d); ranks 0 and 1", said)[0]  # in Slurm's order: who was registered first
    assert [f"rank {rank} of 4 on {(first, second)[rank // 2]}" in said for rank in range(4)] == [True] * 4
    assert re.search(r"job-dependency: job \d+: Slurm says Dependency .*afterok:\d+", said)
    chain = re.search(r"published by job (\d+): model of job (\d+) from data of job (\d+)", said)
    assert chain
    assert f"$ sbatch --dependency=afterok:{chain[2]} examples/demo/publish.sh" in said
    assert "pod-node-not-free" in said
    assert len(re.findall(r"wrote its checkpoint and ended by itself; [\d.]+ s later the urgent (?:pod|job) began", said)) == 2
    assert len(re.findall(r"team/low-\S+ +low +PREEMPTED", said)) == 2
    assert f"the picture of it: {picture}\n" in said
    assert said.endswith("the sandbox is down: no process, mount or interface is left\n")
    drawn = ElementTree.fromstring(picture.read_text())
    links = [
        element.get("class")
        for element in drawn.iter()
        if element.get("d", "").startswith("M") and "title" in "".join(child.tag for child in element)
    ]
    assert sorted(filter(None, links)) == ["link afterok"] * 2 + ["link preempts"] * 2
    assert str(CHECKOUT) not in picture.read_text()
    assert not [name for name in names() if name.startswith("demo-")]


@pytest.mark.parametrize("how", ["told to end", "its bridge dies"])
def test_nothing_is_left_of_one_that_does_not_come_to_its_end(how: str, tmp_path: Path) -> None:
    with started("demo", "--picture", str(tmp_path / "timeline.svg")) as demo:
        name = f"demo-{demo.pid}"
        demo.until_said("$ kubectl apply -n team -f examples/demo/ring.yaml")
        sandbox = Sandbox.running(name)
        inside = HeldNamespace(sandbox.record.keeper.pid)
        processes = children(demo.pid)
        assert sum(" -m slinky bridge " in command for command in processes.values()) == 2
        if how == "told to end":
            demo.send(signal.SIGTERM)
        else:
            demo.send(signal.SIGKILL, next(pid for pid, command in processes.items() if "bridge run" in command))
        assert demo.wait() == 1
        if how == "its bridge dies":
            assert "slinky: slinky bridge run ended with -9" in demo.said
            assert "Traceback" not in demo.said
        assert not sandbox_folder(name).exists()
        assert leftovers(sandbox.record.identity, sandbox.folder, inside) == []
        inside.close()
        assert not [command for pid, command in processes.items() if Path(f"/proc/{pid}").exists()]
