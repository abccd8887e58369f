"""What an administrator wrote of a pod, a container or a Service, laid over what the operator makes.

Two mappings go in, one comes out; neither is changed. What must stay true:

- a value of the administrator's wins, `false`, 0, "" and [] too; null takes ours away;
- mappings are laid over each other, and lists whose items have a name (or a mount path, a port …) item by item, as in Kubernetes' strategic merge; `$patch: delete` in an item takes ours away;
- of things of which there can be only one (a probe's handler, a volume's source, a variable's value) the administrator's takes the place of ours, whichever ours was;
- a few lists say "these too": arguments, search domains, tolerations, what a pod keeps away from. The administrator's come after ours, unless empty: then there are none.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["lay_over"]

Item = Mapping[str, Any]

_HANDLERS = frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"})
_HANDLED = frozenset({"livenessProbe", "readinessProbe", "startupProbe", "postStart", "preStop"})
_VALUES = frozenset({"value", "valueFrom"})

_NAMED = ("containers", "initContainers", "ephemeralContainers", "volumes", "env", "imagePullSecrets", "resourceClaims", "schedulingGates")
_KEYS: dict[str, Callable[[Item], object]] = {
    **dict.fromkeys(_NAMED, lambda item: item.get("name")),
    "volumeMounts": lambda item: item.get("mountPath"),
    "volumeDevices": lambda item: item.get("devicePath"),
    "hostAliases": lambda item: item.get("ip"),
    "topologySpreadConstraints": lambda item: (item.get("topologyKey"), item.get("whenUnsatisfiable")),
    "ports": lambda item: (item.get("containerPort", item.get("port")), item.get("protocol", "TCP")),
}
_ADDED = frozenset({"args", "searches", "tolerations", "requiredDuringSchedulingIgnoredDuringExecution"})


def lay_over(ours: Mapping[str, Any], theirs: Mapping[str, Any], *, field: str = "") -> dict[str, Any]:
    """`theirs` over `ours`; `field` is where both stand, if what they are depends on it."""
    made = {key: copy.deepcopy(value) for key, value in ours.items() if not _gives_way(key, ours, theirs, field)}
    for key, value in theirs.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(made.get(key), Mapping):
            made[key] = lay_over(made[key], value, field=key)
        elif isinstance(value, list) and isinstance(made.get(key), list):
            made[key] = _lists(key, made[key], value, field)
        else:
            made[key] = _without_nulls(value)
    return made


def _gives_way(key: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], field: str) -> bool:
    """Whether our `key` is one of those of which only one can be, and the administrator named another."""
    named = {name for name, value in theirs.items() if value is not None}
    if field in _HANDLED:
        return key in _HANDLERS and bool(named & _HANDLERS) and key not in named
    if field == "env":
        return key in _VALUES and bool(named & _VALUES) and key not in named
    if field == "volumes":
        return key != "name" and bool(named - {"name"}) and key not in named
    if field == "strategy":
        return key == "rollingUpdate" and theirs.get("type") not in (None, ours.get("type"))
    return False


def _lists(key: str, ours: list[Any], theirs: list[Any], field: str) -> list[Any]:
    if not theirs:
        return []
    if key in _ADDED and field != "nodeAffinity":
        return [*ours, *(_without_nulls(item) for item in theirs if key == "args" or item not in ours)]
    if key in _KEYS and all(isinstance(item, Mapping) for item in (*ours, *theirs)):
        return _items(key, ours, theirs)
    return [_without_nulls(item) for item in theirs]


def _items(key: str, ours: Sequence[Item], theirs: Sequence[Item]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [dict(item) for item in ours]
    for item in theirs:
        place = _place(key, made, item)
        if item.get("$patch") == "delete":
            if place is not None:
                del made[place]
        elif place is None:
            made.append(_without_nulls(item))
        else:
            made[place] = lay_over(made[place], item, field=key)
    return made


def _place(key: str, made: Sequence[Item], item: Item) -> int | None:
    """Which of the items is meant: the one with the same key; of ports, before that, the one with the same name."""
    if key == "ports" and item.get("name"):
        for place, one in enumerate(made):
            if one.get("name") == item["name"]:
                return place
    wanted = _KEYS[key](item)
    return next((place for place, one in enumerate(made) if _KEYS[key](one) == wanted), None)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
