"""Clusters and pods made at random, from a seed: nodes, namespaces, pods that have a node, and pods that look for one.

Comes in: a seed. Goes out: documents as the API server takes them. What must stay true: the same seed gives the same documents in the same order; every document is valid; words are few, so that selectors meet labels often and each kind of
term both accepts and refuses.
"""

import random
from typing import Any

__all__ = ["HELD", "Maker"]

Document = dict[str, Any]

HELD = "oracle.test/held"  # a finalizer: the pod stays, being deleted
HOSTNAME, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"
TOPOLOGIES = (HOSTNAME, ZONE, ZONE, RACK)
POD_LABELS: dict[str, tuple[str, ...]] = {"app": ("web", "db", "cache"), "tier": ("a", "b"), "rev": ("1", "2")}
NAMESPACE_LABELS: dict[str, tuple[str, ...]] = {"team": ("red", "blue"), "env": ("prod", "dev")}
TAINT_KEYS, TAINT_VALUES = ("gpu", "team", "spot"), ("", "red", "blue")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
ADDRESSES = ("", "0.0.0.0", "10.1.1.1", "10.1.1.2")
PROTOCOLS = ("TCP", "UDP", "SCTP")
PORTS = (8080, 9090, 7070)
RESTART_ALL = "RestartAllContainersOnContainerExits"
RESTARTING = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}],
}
TOLERANT = [{"operator": "Exists"}]


class Maker:
    """Its random numbers are its own. `restarting`: some pods restart all their containers, which servers before 1.36 do not take."""

    def __init__(self, seed: int, prefix: str = "or", *, restarting: bool = True) -> None:
        self.seed = seed
        self.restarting = restarting
        self.prefix = prefix
        self.namespaces = [f"{prefix}-ns{index}" for index in range(3)]
        self.nodes: list[str] = []
        self._random = random.Random(seed)
        self._taken: set[tuple[str, int, str]] = set()  # host ports of pods that were placed
        self._count = 0

    def maybe(self, chance: float) -> bool:
        return self._random.random() < chance

    def one(self, of: Any) -> Any:
        return self._random.choice(of)

    def some(self, of: Any, most: int, least: int = 0) -> list[Any]:
        number = self._random.randint(least, min(most, len(of)))
        return self._random.sample(list(of), number)

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{self.prefix}-{kind}{self._count}"

    # The cluster

    def namespace_labels(self) -> dict[str, str]:
        return {key: self.one(values) for key, values in NAMESPACE_LABELS.items() if self.maybe(0.6)}

    def node(self) -> Document:
        name = self._name("node")
        self.nodes.append(name)
        labels = {"type": "kwok", **self.node_labels(name)}
        return {
            "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"taints": self.taints(), "unschedulable": self.maybe(0.1)},
            "status": {
                "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "500"},
                "capacity": {"cpu": "64", "memory": "64Gi", "pods": "500"},
            },
        }

    def node_labels(self, name: str) -> dict[str, str]:
        found = {"disk": self.one(("ssd", "hdd"))}
        for key, value, chance in (
            (HOSTNAME, name if self.maybe(0.9) else "twin", 0.95),
            (ZONE, self.one(("z0", "z1", "z2")), 0.85),
            (RACK, self.one(("r0", "r1", "r2", "")), 0.7),
            ("gpus", self.one(("0", "4", "8", "008", "many", "9223372036854775808")), 0.6),
        ):
            if self.maybe(chance):
                found[key] = value
        return found

    def taints(self) -> list[Document]:
        keys = self.some(TAINT_KEYS, 2) if self.maybe(0.4) else []
        return [{"key": key, "value": self.one(TAINT_VALUES), "effect": self.one(EFFECTS)} for key in keys]

    def resident(self, schedulers: tuple[str, ...] = ("default-scheduler",)) -> Document:
        """A pod that has a node already; nobody evicts it."""
        document = self.pod("resident", 0.15)
        spec = document["spec"]
        if self.maybe(0.15):
            self._add_ports(spec)
        for word in ("nodeSelector", "topologySpreadConstraints"):
            spec.pop(word, None)
        affinity = spec.get("affinity", {})
        spec["affinity"] = {"podAntiAffinity": affinity["podAntiAffinity"]} if "podAntiAffinity" in affinity else {}
        spec |= {"nodeName": self.one(self.nodes), "tolerations": TOLERANT, "schedulerName": self.one(schedulers)}
        self._without_clashes(spec)
        return document

    def _without_clashes(self, spec: Document) -> None:
        """No port twice on a node: of two pods that have it, kube-scheduler forgets it when one goes (it keeps a set, and no count), and the kubelet would refuse the next."""
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            ports = container.get("ports", [])
            names = {id(port): (spec["nodeName"], port["hostPort"], port["protocol"]) for port in ports}
            container["ports"] = [port for port in ports if names[id(port)] not in self._taken]
            self._taken |= set(names.values())

    # Pods that look for a node

    def pod(self, kind: str = "pod", busy: float = 1.0) -> Document:
        """`busy` makes it ask for more or less."""
        labels = self.pod_labels()
        spec: Document = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "none"}]}
        affinity: Document = {}
        if self.maybe(0.25 * busy):
            spec["nodeSelector"] = self._some_of({"disk": ("ssd", "hdd"), ZONE: ("z0", "z1", "z2"), "gpus": ("4", "8")})
        if self.maybe(0.35 * busy):
            terms = [self.node_term() for _ in range(self._random.randint(1, 3))]
            affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        if self.maybe(0.3 * busy):
            affinity["podAffinity"] = self.pod_terms(labels, 2)
        if self.maybe(0.4 * busy):
            affinity["podAntiAffinity"] = self.pod_terms(labels, 2)
        if self.maybe(0.35 * busy):
            spec["topologySpreadConstraints"] = self.spread(labels)
        if self.maybe(0.3 * busy):
            self._add_ports(spec)
        if kind == "pod" and self.restarting and self.maybe(0.05):
            spec["containers"][0] |= RESTARTING
        if affinity:
            spec["affinity"] = affinity
        spec["tolerations"] = TOLERANT if self.maybe(0.4) else [self.toleration() for _ in range(self._random.randint(0, 3))]
        meta = {"name": self._name(kind), "namespace": self.one(self.namespaces), "labels": labels}
        return {"metadata": meta, "spec": spec}

    def narrow_pod(self) -> Document:
        """One that asks for one thing, so that nothing else hides what becomes of it; sometimes on nodes of ours alone, where each domain has pods."""
        document = self.pod(busy=0.0)
        meta, spec = document["metadata"], document["spec"]
        spec["tolerations"] = TOLERANT if self.maybe(0.6) else [self.toleration()]
        if self.maybe(0.6):
            ours = {"matchExpressions": [{"key": "disk", "operator": "Exists"}, self.node_requirement()][: 1 + self.maybe(0.3)]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ours]}}}
        affinity = spec.setdefault("affinity", {})
        kind = self._random.randrange(5)
        if kind < 2:
            spec["topologySpreadConstraints"] = [self._even(one) for one in self.spread(meta["labels"])]
        elif kind == 2:
            affinity[self.one(("podAffinity", "podAntiAffinity"))] = self.pod_terms(meta["labels"], 1)
        elif kind == 3:
            own = {"solo": meta["name"] if self.maybe(0.7) else "nobody"}
            meta["labels"] = {**meta["labels"], "solo": meta["name"]}
            terms = [
                {"topologyKey": self.one(TOPOLOGIES), "labelSelector": {"matchLabels": own}} for _ in range(self._random.randint(1, 2))
            ]
            affinity["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        else:
            self._add_ports(spec)
        return document

    def _even(self, constraint: Document) -> Document:
        """Often with a selector that means most pods, so that the emptiest domain has some."""
        if self.maybe(0.7):
            constraint.pop("matchLabelKeys", None)
            constraint["labelSelector"] = {"matchExpressions": [{"key": "app", "operator": self.one(("Exists", "NotIn"))}]}
            if constraint["labelSelector"]["matchExpressions"][0]["operator"] == "NotIn":
                constraint["labelSelector"]["matchExpressions"][0]["values"] = ["db"]
        return constraint

    def pod_labels(self) -> dict[str, str]:
        return {key: self.one(values) for key, values in POD_LABELS.items() if self.maybe(0.7)}

    def _some_of(self, words: dict[str, tuple[str, ...]]) -> dict[str, str]:
        return {key: self.one(words[key]) for key in self.some(words, 2, 1)}

    def node_term(self) -> Document:
        if self.maybe(0.1):
            return {}
        term: Document = {}
        if self.maybe(0.85):
            term["matchExpressions"] = [self.node_requirement() for _ in range(self._random.randint(1, 2))]
        if self.maybe(0.25) or not term:
            term["matchFields"] = [{"key": "metadata.name", "operator": self.one(("In", "NotIn")), "values": [self.one(self.nodes)]}]
        return term

    def node_requirement(self) -> Document:
        operator = self.one(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            return {"key": self.one(("gpus", "gpus", "disk")), "operator": operator, "values": [self.one(("0", "4", "7", "8", "x", "008"))]}
        key = self.one((ZONE, RACK, "disk", "gpus", "nobody-has-this"))
        values = {
            ZONE: ("z0", "z1", "z2"),
            RACK: ("r0", "r1", ""),
            "disk": ("ssd", "hdd"),
            "gpus": ("4", "8"),
            "nobody-has-this": ("x", "y"),
        }[key]
        return {"key": key, "operator": operator} | ({"values": self.some(values, 2, 1)} if operator in ("In", "NotIn") else {})

    def toleration(self) -> Document:
        found: Document = {}
        if self.maybe(0.7):
            found["effect"] = self.one(EFFECTS)
        if self.maybe(0.5):
            found["operator"] = "Exists"
            if self.maybe(0.8):
                found["key"] = self.one((*TAINT_KEYS, "node.kubernetes.io/unschedulable"))
            return found
        found |= {"key": self.one(TAINT_KEYS), "value": self.one(TAINT_VALUES)}
        return found | ({"operator": "Equal"} if self.maybe(0.5) else {})

    def label_selector(self, words: dict[str, tuple[str, ...]]) -> tuple[Document | None, set[str]]:
        """And the keys it speaks of."""
        if self.maybe(0.06):
            return None, set()
        if self.maybe(0.06):
            return {}, set()
        found: Document = {}
        keys: set[str] = set()
        if self.maybe(0.6):
            found["matchLabels"] = (
                self._some_of(words) if self.maybe(0.4) else {key: self.one(words[key]) for key in self.some(words, 1, 1)}
            )
            keys |= set(found["matchLabels"])
        if not found or self.maybe(0.3):
            key, operator = self.one(list(words)), self.one(("In", "NotIn", "Exists", "DoesNotExist"))
            keys.add(key)
            values = {"values": self.some(words[key], 2, 1)} if operator in ("In", "NotIn") else {}
            found["matchExpressions"] = [{"key": key, "operator": operator, **values}]
        return found, keys

    def pod_terms(self, labels: dict[str, str], most: int) -> Document:
        terms = [self.pod_term(labels) for _ in range(self._random.randint(1, most))]
        return {"requiredDuringSchedulingIgnoredDuringExecution": terms}

    def pod_term(self, labels: dict[str, str]) -> Document:
        selector, keys = self.label_selector(POD_LABELS)
        if selector is not None and self.maybe(0.2) and labels:  # often meant for the pod itself
            selector, keys = {"matchLabels": dict(labels)}, set(labels)
        term: Document = {"topologyKey": self.one(TOPOLOGIES)} | ({} if selector is None else {"labelSelector": selector})
        if self.maybe(0.25):
            term["namespaces"] = self.some(self.namespaces, 2, 1)
        if self.maybe(0.3):
            term["namespaceSelector"] = self.label_selector(NAMESPACE_LABELS)[0] or {}
        free = [key for key in POD_LABELS if key not in keys]
        if selector and free and self.maybe(0.2):
            term[self.one(("matchLabelKeys", "mismatchLabelKeys"))] = [self.one(free)]
        return term

    def spread(self, labels: dict[str, str]) -> list[Document]:
        found = []
        for key in self.some(sorted(set(TOPOLOGIES)), 2, 1):
            selector, keys = self.label_selector(POD_LABELS)
            if selector is not None and self.maybe(0.4) and labels:
                selector, keys = {"matchLabels": dict(labels)}, set(labels)
            how = "DoNotSchedule" if self.maybe(0.85) else "ScheduleAnyway"
            one: Document = {"topologyKey": key, "maxSkew": self._random.randint(1, 3), "whenUnsatisfiable": how}
            if selector is not None:
                one["labelSelector"] = selector
            if how == "DoNotSchedule" and self.maybe(0.3):
                one["minDomains"] = self._random.randint(1, 5)
            for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
                if self.maybe(0.6):
                    one[policy] = self.one(("Honor", "Ignore"))
            free = [name for name in POD_LABELS if name not in keys]
            if selector and free and self.maybe(0.3):
                one["matchLabelKeys"] = [self.one(free)]
            found.append(one)
        return found

    def _add_ports(self, spec: Document) -> None:
        ports = [
            {"containerPort": port, "hostPort": port, "protocol": self.one(PROTOCOLS), "hostIP": self.one(ADDRESSES)}
            for port in self.some(PORTS, 2, 1)
        ]
        where = self._random.random()
        if where < 0.7:
            spec["containers"][0]["ports"] = ports
        else:
            sidecar = {"restartPolicy": "Always"} if where < 0.9 else {}
            spec["initContainers"] = [{"name": "i", "image": "none", "ports": ports, **sidecar}]
