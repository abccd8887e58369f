"""Where a job may go, as Slurm is told: in features where labels are mapped, by name for the rest."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from slinky.bridge.capacity import NodeRoom, room_of
from slinky.bridge.label_features import constraint_of, features_from
from slinky.bridge.marker import Told, comment_for, read_comment, told_of
from slinky.bridge.node_mark import mark_for
from slinky.bridge.node_reasons import CORDONED, LEAVING, RENEWING
from slinky.bridge.whereabouts import EVERYWHERE, Whereabouts, change_between, change_of, noted, put_on, usable_of, where
from slinky.kube import Meta, Pod
from slinky.kube.objects import Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PodSpec, SelectorRequirement
from slinky.slurm import Job, JobDescription, Node, expand

ZONE, DISK = "topology.kubernetes.io/zone", "disk"
MAPPED = {ZONE: "zone", DISK: "disk"}


def a_pod(*terms: list[tuple[str, str, list[str]]], **selector: str) -> Pod:
    wishes = tuple(
        NodeSelectorTerm(
            match_expressions=tuple(SelectorRequirement(key=key, operator=operator, values=tuple(values)) for key, operator, values in term)
        )
        for term in terms
    )
    affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=wishes))) if wishes else None
    return Pod(metadata=Meta(name="p"), spec=PodSpec(node_selector=selector, affinity=affinity))


def room(*features: str, partition: str = "bridge") -> NodeRoom:
    return NodeRoom(partitions=frozenset({partition}), cpus=8, memory=1000, gres={}, features=frozenset({"bridge", *features}))


ROOMS = {
    "a1": room("zone=a", "disk=ssd"),
    "a2": room("zone=a", "disk=hdd"),
    "b1": room("zone=b", "disk=ssd"),
    "other": room(partition="elsewhere"),
}


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        (a_pod(disk="ssd"), "disk=ssd"),
        (a_pod([(ZONE, "In", ["a", "b"])], disk="ssd"), "(zone=a|zone=b)&disk=ssd"),
        (a_pod([(ZONE, "In", ["a", "gone"])]), "zone=a"),
        (a_pod([(ZONE, "Exists", [])]), "(zone=a|zone=b)"),
        (a_pod([(ZONE, "NotIn", ["a"])]), ""),
        (a_pod([(ZONE, "In", ["a"]), ("cpu-model", "Gt", ["5"])]), "zone=a"),
        (a_pod([(ZONE, "In", ["a"])], [(DISK, "In", ["hdd"])]), "(zone=a)|(disk=hdd)"),
        (a_pod([(ZONE, "In", ["a", "b"])], [(DISK, "In", ["hdd"])]), ""),
        (a_pod([(ZONE, "In", ["a"])], [("unmapped", "In", ["x"])]), ""),
    ],
)
def test_what_features_can_say_is_a_constraint(pod: Pod, text: str) -> None:
    features = {feature for room in ROOMS.values() for feature in room.features}
    assert constraint_of(pod, MAPPED, features).text() == text


def test_a_label_whose_value_cannot_be_a_feature_is_left_out() -> None:
    assert features_from({ZONE: "a", DISK: ""}, MAPPED) == ["zone=a"]


def test_what_nobody_refuses_may_go_everywhere() -> None:
    assert where([a_pod()], [{}], usable_of(ROOMS, "bridge")) == EVERYWHERE
    assert where([a_pod()], [{"control-plane": "is tainted", "other": "is tainted"}], usable_of(ROOMS, "bridge")) == EVERYWHERE


def test_a_node_that_is_drained_to_be_deleted_is_not_named() -> None:
    """It takes no jobs, and named by jobs that wait, of which there may always be some, it could never go, nor be made anew."""
    rooms = ROOMS | {"a1": msgspec.structs.replace(ROOMS["a1"], departing=True)}
    refused = {"a1": "is cordoned", "b1": "is tainted"}
    assert where([a_pod()], [refused], usable_of(rooms, "bridge")) == Whereabouts("", ("b1",))
    assert where([a_pod()], [refused | {"a2": "is tainted"}], usable_of(rooms, "bridge")).nowhere
    for reason, departs in ((f"{RENEWING} x", True), (f"{LEAVING} x", True), (f"{CORDONED} x", False), ("fan", False)):
        node = Node(name="n", node_states=["IDLE", "EXTERNAL", "DRAIN"], reason=reason, extra=mark_for("c1"))
        assert room_of(node).departing is departs
    assert not room_of(Node(name="n", node_states=["IDLE", "DRAIN"], reason=f"{LEAVING} x")).departing


def test_nodes_that_the_constraint_keeps_out_are_not_named_besides() -> None:
    pod = a_pod(**{DISK: "ssd"})
    found = where([pod], [{"a2": "has no ssd", "b1": "is tainted"}], usable_of(ROOMS, "bridge"), mapped=MAPPED)
    assert found == Whereabouts("disk=ssd", ("b1",))


def test_without_a_map_all_that_are_refused_are_named() -> None:
    found = where([a_pod(**{DISK: "ssd"})], [{"a2": "has no ssd", "b1": "is tainted", "unknown": "is tainted"}], usable_of(ROOMS, "bridge"))
    assert found == Whereabouts("", ("a2", "b1"))


def test_a_gang_is_kept_from_what_one_of_its_pods_is_refused() -> None:
    assert where([a_pod(), a_pod()], [{"a1": "port 80 is taken"}, {"b1": "is tainted"}], usable_of(ROOMS, "bridge")).excluded == (
        "a1",
        "b1",
    )


def test_a_users_own_constraint_stays() -> None:
    pod = a_pod(**{DISK: "ssd"})
    assert where([pod], [{"a2": "no"}], usable_of(ROOMS, "bridge"), said="bridge", mapped=MAPPED).constraint == "bridge&disk=ssd"
    bracketed = where([pod], [{"a2": "no"}], usable_of(ROOMS, "bridge"), said="[zone=a|zone=b]", mapped=MAPPED)
    assert bracketed == Whereabouts("", ("a2",))
    job = JobDescription(constraints="[zone=a|zone=b]")
    assert put_on(job, bracketed).constraints == "[zone=a|zone=b]"


def test_all_nodes_of_one_kind() -> None:
    assert where([a_pod()], [{}], usable_of(ROOMS, "bridge"), mapped=MAPPED, one_of=ZONE).constraint == "[zone=a|zone=b]"
    assert where([a_pod()], [{"b1": "is tainted"}], usable_of(ROOMS, "bridge"), mapped=MAPPED, one_of=ZONE) == Whereabouts(
        "[zone=a]", ("b1",)
    )


def test_where_no_node_is_left_it_says_why() -> None:
    why = {"a1": "node a1 has the taint x", "a2": "node a2 has the taint x", "b1": "node b1 is cordoned"}
    found = where([a_pod()], [why], usable_of(ROOMS, "bridge"))
    assert (
        found.nowhere
        == "none of the 3 nodes of partition bridge will do: node a1 has the taint x (and 1 more like it); node b1 is cordoned"
    )


def test_a_users_exclusions_stay_and_changes_say_only_what_is_new() -> None:
    job = JobDescription(excluded_nodes=["n[1-2]"])
    before = put_on(job, Whereabouts("zone=a", ("n3",)))
    assert (before.constraints, before.excluded_nodes) == ("zone=a", ["n[1-3]"])
    assert change_between(before, put_on(job, Whereabouts("zone=a", ("n3",)))) is None
    after = change_between(before, put_on(job, EVERYWHERE))
    assert after == JobDescription(constraints="", excluded_nodes=["n[1-2]"])
    assert change_between(put_on(JobDescription(), Whereabouts("", ("n1",))), JobDescription()) == JobDescription(excluded_nodes=[""])


LABELS = some.fixed_dictionaries(
    {}, optional={ZONE: some.sampled_from("abc"), DISK: some.sampled_from(["ssd", "hdd"]), "rack": some.sampled_from("12")}
)
KEY = some.sampled_from([ZONE, DISK, "rack"])
VALUES = some.lists(some.sampled_from(["a", "b", "ssd", "1"]), min_size=1, max_size=2)
NO_VALUES = some.builds(list[str])  # as the API server wants it with these operators
WISH = some.tuples(KEY, some.sampled_from(["In", "NotIn"]), VALUES) | some.tuples(
    KEY, some.sampled_from(["Exists", "DoesNotExist"]), NO_VALUES
)


def _accepts(labels: dict[str, str], pod: Pod) -> bool:
    def met(wish: SelectorRequirement) -> bool:
        value = labels.get(wish.key)
        return {"In": value in wish.values, "NotIn": value not in wish.values, "Exists": value is not None, "DoesNotExist": value is None}[
            wish.operator
        ]

    assert pod.spec.affinity is None or pod.spec.affinity.node_affinity
    required = pod.spec.affinity.node_affinity.required if pod.spec.affinity and pod.spec.affinity.node_affinity else None
    terms = required.node_selector_terms if required else ()
    plain = all(labels.get(key) == value for key, value in pod.spec.node_selector.items())
    return plain and (not terms or any(all(met(wish) for wish in term.match_expressions) for term in terms))


@given(
    some.lists(LABELS, min_size=1, max_size=6),
    some.lists(some.lists(WISH, min_size=1, max_size=3), max_size=3),
    some.dictionaries(KEY, some.sampled_from(["a", "ssd", "1"]), max_size=2),
)
def test_exactly_the_nodes_that_kubernetes_accepts_are_left(
    labels: list[dict[str, str]], terms: list[list[tuple[str, str, list[str]]]], selector: dict[str, str]
) -> None:
    pod = a_pod(*terms, **selector)
    nodes = {f"n{number}": each for number, each in enumerate(labels)}
    rooms = {name: room(*features_from(each, MAPPED)) for name, each in nodes.items()}
    good = {name for name, each in nodes.items() if _accepts(each, pod)}
    refused = {name: "no" for name in nodes if name not in good}
    found = where([pod], [refused], usable_of(rooms, "bridge"), mapped=MAPPED)
    if not good:
        assert found.nowhere
        return
    features = {feature for each in rooms.values() for feature in each.features}
    constraint = constraint_of(pod, MAPPED, features)
    excluded = {name for words in put_on(JobDescription(), found).excluded_nodes or () for name in expand(words)}
    left = {name for name in nodes if constraint.holds(rooms[name].features) and name not in excluded}
    assert left == good


# What an administrator says about it


COMMENT = comment_for("c1", "Pod ns/u", [("ns", "p")], ["u"])


def sent(constraint: str = "", *excluded: str) -> JobDescription:
    """As it goes to Slurm."""
    job = JobDescription(admin_comment=COMMENT, constraints=constraint or None, excluded_nodes=[",".join(excluded)] if excluded else None)
    return noted(job)


def in_slurm(job: JobDescription, **changed: str) -> Job:
    said = {"features": job.constraints or "", "excluded_nodes": ",".join(job.excluded_nodes or ())} | changed
    return Job(job_id=7, admin_comment=job.admin_comment or "", **said)  # type: ignore[arg-type]


def test_what_we_told_a_job_we_change_and_know_after_a_restart() -> None:
    before = sent("zone=a", "n1", "n2")
    assert read_comment(before.admin_comment or "", "c1") is not None
    assert change_of(in_slurm(before), sent("zone=a", "n1", "n2")) is None
    change = change_of(in_slurm(before), sent("zone=b", "n2"))
    assert change is not None
    assert (change.constraints, change.excluded_nodes) == ("zone=b", ["n2"])
    assert told_of(change.admin_comment or "") == Told("zone=b", "n2")
    nothing = change_of(in_slurm(before), sent())
    assert nothing is not None
    assert (nothing.constraints, nothing.excluded_nodes) == ("", [""])
    assert told_of(nothing.admin_comment or "") == Told()


def test_nodes_that_an_administrator_has_a_job_leave_out_stay_left_out() -> None:
    mended = in_slurm(sent("", "n1"), excluded_nodes="n[1,9]")
    assert change_of(mended, sent("", "n1")) is None
    change = change_of(mended, sent("", "n2"))
    assert change is not None
    assert change.excluded_nodes == ["n[2,9]"]
    again = Job(job_id=7, admin_comment=change.admin_comment or "", excluded_nodes="n[2,9]")
    last = change_of(again, sent())
    assert last is not None
    assert last.excluded_nodes == ["n9"], "and the next time too"


def test_a_constraint_of_an_administrators_stays() -> None:
    mended = in_slurm(sent("zone=a"), features="big")
    assert change_of(mended, sent("zone=b")) is None
    change = change_of(mended, sent("zone=b", "n1"))
    assert change is not None
    assert (change.constraints, change.excluded_nodes) == (None, ["n1"])


def test_a_comment_that_is_not_ours_is_left_as_it_is() -> None:
    assert noted(JobDescription(admin_comment="a text", constraints="x")).admin_comment == "a text"
    assert noted(JobDescription(constraints="x")).admin_comment is None


def test_exclusions_that_are_too_many_for_a_comment_are_ours_all_the_same() -> None:
    """Or they would stay as if an administrator had made them, for ever."""
    names = [f"ip-10-1-{number % 250}-{number // 250}.compute.internal" for number in range(3000)]
    before = in_slurm(sent("", *names))
    assert change_of(before, sent("", *names)) is None
    fewer = change_of(before, sent("", *names[:10]))
    assert fewer is not None
    assert set(expand((fewer.excluded_nodes or [""])[0])) == set(names[:10])
    mended = in_slurm(sent("", *names), excluded_nodes=",".join([*names, "n9"]))
    nothing = change_of(mended, sent())
    assert nothing is not None
    assert nothing.excluded_nodes == ["n9"], "the administrator's own stays"
