"""What we count on a node is what kube-scheduler's NodeResourcesFit counts: the same nodes exactly, for pods of every shape, beside residents of every shape."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from slinky.bridge.ledger import Ledger
from slinky.kube import NODES, PODS, AlreadyExistsError, Client, NotFoundError, Reflector
from slinky.sandbox.handle import Sandbox
from tests.oracle.scheduler import Oracle, oracle
from tests.oracle.seeds import seed_for

pytestmark = pytest.mark.sandbox

LEFT_OUT = ("DefaultPreemption", "NodeResourcesBalancedAllocation", "ImageLocality")
SIZES = {
    "cpu": ("100m", "1", "2500m", "3", "4"),
    "memory": ("128Mi", "1Gi", "1500M", "4Gi"),
    "ephemeral-storage": ("1Gi", "2G", "5Gi"),
    "hugepages-2Mi": ("2Mi", "64Mi", "512Mi"),
    "example.com/fpga": ("1", "2"),
    "nvidia.com/gpu": ("1", "2", "4"),
}
WHOLE = ("hugepages-2Mi", "example.com/fpga", "nvidia.com/gpu")  # of these a limit is the request
AGAIN = 6
HEAVY = "heavy-runtime"


class Maker:
    def __init__(self, seed: int, prefix: str) -> None:
        self.dice, self.prefix, self.made = random.Random(seed), prefix, 0
        self.nodes: list[str] = []

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{self.prefix}-{kind}-{self.made}"

    def node(self) -> dict[str, Any]:
        name = self.name("node")
        self.nodes.append(name)
        most = {"cpu": ("4", "7900m", "16"), "memory": ("8Gi", "15Gi"), "pods": ("3", "5", "50"), "ephemeral-storage": ("10Gi", "20Gi")}
        rest = {"hugepages-2Mi": ("0", "512Mi", "1Gi"), "example.com/fpga": ("0", "2", "3"), "nvidia.com/gpu": ("4", "8")}
        has = {key: self.dice.choice(sizes) for key, sizes in most.items()}
        has |= {key: self.dice.choice(sizes) for key, sizes in rest.items() if self.dice.random() < 0.6}
        return {
            "metadata": {"name": name, "labels": {"type": "kwok"}, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "status": {"allocatable": has, "capacity": has},
        }

    def resources(self, names: tuple[str, ...] = tuple(SIZES), chance: float = 0.35) -> dict[str, Any]:
        asked = {name: self.dice.choice(SIZES[name]) for name in names if self.dice.random() < chance}
        if any(name.startswith("hugepages") for name in asked):
            asked.setdefault("memory", "128Mi")
        return {"requests": asked, "limits": {name: amount for name, amount in asked.items() if name in WHOLE}}

    def pod(self, namespace: str) -> dict[str, Any]:
        dice = self.dice
        boxes = [{"name": f"c{n}", "image": "none", "resources": self.resources()} for n in range(dice.randint(1, 2))]
        inits = [
            {
                "name": f"i{n}",
                "image": "none",
                "resources": self.resources(),
                **({"restartPolicy": "Always"} if dice.random() < 0.5 else {}),
            }
            for n in range(dice.choice((0, 0, 1, 2)))
        ]
        spec: dict[str, Any] = {"containers": boxes, "initContainers": inits, "terminationGracePeriodSeconds": 0}
        if dice.random() < 0.25:
            spec["runtimeClassName"] = HEAVY
        if dice.random() < 0.25:  # at pod level, which must be at least what the containers ask for
            spec |= {
                "containers": boxes[:1],
                "initContainers": [],
                "resources": {"requests": {"cpu": "5"}, "limits": {"cpu": "6", "memory": "6Gi"}},
            }
        return {"metadata": {"name": self.name("pod"), "namespace": namespace}, "spec": spec}


@asynccontextmanager
async def standing(kube: Client, maker: Maker, namespace: str) -> AsyncIterator[Ledger]:
    every, pods = Reflector(kube, NODES), Reflector(kube, PODS, fields="spec.nodeName!=")
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": HEAVY}, "handler": "heavy"}
    async with AsyncExitStack() as stack:
        for reflector in (every, pods):
            await stack.enter_async_context(reflector.running())
            await reflector.cache.wait_synced()
        with suppress(AlreadyExistsError):
            await kube.raw(
                "POST", "/apis/node.k8s.io/v1/runtimeclasses", body=runtime | {"overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}}}
            )
        for _ in range(12):
            await kube.create(NODES, maker.node())
        try:
            yield Ledger([pods.cache], every.cache)
        finally:
            await kube.raw("DELETE", f"/api/v1/namespaces/{namespace}/pods", body={"gracePeriodSeconds": 0})
            for name in maker.nodes:
                with suppress(NotFoundError):
                    await kube.delete(NODES, name)
            await kube.raw("DELETE", f"/apis/node.k8s.io/v1/runtimeclasses/{HEAVY}")


async def settle_residents(kube: Client, maker: Maker, namespace: str, count: int) -> None:
    """Pods on the nodes, wherever they fit or not; some of them in the middle of a resize."""
    for _ in range(count):
        document = maker.pod(namespace)
        document["spec"] |= {"nodeName": maker.dice.choice(maker.nodes), "tolerations": [{"operator": "Exists"}]}
        made = await kube.create(PODS.untyped, document, namespace)
        if maker.dice.random() < 0.3:
            given = {"cpu": maker.dice.choice(SIZES["cpu"]), "memory": maker.dice.choice(SIZES["memory"])}
            statuses = [
                {
                    "name": box["name"],
                    "image": "none",
                    "imageID": "",
                    "ready": True,
                    "restartCount": 0,
                    "resources": {"requests": given},
                    "allocatedResources": given,
                }
                for box in made["spec"]["containers"]
            ]
            await kube.patch(PODS, made["metadata"]["name"], {"status": {"containerStatuses": statuses}}, namespace, subresource="status")


async def differences(judge: Oracle, ledger: Ledger, maker: Maker, namespace: str, count: int) -> list[str]:
    """Those that stay when both are asked again: each follows the API server in its own time."""
    left, found = [maker.pod(namespace) for _ in range(count)], [""]
    for _ in range(AGAIN):
        verdicts = {key.name: verdict for key, verdict in (await judge.verdicts(left)).items()}
        found, again = [], []
        for document in left:
            verdict = verdicts[document["metadata"]["name"]]
            obstacles = {name: ledger.obstacle(name, [verdict.pod]) for name in maker.nodes}
            ours = {name for name, obstacle in obstacles.items() if not obstacle}
            theirs = verdict.nodes & set(maker.nodes)
            if ours != theirs:
                found.append(
                    f"ours {sorted(ours - theirs)}, theirs {sorted(theirs - ours)}: {[obstacles[name] for name in theirs - ours]}; {verdict.message}; {document}"
                )
                again.append(document)
        if not again:
            return []
        left = again
    return found


async def compared(sandbox: Sandbox, namespace: str, rounds: int, pods: int, seed: int = 0) -> None:
    seed = seed_for(seed)
    maker = Maker(seed, f"res{seed % 10_000}")
    async with oracle(sandbox, leave_out=LEFT_OUT) as judge, standing(judge.kube, maker, namespace) as ledger:
        for turn in range(rounds):
            await settle_residents(judge.kube, maker, namespace, 12)
            different = await differences(judge, ledger, maker, namespace, pods)
            assert not different, f"SLINKY_SEED={seed}, turn {turn}: {len(different)} of {pods} differ:\n" + "\n".join(different[:3])


async def test_a_node_has_room_where_kube_scheduler_says_so(sandbox: Sandbox, namespace: str) -> None:
    await compared(sandbox, namespace, rounds=2, pods=60, seed=1)


@pytest.mark.long
async def test_a_node_has_room_where_kube_scheduler_says_so_over_thousands_of_pods(sandbox: Sandbox, namespace: str) -> None:
    await compared(sandbox, namespace, rounds=15, pods=200)
