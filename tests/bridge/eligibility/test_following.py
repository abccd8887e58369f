"""Whatever happened before, a judge that saw it all says the same as one that begins now."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slinky.bridge.eligibility import node_masks, node_verdicts, residents
from slinky.bridge.foreign import shrunk
from slinky.kube import Key, Namespace, Node, Pod
from tests.bridge.eligibility.things import World
from tests.oracle.worlds import Maker

FEW = 3
CHANGES = ("node", "relabel", "lose node", "namespace", "come", "come", "own", "go", "dying", "relabel pod", "assume", "withdraw", "over")


class Story:
    """A cluster to which things happen."""

    def __init__(self, seed: int) -> None:
        self.maker = Maker(seed)
        self.world = World()
        self.assumed: list[Pod] = []
        for name in self.maker.namespaces:
            self.happen("namespace", name)
        for _ in range(6):
            self.happen("node")
        for _ in range(12):
            self.happen("come")

    def pod(self, *, placed: bool) -> Pod:
        document = self.maker.resident() if placed else self.maker.pod()
        document["metadata"]["uid"] = document["metadata"]["name"]
        return msgspec.convert(document, Pod)

    def happen(self, what: str, name: str = "") -> None:
        maker, world = self.maker, self.world
        there = world.foreign.list()
        match what:
            case "node":
                world.nodes.put(msgspec.convert(maker.node(), Node))
            case "relabel" if maker.nodes:
                name = maker.one(maker.nodes)
                document = {"metadata": {"name": name, "labels": maker.node_labels(name)}, "spec": {"taints": maker.taints()}}
                world.nodes.put(msgspec.convert(document, Node))
            case "lose node" if len(maker.nodes) > 2:
                world.nodes.remove(Key("", maker.nodes.pop()))
            case "namespace":
                document = {"metadata": {"name": name or maker.one(maker.namespaces), "labels": maker.namespace_labels()}}
                world.namespaces.put(msgspec.convert(document, Namespace))
            case "come":
                world.foreign.put(shrunk(self.pod(placed=True)))
            case "own":
                world.own.put(self.pod(placed=True))
            case "go" if there:
                world.foreign.remove(maker.one(there).key)
            case "dying" | "relabel pod" | "over" if there:
                self._change(maker.one(there), what)
            case "assume":
                pod = self.pod(placed=False)
                world.judge.assume(pod, maker.one(maker.nodes))
                self.assumed.append(pod)
            case "withdraw" if self.assumed:
                world.judge.withdraw(self.assumed.pop())

    def _change(self, pod: Pod, what: str) -> None:
        document = msgspec.to_builtins(pod)
        if what == "dying":
            document["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
        elif what == "over":
            document["status"] = {"phase": "Failed"}
        else:
            document["metadata"]["labels"] = self.maker.pod_labels()
        self.world.foreign.put(msgspec.convert(document, Pod))

    def compare(self) -> None:
        for pod in self.assumed:
            self.world.judge.withdraw(pod)
        self.assumed.clear()
        fresh = self.world.fresh()
        for _ in range(10):
            pod = self.pod(placed=False)
            assert self.world.judge.refusals(pod).keys() == fresh.refusals(pod).keys(), (self.maker.seed, pod)
            answer = self.world.judge.answer(pod)
            assert answer.refused == fresh.refusals(pod), "what is kept for all pods that ask the same is the same"
            assert answer.by_pods == (len(fresh.refusals(pod)) > len(fresh.node_refusals(pod)))
            assert self.world.judge.answer(pod) == answer, "and is not judged again"
            self.world.accepted(pod)


@pytest.mark.parametrize("tallies", [residents.MOST_TALLIES, FEW])
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), happens=st.lists(st.sampled_from(CHANGES), max_size=25))
def test_a_judge_that_followed_every_change_agrees_with_a_fresh_one(tallies: int, seed: int, happens: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(residents, "MOST_TALLIES", tallies)  # also where tallies are dropped and counted again
        if tallies == FEW:  # and where changes of nodes, and indexes of them, are forgotten
            patch.setattr(node_verdicts, "MOST_EVENTS", 2)
            patch.setattr(node_masks, "MOST_INDEXES", 1)
            patch.setattr(residents, "MOST_INDEXES", 2)
            patch.setattr(residents, "MOST_CHANGES", 2)
        story = Story(seed)
        for what in happens:
            story.happen(what)
            if random.Random(f"{seed}{what}").random() < 0.3:
                pod = story.pod(placed=False)
                story.world.judge.refusals(pod)  # so that there are tallies to follow
                story.world.judge.answer(pod)  # and answers
        story.compare()
