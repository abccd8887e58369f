"""A configuration's way to its daemons, turn by turn, on a cluster that is played: its kubelet, its slurmctld and its slurmds."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from slinky.kube import Key, Meta, Pod
from slinky.operator.configuration import MARK
from slinky.operator.reconfiguring import Reconfiguring
from slinky.slurm import Node, UnavailableError

KEY = Key("lab", "c")


class Played:
    """`files` is what the ConfigMap says, `pod_files` what slurmctld's pod has of it, `bad` what slurmctld cannot read."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.files = self.pod_files = self.running = "a"
        self.handed_out = "a"
        self.bad: set[str] = set()
        self.annotations: dict[str, str] = {}
        self.nodes: dict[str, Node] = {}
        self.status: dict[str, Any] = {"configuration": "", "since": 0}
        self.asked = 0
        self.problem = ""
        self.key = KEY
        self.slurm = self.kube = self.watches = self.pods = self.clusters = self
        self.told: list[Key] = []
        self.settings = SimpleNamespace(slurm=SimpleNamespace(reconfigure_seconds=180.0))
        self.reconfiguring = self.begin()

    def begin(self) -> Reconfiguring:
        """A process, with nothing in memory."""
        found = Reconfiguring(self, self.told.append)  # type: ignore[arg-type]
        found._now = lambda: self.now  # type: ignore[method-assign]
        return found

    # As the process sees it

    def may_act(self) -> bool:
        return True

    def get(self, *_: str) -> Any:
        return self

    @property
    def metadata(self) -> Meta:
        return Meta(name="c-controller-0", namespace="lab", uid="pod", annotations=self.annotations)

    async def conf(self) -> Any:
        return SimpleNamespace(values={"SlurmctldParameters": ["enable_configless", f"{MARK}={self.running}"]})

    async def look(self) -> None:
        if self.problem:
            raise UnavailableError(self.problem)

    async def reconfigure(self) -> None:
        self.asked += 1
        self.handed_out = self.pod_files
        if self.pod_files in self.bad:
            raise UnavailableError("Unspecified error", number=-1)
        self.running = self.pod_files
        for name, node in self.nodes.items():
            if node.is_responding:
                self.node(name, int(self.now))

    async def patch(self, _resource: Any, name: str, body: dict[str, Any], _namespace: str, **_: Any) -> Pod | None:
        if name == "c-controller-0":
            self.annotations = {**self.annotations, **body["metadata"]["annotations"]}
            self.pod_files = self.files
        else:
            self.status["configuration"] = body["status"]["configuration"]
        return None

    # What happens there

    def node(self, name: str, start: int, *states: str) -> None:
        said = {"name": name, "state": list(states) or ["IDLE"], "slurmd_start_time": {"set": True, "number": start}}
        self.nodes[name] = msgspec.convert(said, Node)

    async def until_done(self, wanted: str, seconds: float = 600.0) -> bool:
        self.files = wanted
        progress = self.reconfiguring.want(KEY, wanted, self.status["configuration"], self.status["since"])
        deadline = self.now + seconds
        while self.now < deadline:
            await self.reconfiguring._turn(KEY)
            if progress.done:
                self.status = {"configuration": progress.confirmed, "since": progress.oldest}
                return True
            self.now += 0.5
        return False


@pytest.fixture
async def played() -> Played:
    return Played()


async def test_a_cluster_without_workers_is_confirmed_without_a_request(played: Played) -> None:
    assert await played.until_done("a") and played.asked == 0


async def test_a_new_configuration_is_confirmed_when_all_have_begun_anew(played: Played) -> None:
    await played.until_done("a")
    played.node("w-0", 5)
    assert await played.until_done("b")
    assert (played.running, played.asked, played.status["configuration"]) == ("b", 1, "b")
    assert played.nodes["w-0"].slurmd_start_time == played.status["since"]


async def test_from_the_first_request_on_nothing_is_confirmed_until_it_is_seen(played: Played) -> None:
    await played.until_done("a")
    played.node("w-0", 5)
    played.bad = {"b"}
    assert not await played.until_done("b", 30)
    assert played.status["configuration"] == "" and played.reconfiguring.is_refused(KEY, "b")


async def test_going_back_after_a_refusal_asks_again_also_for_a_successor(played: Played) -> None:
    """What slurmctld hands out is what it refused, until it is asked again."""
    played.node("w-0", 5)
    await played.until_done("a")
    played.bad = {"b"}
    await played.until_done("b", 30)
    assert played.handed_out == "b"
    played.reconfiguring = played.begin()
    assert await played.until_done("a")
    assert played.handed_out == "a"


async def test_a_successor_believes_what_it_sees_and_asks_for_nothing(played: Played) -> None:
    played.node("w-0", 5)
    await played.until_done("a")
    asked = played.asked
    played.reconfiguring = played.begin()
    progress = played.reconfiguring.want(KEY, "a", played.status["configuration"], played.status["since"])
    assert not progress.done and played.reconfiguring.is_unseen(progress)
    assert await played.until_done("a") and played.asked == asked


async def test_a_slurmctld_that_runs_something_else_is_noticed_though_all_was_confirmed(played: Played) -> None:
    played.node("w-0", 5)
    await played.until_done("a")
    played.running = "x"  # somebody asked it while other files were there
    played.reconfiguring.look(KEY)
    await played.reconfiguring._turn(KEY)
    progress = played.reconfiguring.want(KEY, "a", "a", 0)
    assert not progress.done and progress.confirmed == ""
    assert await played.until_done("a") and played.running == "a"


async def test_a_slurmd_that_was_away_is_noticed_by_a_successor_too(played: Played) -> None:
    played.node("w-0", 5)
    played.node("w-1", 5, "IDLE", "NOT_RESPONDING")
    await played.until_done("b")
    assert played.nodes["w-1"].slurmd_start_time == 5
    played.reconfiguring = played.begin()
    await played.until_done("b")
    played.node("w-1", 5)  # it answers again
    played.now += 10
    played.reconfiguring.nodes_changed(KEY)
    await played.reconfiguring._turn(KEY)
    assert not played.reconfiguring.want(KEY, "b", "b", 0).done
    assert await played.until_done("b")
    assert played.nodes["w-1"].slurmd_start_time != 5


async def test_a_slurm_that_does_not_answer_is_left_alone(played: Played) -> None:
    played.problem = "nobody there"
    assert not await played.until_done("b", 30) and played.asked == 0
