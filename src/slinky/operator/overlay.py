"""Lays what an administrator wrote of a pod, a container or a Service over what the operator makes.

Two mappings go in, one comes out; neither is changed.

*Invariants:*

- A value of the administrator's wins, also `false`, 0 and "".
- An empty list or an empty mapping says nothing: the original's chart writes many by default.
- `null` removes our value. `$patch: delete` in a mapping or an item removes it, `$patch: replace`
  puts the administrator's mapping or list in the place of ours.
- Mappings are joined. Lists whose items have a name (or a mount path, a port …) are joined item by
  item, as in Kubernetes' strategic merge.
- Where there can be only one (a probe's handler, a volume's source, a variable's value), the
  administrator's replaces ours.
- A few lists add up: arguments, search domains, tolerations, required pod (anti-)affinity. The
  administrator's items come after ours.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["lay_over", "without_empty_lists"]

Item = Mapping[str, Any]

PATCH, DELETE, REPLACE = "$patch", "delete", "replace"

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
    if theirs.get(PATCH) == REPLACE:
        return {key: _plain(value) for key, value in theirs.items() if key != PATCH and _says(value)}
    made = {key: copy.deepcopy(value) for key, value in ours.items() if not _gives_way(key, ours, theirs, field)}
    for key, value in theirs.items():
        if _is_removal(value):
            made.pop(key, None)
        elif not _says(value):
            continue
        elif isinstance(value, Mapping) and isinstance(made.get(key), Mapping):
            made[key] = lay_over(made[key], value, field=key)
        elif isinstance(value, list) and isinstance(made.get(key), list):
            made[key] = _lists(key, made[key], value, field)
        else:
            made[key] = _plain(value)
    return made


def without_empty_lists(value: Any) -> Any:
    """The same without lists that say nothing, at any depth, and without mappings of nothing else."""
    if isinstance(value, Mapping):
        kept = {key: (item, without_empty_lists(item)) for key, item in value.items() if item != []}
        return {key: made for key, (item, made) in kept.items() if made != {} or item == {}}
    return [without_empty_lists(item) for item in value] if isinstance(value, list) else value


def _says(value: Any) -> bool:
    return value is not None and value != []


def _is_removal(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and value.get(PATCH) == DELETE)


def _gives_way(key: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], field: str) -> bool:
    """Whether our `key` is one of those of which only one can be, and the administrator named another."""
    named = {name for name, value in theirs.items() if _says(value)}
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
    if {PATCH: REPLACE} in theirs:
        return [_plain(item) for item in theirs if item != {PATCH: REPLACE}]
    if key in _ADDED and field != "nodeAffinity":
        return [*ours, *(_plain(item) for item in theirs if key == "args" or item not in ours)]
    if key in _KEYS and all(isinstance(item, Mapping) for item in (*ours, *theirs)):
        return _items(key, ours, theirs)
    return [_plain(item) for item in theirs]


def _items(key: str, ours: Sequence[Item], theirs: Sequence[Item]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [dict(item) for item in ours]
    for item in theirs:
        place = _place(key, made, item)
        if item.get(PATCH) == DELETE:
            if place is not None:
                del made[place]
        elif place is None:
            made.append(_plain(item))
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


def _plain(value: Any) -> Any:
    """As Kubernetes takes it: without nulls, empty lists and our words of patching."""
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if key != PATCH and _says(item) and not _is_removal(item)}
        return {key: _plain(item) for key, item in kept.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value if item != {PATCH: REPLACE}]
    return value
