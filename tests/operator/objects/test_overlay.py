"""An administrator's pod, container or Service over ours: theirs wins, whatever it is, and nothing of ours is lost beside it."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.operator.overlay import lay_over

PLAIN: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"]) | st.just([]) | st.lists(st.integers(0, 3), max_size=3)
)
NAMES = st.sampled_from(["image", "tty", "command", "resources", "limits", "nodeSelector", "priority"])
TREES = st.recursive(
    st.dictionaries(NAMES, PLAIN, max_size=4), lambda inner: st.dictionaries(NAMES, PLAIN | inner, max_size=4), max_leaves=12
)
ITEM = st.fixed_dictionaries(
    {"name": st.sampled_from(["x", "y", "z"])}, optional={"image": st.sampled_from(["", "i", "j"]), "tty": st.booleans()}
)
CONTAINERS = st.lists(ITEM, max_size=3, unique_by=lambda item: item["name"])


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


def wins(theirs: dict[str, Any], made: dict[str, Any]) -> bool:
    """Everything of theirs is as they said, but for empty lists; what they took away is gone."""
    for key, value in theirs.items():
        if value is None:
            if key in made:
                return False
        elif value == []:
            continue
        elif isinstance(value, dict):
            if not (isinstance(made.get(key), dict) and wins(value, made[key])):
                return False
        elif key not in made or made[key] != value or type(made[key]) is not type(value):
            return False
    return True


@given(TREES.map(without_nulls), TREES)
def test_every_value_of_theirs_wins_and_null_takes_ours_away(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    made = lay_over(ours, theirs)
    assert wins(theirs, made)
    silent = {key for key, value in theirs.items() if value == []}
    assert {key: value for key, value in ours.items() if key not in theirs or key in silent} == {
        key: value for key, value in made.items() if key not in theirs or key in silent
    }


@given(TREES.map(without_nulls), TREES)
def test_neither_side_is_changed_and_saying_it_twice_changes_nothing(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    before = copy.deepcopy((ours, theirs))
    made = lay_over(ours, theirs)
    assert (ours, theirs) == before
    assert lay_over(made, theirs) == made


@given(CONTAINERS, CONTAINERS)
def test_containers_are_matched_by_name_and_ours_stay_first(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    made = lay_over({"containers": ours}, {"containers": theirs})["containers"]
    expected = [*(one["name"] for one in ours), *(one["name"] for one in theirs if one["name"] not in {mine["name"] for mine in ours})]
    assert [one["name"] for one in made] == expected
    for one in made:
        mine: dict[str, Any] = next((mine for mine in ours if mine["name"] == one["name"]), {})
        other: dict[str, Any] = next((other for other in theirs if other["name"] == one["name"]), {})
        assert one == mine | other


@pytest.mark.parametrize(
    ("ours", "theirs", "made"),
    [
        pytest.param({"privileged": True}, {"privileged": False}, {"privileged": False}, id="false wins"),
        pytest.param({"args": ["-Z"]}, {"args": ["-v", "-Z"]}, {"args": ["-Z", "-v", "-Z"]}, id="arguments come after ours"),
        pytest.param({"args": ["-Z"]}, {"args": []}, {"args": ["-Z"]}, id="an empty list says nothing"),
        pytest.param({"args": ["-Z"]}, {"args": None}, {}, id="no arguments at all"),
        pytest.param({"args": ["-Z"]}, {"args": [{"$patch": "replace"}, "-v"]}, {"args": ["-v"]}, id="other arguments"),
        pytest.param({"args": ["-Z"]}, {"args": [{"$patch": "replace"}]}, {"args": []}, id="no arguments, by a patch"),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}], "volumeMounts": [{"mountPath": "/m"}]},
            {"env": [], "envFrom": [], "volumeMounts": [], "resources": {}},
            {"env": [{"name": "A", "value": "1"}], "volumeMounts": [{"mountPath": "/m"}], "resources": {}},
            id="what the original's chart writes by default",
        ),
        pytest.param(
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}]}}},
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}, "nodeAffinity": {}}},
            {
                "affinity": {
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}]},
                    "nodeAffinity": {},
                }
            },
            id="an empty list at some depth",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "k"}}]}}]},
            {"volumes": [{"name": "v", "projected": {"sources": []}}, {"name": "w", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "k"}}]}}, {"name": "w", "emptyDir": {}}]},
            id="an empty list in an item, and a volume's empty source",
        ),
        pytest.param({}, {"command": [], "sidecar": [{"args": []}]}, {"sidecar": [{}]}, id="empty where ours has nothing"),
        pytest.param(
            {"livenessProbe": {"httpGet": {"path": "/"}}, "affinity": {"a": {"b": 1}}},
            {"livenessProbe": {"$patch": "delete"}, "affinity": {"$patch": "replace", "c": 1}},
            {"affinity": {"c": 1}},
            id="a mapping removed, and one replaced",
        ),
        pytest.param({"command": ["a"]}, {"command": ["b"]}, {"command": ["b"]}, id="a command is one thing"),
        pytest.param(
            {"livenessProbe": {"httpGet": {"path": "/"}, "periodSeconds": 5}},
            {"livenessProbe": {"periodSeconds": 9}},
            {"livenessProbe": {"httpGet": {"path": "/"}, "periodSeconds": 9}},
            id="a probe's numbers leave its handler",
        ),
        pytest.param(
            {"livenessProbe": {"httpGet": {"path": "/"}, "periodSeconds": 5}},
            {"livenessProbe": {"exec": {"command": ["true"]}}},
            {"livenessProbe": {"periodSeconds": 5, "exec": {"command": ["true"]}}},
            id="another handler takes the place of ours",
        ),
        pytest.param(
            {"lifecycle": {"preStop": {"exec": {"command": ["a"]}}}},
            {"lifecycle": {"preStop": {"sleep": {"seconds": 3}}}},
            {"lifecycle": {"preStop": {"sleep": {"seconds": 3}}}},
            id="another handler at the end",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]},
            {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]},
            id="another source of a volume",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}, {"name": "B", "value": "1"}]},
            {"env": [{"name": "A", "value": ""}]},
            {"env": [{"name": "A", "value": ""}, {"name": "B", "value": "1"}]},
            id="a variable that is empty",
        ),
        pytest.param(
            {"volumeMounts": [{"name": "a", "mountPath": "/m"}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/m"}, {"name": "a", "mountPath": "/n"}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/m"}, {"name": "a", "mountPath": "/n"}]},
            id="mounts by their path",
        ),
        pytest.param(
            {"ports": [{"name": "p", "containerPort": 1, "protocol": "TCP"}]},
            {"ports": [{"containerPort": 1, "hostPort": 2}, {"containerPort": 1, "protocol": "UDP"}]},
            {"ports": [{"name": "p", "containerPort": 1, "protocol": "TCP", "hostPort": 2}, {"containerPort": 1, "protocol": "UDP"}]},
            id="ports by number and protocol",
        ),
        pytest.param(
            {"ports": [{"name": "p", "port": 1}]},
            {"ports": [{"name": "p", "port": 2}]},
            {"ports": [{"name": "p", "port": 2}]},
            id="a port of the same name",
        ),
        pytest.param(
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"containers": [{"name": "a", "$patch": "delete"}, {"name": "c", "$patch": "delete"}]},
            {"containers": [{"name": "b"}]},
            id="an item taken away",
        ),
        pytest.param(
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}, {"key": "a"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
            id="tolerations too",
        ),
        pytest.param(
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
            {"strategy": {"type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
            id="another strategy",
        ),
        pytest.param({}, {"a": {"b": None, "c": [{"d": None}]}}, {"a": {"c": [{}]}}, id="null where ours has nothing"),
    ],
)
def test_this_over_that_is(ours: dict[str, Any], theirs: dict[str, Any], made: dict[str, Any]) -> None:
    assert lay_over(ours, theirs) == made
