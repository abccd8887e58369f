"""Storage made at random, from a seed: classes, drivers, volumes, claims, nodes, and pods that use claims.

Comes in: a seed. Goes out: documents as the API server takes them. What must stay true: the same seed gives the same documents; every document is valid; words are few, so that claims and volumes meet often, and each rule both accepts and refuses.
"""

import random
from typing import Any

__all__ = ["StorageMaker"]

Document = dict[str, Any]

HOST, ZONE, OLD_ZONE, REGION = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
SIZES = ("1Gi", "2Gi", "5Gi", "10Gi", "1500Mi", "5e9")
MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany")
ZONES = ("z0", "z1", "z2")
NOBODY = "kubernetes.io/no-provisioner"


class StorageMaker:
    """Everything it names begins with `prefix`."""

    def __init__(self, seed: int, prefix: str) -> None:
        self.prefix = prefix
        self.namespace = f"{prefix}-ns"
        self._random = random.Random(seed)
        self._count = 0
        self.drivers = [f"{prefix}-{index}.example.com" for index in range(3)]
        self.classes: list[str] = []
        self.nodes: list[str] = []
        self.volumes: list[str] = []
        self.claims: list[str] = []

    def maybe(self, chance: float) -> bool:
        return self._random.random() < chance

    def one(self, of: Any) -> Any:
        return self._random.choice(of)

    def some(self, of: Any, most: int, least: int = 0) -> list[Any]:
        return self._random.sample(list(of), min(self._random.randint(least, most), len(of)))

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{self.prefix}-{kind}{self._count}"

    def node(self) -> Document:
        name = self._name("node")
        self.nodes.append(name)
        labels = {"type": "kwok", "disk": self.one(("ssd", "hdd")), "slots": self.one(("2", "4", "many"))}
        labels |= {HOST: name} if self.maybe(0.95) else {}
        labels |= {ZONE: self.one(ZONES)} if self.maybe(0.7) else {}
        labels |= {OLD_ZONE: self.one(ZONES)} if self.maybe(0.3) else {}
        labels |= {REGION: self.one(("r0", "r1"))} if self.maybe(0.3) else {}
        room = {"cpu": "64", "memory": "64Gi", "pods": "500"}
        meta = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        return {"metadata": meta, "status": {"allocatable": room, "capacity": room}}

    def csi_node(self, node: str) -> Document:
        drivers: list[Document] = []
        for driver in self.some(self.drivers, 3, 1):
            room = {"allocatable": {"count": self.one((0, 1, 3, 5, 8))}} if self.maybe(0.7) else {}
            drivers.append({"name": driver, "nodeID": node, "topologyKeys": [], **room})
        return {"metadata": {"name": node}, "spec": {"drivers": drivers}}

    def driver(self, name: str) -> Document:
        return {"metadata": {"name": name}, "spec": {"storageCapacity": self.maybe(0.6), "attachRequired": True}}

    def storage_class(self) -> Document:
        name = self._name("class")
        self.classes.append(name)
        found: Document = {"metadata": {"name": name}, "provisioner": self.one((NOBODY, *self.drivers)), "reclaimPolicy": "Retain"}
        found["volumeBindingMode"] = "Immediate" if self.maybe(0.08) else "WaitForFirstConsumer"
        if found["provisioner"] != NOBODY and self.maybe(0.4):
            terms = [self._topology() for _ in range(self._random.randint(1, 2))]
            found["allowedTopologies"] = [{"matchLabelExpressions": term} for term in _distinct(terms)]
        return found

    def _topology(self) -> list[Document]:
        words = {ZONE: ZONES, "disk": ("ssd", "hdd"), HOST: self.nodes}
        return [{"key": key, "values": self.some(words[key], 3, 1)} for key in self.some(words, 2, 1)]

    def capacity(self) -> Document:
        found: Document = {"metadata": {"name": self._name("capacity")}, "storageClassName": self.one(self.classes)}
        if self.maybe(0.9):
            found["nodeTopology"] = {} if self.maybe(0.2) else {"matchLabels": {"disk": self.one(("ssd", "hdd"))}}
            if self.maybe(0.3):
                found["nodeTopology"]["matchExpressions"] = [
                    {"key": ZONE, "operator": self.one(("In", "NotIn")), "values": self.some(ZONES, 2, 1)}
                ]
        found |= {"capacity": self.one(SIZES)} if self.maybe(0.9) else {}
        found |= {"maximumVolumeSize": self.one(SIZES)} if self.maybe(0.3) else {}
        return found

    def volume(self, claim: str = "") -> Document:
        """`claim` is the name of the one that it is for."""
        name = self._name("volume")
        self.volumes.append(name)
        meta: Document = {"name": name, "labels": {"speed": self.one(("fast", "slow"))}}
        if self.maybe(0.25):
            meta["labels"] |= {self.one((ZONE, OLD_ZONE, REGION)): self.one((*ZONES, "z0__z1", "r0", "z0____z1"))}
        spec: Document = {
            "capacity": {"storage": self.one(SIZES)},
            "accessModes": ["ReadWriteOncePod"] if self.maybe(0.1) else self.some(MODES, 3, 1) if self.maybe(0.4) else list(MODES),
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": self.one(self.classes),
            "volumeMode": "Block" if self.maybe(0.08) else "Filesystem",
            "csi": {"driver": self.one(self.drivers), "volumeHandle": self.one((name, name, "shared"))},
        }
        if self.maybe(0.75):
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [self._term() for _ in range(self._random.randint(1, 2))]}}
        if claim:
            spec["claimRef"] = {"namespace": self.namespace, "name": claim}
        return {"metadata": meta, "spec": spec}

    def _term(self) -> Document:
        return {"matchExpressions": [self._requirement() for _ in range(self._random.randint(1, 2))]}

    def _requirement(self) -> Document:
        match self.one(("In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")):
            case ("Gt" | "Lt") as operator:
                return {"key": "slots", "operator": operator, "values": [self.one(("1", "2", "3"))]}
            case ("Exists" | "DoesNotExist") as operator:
                return {"key": self.one((ZONE, REGION, "nobody-has-this")), "operator": operator}
            case operator:
                key = self.one((HOST, HOST, ZONE, "disk"))
                values = {HOST: self.nodes, ZONE: ZONES, "disk": ("ssd", "hdd")}[key]
                return {"key": key, "operator": operator, "values": self.some(values, 4 if key == HOST else 2, 1)}

    def claim(self, volume: Document | None = None) -> Document:
        """One that fits `volume`, and names it; or one that waits for whatever fits."""
        name = self._name("claim")
        self.claims.append(name)
        spec: Document = {
            "accessModes": ["ReadWriteOncePod"] if self.maybe(0.1) else self.some(MODES, 2, 1),
            "resources": {"requests": {"storage": self.one(SIZES[:3])}},
            "storageClassName": self.one(self.classes),
            "volumeMode": "Block" if self.maybe(0.1) else "Filesystem",
        }
        meta: Document = {"name": name, "annotations": {}}
        if volume is not None:
            there = volume["spec"]
            spec |= {
                "accessModes": there["accessModes"][:1],
                "storageClassName": there["storageClassName"],
                "volumeMode": there["volumeMode"],
            }
            spec |= {"resources": {"requests": there["capacity"]}, "volumeName": volume["metadata"]["name"]}
        elif self.maybe(0.03):
            spec["volumeName"] = "nobody-made-this"
        elif self.maybe(0.03):
            spec["storageClassName"] = self.one(("nobody-made-this", ""))
        elif self.maybe(0.12):
            meta["annotations"] = {"volume.kubernetes.io/selected-node": self.one(self.nodes)}
        if volume is None and self.maybe(0.2):
            spec["selector"] = {"matchLabels": {"speed": self.one(("fast", "slow"))}}
        return {"metadata": meta, "spec": spec}

    def attachment(self, driver_of: dict[str, str]) -> Document:
        volume = self.one(self.volumes)
        spec = {"attacher": driver_of[volume], "nodeName": self.one(self.nodes), "source": {"persistentVolumeName": volume}}
        return {"metadata": {"name": self._name("attachment")}, "spec": spec}

    def _disk(self) -> Document:
        """One that a pod names itself."""
        read_only, name = self.maybe(0.5), self.one(("d0", "d1"))
        return self.one(  # type: ignore[no-any-return]
            (
                {"awsElasticBlockStore": {"volumeID": name}},
                {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}},
                {"iscsi": {"targetPortal": "10.0.0.1", "iqn": f"iqn.2026-01.com.example:{name}", "lun": 0, "readOnly": read_only}},
                {"rbd": {"monitors": self.some(("m0", "m1", "m2"), 2, 1), "image": name, "readOnly": read_only}},
            )
        )

    def pod(self, node: str = "") -> Document:
        names = self.some(self.claims, self.one((1, 1, 1, 2, 3)), 1) + (["nobody-made-this"] if not node and self.maybe(0.03) else [])
        volumes = [{"name": f"v{index}", "persistentVolumeClaim": {"claimName": name}} for index, name in enumerate(names)]
        if self.maybe(0.15):
            volumes.append({"name": "disk", **self._disk()})
        spec: Document = {
            "containers": [{"name": "c", "image": "none"}],
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "volumes": volumes,
        }
        if node:
            spec["nodeName"] = node
        return {"metadata": {"name": self._name("pod"), "namespace": self.namespace}, "spec": spec}


def _distinct(terms: list[list[Document]]) -> list[list[Document]]:
    """The API server takes no term twice, in whichever order it is written."""
    known = {frozenset((each["key"], frozenset(each["values"])) for each in term): term for term in terms}
    return list(known.values())
