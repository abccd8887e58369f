"""Policy: what a namespace's jobs are in Slurm, and what its users may say. Each rule allows what it lists, refuses the rest with its reason, and fills in what was not said."""

from typing import Any

import msgspec
import pytest

from slinky.bridge.annotations import JobSettings, read_settings
from slinky.bridge.grants import Grants
from slinky.bridge.keys import POLICY, SETTINGS
from slinky.bridge.policy import Grant, Policy, PolicyError
from slinky.bridge.settings import Settings
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Cache, Meta, Namespace, Pod
from slinky.kube.objects import Affinity, PodSpec

P = "slurmjob.slinky.slurm.net/"
CLASSES = [
    {"name": "gold", "qos": "high"},
    {"name": "soon", "priority": 5000},
    {"name": "early", "nice": -10},
    {"name": "late", "nice": 10},
]


def policy(default: dict[str, Any] | None = None, *rules: dict[str, Any]) -> Policy:
    said = {"policy": {"default": default or {}, "rules": list(rules)}, "priorityClasses": CLASSES, "partition": "bridge"}
    return Policy(msgspec.convert(said, Settings))


def grant(default: dict[str, Any] | None = None, *rules: dict[str, Any], **labels: str) -> Grant:
    return policy(default, *rules).grant("lab", {POLICY + key: value for key, value in labels.items()})


def said(**annotations: str) -> JobSettings:
    return read_settings({P + key.replace("_", "-"): value for key, value in annotations.items()})


@pytest.mark.parametrize(
    ("rule", "allowed", "refused", "why"),
    [
        ({"users": ["alice"]}, {"user_id": "alice"}, {"user_id": "root"}, "user-id is 'root', and namespace lab may name alice only"),
        ({"groups": ["staff"]}, {"group_id": "staff"}, {"group_id": "root"}, "group-id is 'root', and namespace lab may name staff only"),
        ({"accounts": ["a", "b"]}, {"account": "a"}, {"account": "c"}, "account is 'c', and namespace lab may name a, b only"),
        ({"accounts": ["*"]}, {"account": "any"}, {"qos": "high"}, "qos is 'high', and namespace lab may name no QoS: leave it out"),
        ({"qoses": ["low"]}, {"qos": "low"}, {"qos": "high"}, "qos is 'high', and namespace lab may name low only"),
        (
            {"partitions": ["a", "b"]},
            {"partition": "a,b"},
            {"partition": "a,c"},
            "partition is 'c', and namespace lab may name a, b, bridge only",
        ),
        ({"partition": "own"}, {"partition": "own"}, {"partition": "bridge"}, "partition is 'bridge', and namespace lab may name own only"),
        ({"partition": "a,b"}, {"partition": "b"}, {"partition": "c"}, "partition is 'c', and namespace lab may name a, b only"),
        ({"reservations": ["r"]}, {"reservation": "r"}, {"reservation": "x"}, "reservation is 'x', and namespace lab may name r only"),
        ({"wckeys": ["w"]}, {"wckey": "w"}, {"wckey": "x"}, "wckey is 'x', and namespace lab may name w only"),
        ({"licenses": ["m"]}, {"licenses": "m:2"}, {"licenses": "m:1,x@s:2"}, "licenses is 'm:1,x@s:2', and namespace lab may have m only"),
        ({"maxPriority": 10}, {"priority": "10"}, {"priority": "11"}, "priority is '11', and 10 is the highest that namespace lab may set"),
        (
            {"hold": True},
            {"priority": "0"},
            {"priority": "1"},
            "priority is '1', and namespace lab may set none: leave it out; Slurm reckons it",
        ),
        (
            {"hold": False, "maxPriority": 5},
            {"priority": "1"},
            {"priority": "0"},
            "priority is '0', and jobs of namespace lab may not be held",
        ),
        ({"minNice": -5}, {"nice": "-5"}, {"nice": "-6"}, "nice is '-6', and -5 is the lowest that namespace lab may set"),
        ({"minNice": 100}, {"nice": "100"}, {"nice": "0"}, "nice is '0', and 100 is the lowest that namespace lab may set"),
        (
            {"exclusive": False},
            {"exclusive": "false"},
            {"exclusive": "true"},
            "exclusive is 'true', and namespace lab must share its nodes",
        ),
        (
            {"dependency": False},
            {},
            {"dependency": "singleton"},
            "dependency is 'singleton', and namespace lab may name no jobs to wait for",
        ),
        (
            {"maxTimeLimit": 60},
            {"timelimit": "60"},
            {"timelimit": "61"},
            "timelimit is '61 minutes', and namespace lab may have 60 at most",
        ),
    ],
)
def test_a_rule_allows_what_it_says_and_refuses_the_rest_with_its_reason(
    rule: dict[str, Any], allowed: dict[str, str], refused: dict[str, str], why: str
) -> None:
    for granted in (grant(rule), grant(None, rule | {"namespaces": ["lab"]})):
        assert granted.refusals(said(**allowed)) == []
        (problem,) = granted.refusals(said(**refused))
        assert problem.startswith(f"annotation {P}{why}")


def test_a_grace_period_is_bounded_by_an_hour_unless_the_site_says_otherwise() -> None:
    assert grant({}).too_long(3600) == grant({}).too_long(None) == grant({"maxGraceSeconds": 0}).too_long(10**6) == []
    assert grant({}).too_long(3601) == ["spec.terminationGracePeriodSeconds is 3601, and namespace lab may have 3600 at most"]
    assert grant(None, {"maxGraceSeconds": 60, "namespaces": ["lab"]}).too_long(61)


@pytest.mark.parametrize(
    "annotations",
    [
        {"user_id": "alice"},
        {"group_id": "staff"},
        {"account": "physics"},
        {"qos": "high"},
        {"partition": "other"},
        {"reservation": "r"},
        {"wckey": "w"},
        {"priority": "1"},
        {"nice": "-1"},
    ],
)
def test_without_a_policy_nobody_becomes_another_or_goes_first(annotations: dict[str, str]) -> None:
    assert len(grant().refusals(said(**annotations))) == 1


def test_without_a_policy_what_is_about_the_job_itself_is_free() -> None:
    about_itself = said(
        job_name="x", timelimit="5", partition="bridge", priority="0", nice="5", exclusive="true", dependency="afterok:1", licenses="m"
    )
    assert grant().refusals(about_itself) == []
    assert grant().settle(about_itself).partition == "bridge"


def test_the_first_rule_that_matches_holds_and_the_default_for_what_it_does_not_say() -> None:
    rules = policy(
        {"account": "shared", "qoses": ["low"], "minNice": -1},
        {"namespaces": ["lab"], "account": "lab", "qoses": []},
        {"selector": {"matchLabels": {"tier": "gold"}}, "qoses": ["high"], "account": ""},
    )
    lab, gold, other = rules.grant("lab", {"tier": "gold"}), rules.grant("x", {"tier": "gold"}), rules.grant("x", {})
    assert [granted.settle(said()).account for granted in (lab, gold, other)] == ["lab", None, "shared"]
    assert [granted.refusals(said(qos="high")) == [] for granted in (lab, gold, other)] == [False, True, False]
    assert [granted.refusals(said(qos="low")) == [] for granted in (lab, gold, other)] == [False, False, True]
    assert all(granted.refusals(said(nice="-1")) == [] for granted in (lab, gold, other))


def test_what_was_not_said_is_the_namespaces_default() -> None:
    own = {key: f"my-{key}" for key in ("user", "group", "account", "qos", "partition", "reservation", "wckey")} | {"timeLimit": 30}
    settled = grant(own | {"users": ["alice"], "accounts": ["other"]}).settle(said(account="other"))
    assert settled == JobSettings(
        account="other",
        user_id="my-user",
        group_id="my-group",
        qos="my-qos",
        partition="my-partition",
        reservation="my-reservation",
        wckey="my-wckey",
        time_limit=30,
    )
    another = grant(own | {"users": ["alice"]}).settle(said(user_id="alice"))
    assert (another.user_id, another.group_id) == ("alice", None), "the group is not another user's"


@pytest.mark.parametrize(
    ("rule", "named", "group"),
    [
        ({}, {}, None),  # as whoever the token belongs to
        ({"users": ["*"], "groups": ["*"]}, {"user_id": "alice", "group_id": "staff"}, "staff"),
        ({"users": ["*"], "group": "users"}, {"user_id": "alice"}, "users"),
        ({"user": "alice", "group": "staff"}, {}, "staff"),
        ({"user": "alice", "group": "staff"}, {"user_id": "alice"}, "staff"),
        ({"users": ["*"]}, {"user_id": "root"}, "0"),
        ({"users": ["*"]}, {"user_id": "0"}, "0"),
        ({"groups": ["*"]}, {"group_id": "staff"}, "staff"),
    ],
)
def test_a_user_is_never_named_to_slurm_without_a_group(rule: dict[str, Any], named: dict[str, str], group: str | None) -> None:
    granted = grant(rule)
    assert granted.groupless(said(**named)) == []
    assert granted.settle(said(**named)).group_id == group


@pytest.mark.parametrize(
    ("rule", "named", "advice"),
    [
        ({"users": ["*"], "groups": ["*"]}, {"user_id": "alice"}, f"add annotation {P}group-id with the user's group (`id -gn alice`)"),
        ({"users": ["*"]}, {"user_id": "alice"}, "an administrator must set `group` (or `groups`) in the policy of namespace lab"),
        ({"user": "bob", "group": "staff", "users": ["*"], "groups": ["*"]}, {"user_id": "alice"}, f"add annotation {P}group-id"),
    ],
)
def test_a_user_without_a_group_is_refused_as_slurm_would_take_roots(rule: dict[str, Any], named: dict[str, str], advice: str) -> None:
    [problem] = grant(rule).groupless(said(**named))
    assert problem.startswith(
        f"annotation {P}user-id is 'alice', and no group is named, so Slurm would run the job as group 0 (root): {advice}"
    )
    with pytest.raises(PolicyError, match="no group is named"):
        grant(rule).settled(msgspec.structs.replace(workload(), settings=said(**named)))


def test_a_user_that_a_label_gives_needs_a_group_too() -> None:
    granted = policy({"fromLabels": ["user", "group"]}).grant("lab", {"policy.slinky.slurm.net/user": "alice"})
    [problem] = granted.groupless(said())
    assert problem.startswith("jobs of namespace lab run as user 'alice', and no group is named")
    both = {"policy.slinky.slurm.net/user": "alice", "policy.slinky.slurm.net/group": "staff"}
    assert policy({"fromLabels": ["user", "group"]}).grant("lab", both).groupless(said()) == []


def test_time_goes_by_the_annotation_the_deadline_the_default_and_the_limit() -> None:
    limited = grant({"timeLimit": 30, "maxTimeLimit": 60})
    assert limited.settle(said(timelimit="50"), time_limit=10).time_limit == 50
    assert limited.settle(said(), time_limit=10).time_limit == 10
    assert limited.settle(said()).time_limit == 30
    assert grant({"maxTimeLimit": 60}).settle(said()).time_limit == 60
    assert limited.refusals(said(), time_limit=61) == ["activeDeadlineSeconds is 61 minutes, and namespace lab may have 60 at most"]
    assert limited.refusals(said(timelimit="50"), time_limit=61) == []


def test_a_label_counts_only_where_the_site_says_so() -> None:
    assert grant(account="mine").refusals(said(account="mine"))
    assert grant({"fromLabels": ["qos"]}, account="mine").settle(said()).account is None
    labelled = grant({"account": "theirs", "fromLabels": ["account"]}, account="mine", qos="high")
    assert labelled.refusals(said(account="mine")) == []
    assert labelled.refusals(said(account="theirs"))
    assert (labelled.settle(said()).account, labelled.settle(said()).qos) == ("mine", None)
    assert grant({"account": "theirs", "fromLabels": ["account"]}).settle(said()).account == "theirs"
    assert policy({"fromLabels": ["qos"]}).needs_labels
    assert not policy({"qos": "x"}).needs_labels


@pytest.mark.parametrize(
    ("rule", "name", "field", "value"),
    [
        ({"qoses": ["high"]}, "gold", "qos", "high"),
        ({"maxPriority": 5000}, "soon", "priority", 5000),
        ({"minNice": -10}, "early", "nice", -10),
    ],
)
def test_a_priority_class_means_what_the_site_says_within_the_policy(rule: dict[str, Any], name: str, field: str, value: object) -> None:
    granted = grant(rule | {"qos": "usual"})
    assert granted.refusals(said(), name) == []
    assert getattr(granted.settle(said(), name), field) == value
    (problem,) = grant().refusals(said(), name)
    assert problem.startswith(f"spec.priorityClassName {name} means ")
    with pytest.raises(PolicyError, match="priorityClassName"):
        grant().settled(workload(name))


def test_an_annotation_goes_before_the_class_and_a_class_nobody_listed_means_nothing() -> None:
    usual = grant({"qoses": ["low"], "qos": "usual"})
    assert usual.refusals(said(qos="low"), "gold") == []
    assert usual.settle(said(qos="low"), "gold").qos == "low"
    assert usual.settle(said(), "unheard-of") == JobSettings(qos="usual", partition="bridge")
    assert usual.settle(said(), "late").nice == 10


def workload(priority_class: str = "") -> Workload:
    pod = Pod(metadata=Meta(name="p", namespace="lab", uid="u"), spec=PodSpec(priority_class_name=priority_class))
    return Workload(key=WorkloadKey("Pod", "lab", "u"), name="p", pods=(pod,), size=1, settings=JobSettings(), time_limit=7)


def test_affinity_into_other_namespaces_is_asked_about_again_before_each_submit() -> None:
    """Of each pod: those of a gang may differ, and a plain pod may have passed the webhook by."""
    term = {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {"matchLabels": {"team": "other"}}}
    said = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    one = workload()
    [first] = one.pods
    second = msgspec.structs.replace(first, spec=msgspec.structs.replace(first.spec, affinity=msgspec.convert(said, Affinity)))
    both = msgspec.structs.replace(one, pods=(first, second))
    grant().settled(both)
    grant({"crossNamespaceAffinity": False}).settled(one)
    with pytest.raises(PolicyError, match=r"namespaceSelector reaches into other namespaces, and required affinity of namespace lab may"):
        grant({"crossNamespaceAffinity": False}).settled(both)
    trusted = {"namespaces": ["lab"], "crossNamespaceAffinity": True}
    grant({"crossNamespaceAffinity": False}, trusted).settled(both)


def test_a_workload_is_settled_with_its_class_and_deadline() -> None:
    settled = grant({"qoses": ["high"], "account": "a"}).settled(workload("gold")).settings
    assert (settled.qos, settled.account, settled.time_limit) == ("high", "a", 7)


def test_a_workload_that_says_fewer_gres_than_its_pods_ask_for_is_refused() -> None:
    asks = msgspec.convert({"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}, Pod)
    one = msgspec.structs.replace(workload(), pods=(asks,), settings=said(gres="gpu:1"))
    with pytest.raises(PolicyError, match="the pod asks for 8 of gpu by its resources"):
        grant().settled(one)
    assert grant().settled(msgspec.structs.replace(one, settings=said(gres="gpu:8"))).settings.gres == "gpu:8"


def test_a_namespace_that_is_not_known_yet_has_no_grant_where_labels_matter() -> None:
    namespaces: Cache[Namespace] = Cache()
    told: list[str] = []
    grants = Grants(policy({"fromLabels": ["account"], "window": 7}), namespaces, told.append)
    assert grants.of("lab") is None
    assert grants.window("lab") == 1
    namespaces.put(Namespace(metadata=Meta(name="lab", labels={POLICY + "account": "one"})))
    first = grants.of("lab")
    assert first is not None
    assert first.settle(said()).account == "one"
    assert grants.window("lab") == 7
    namespaces.put(Namespace(metadata=Meta(name="lab", labels={POLICY + "account": "one"}, annotations={"x": "y"})))
    assert grants.of("lab") is first
    namespaces.put(Namespace(metadata=Meta(name="lab", labels={POLICY + "account": "two"})))
    second = grants.of("lab")
    assert second is not None
    assert second.settle(said()).account == "two"
    assert told == ["lab", "lab"]
    assert Grants(policy({"qos": "x"}), Cache()).of("elsewhere") is not None


def test_where_signals_are_switched_off_the_annotation_is_refused() -> None:
    said = read_settings({f"{SETTINGS}signal": "USR1@300"})
    assert Policy(Settings()).grant("lab", {}).refusals(said) == []
    [why] = Policy(Settings(checkpoint_signals=False)).grant("lab", {}).refusals(said)
    assert why.startswith(f"annotation {SETTINGS}signal is 'USR1', and the site delivers no signals")
