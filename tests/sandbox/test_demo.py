"""`slinky demo` as its user meets it, where standard output is no terminal: what it shows comes true, and nothing of it is left."""

import re
import signal
from pathlib import Path

import pytest

from slinky.sandbox.cache import sandbox_folder
from slinky.sandbox.handle import Sandbox
from tests.conftest import CHECKOUT, Cli
from tests.sandbox.leftovers import HeldNamespace, leftovers
from tests.sandbox.processes import children, started

pytestmark = pytest.mark.sandbox


def test_it_shows_pods_a_gang_a_burst_and_their_ends_on_both_sides(cli: Cli) -> None:
    done = cli("demo", "--nodes", "20")
    said = done.stdout
    assert done.returncode == 0, done.stderr
    for file in ("pod.yaml", "gang.yaml", "fails.yaml"):
        assert f"kubectl apply -n team -f examples/{file}" in said
        for line in (CHECKOUT / "examples" / file).read_text().splitlines():
            assert line.startswith("#") or line in said
    assert re.search(r"pod gpu is job \d+ .*: Slurm gave it kwok-\d+, GPU \d; it runs there", said)
    assert re.search(r"pod urgent is job \d+ \(account physics, QoS high\)", said)
    assert re.search(r"│ \d+ +team/urgent +physics +high +RUNNING .*││ urgent +Running +kwok-\d+", said), "both queues, side by side"
    ranks = re.findall(r"\b(\d+) +ring-(\d+)-\w+ +(kwok-\d+) +(\d)\b", said.partition("→ ranks 0 to 7")[0])
    places = {int(rank): (node, gpu) for rank, index, node, gpu in ranks if rank == index}
    assert sorted(places) == list(range(16))
    assert len(set(places.values())) == 16
    assert len({node for node, _ in places.values()}) == 2
    assert re.search(r"200 pods in [\d.]+ s from the first create to the last bound, \d+ pods/s", said)
    assert re.search(r"from Slurm's start of a job to its pod bound: [\d.]+ s on average", said)
    accounted = said.partition("→ sacct knows them")[2]
    assert re.search(r"team/small .*CANCELLED by 0", accounted)
    assert re.search(r"team/fails .*FAILED +3:0", accounted)
    assert re.search(r"team/burst-\d+ ", accounted)
    assert "all of it came true" in said
    assert said.endswith("the sandbox is down: no process, mount or interface is left\n")


@pytest.mark.long
@pytest.mark.parametrize("how", ["told to end", "its bridge dies"])
def test_nothing_is_left_of_one_that_does_not_come_to_its_end(how: str) -> None:
    with started("demo", "--nodes", "8") as demo:
        name = f"demo-{demo.pid}"
        demo.until_said("1. Pods wait in Slurm's queue")
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
