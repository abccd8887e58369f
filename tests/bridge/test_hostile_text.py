"""What any tenant may write costs little to read, at admission and at each look of the scheduler, and is never repeated at length.

Work is counted in function calls and allocated bytes, not in seconds: see `counting`.
"""

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slinky.bridge import annotations as annotations_module
from slinky.bridge.admission import admit_change, admit_pod, admit_root
from slinky.bridge.annotations import MOST_HINTS, SUFFIXES, AnnotationError, read_settings
from slinky.bridge.jobsets import JobSet
from slinky.bridge.keys import SETTINGS, TASK
from slinky.bridge.policy import Policy, PolicyError
from slinky.bridge.roots import group_of_root
from slinky.bridge.settings import Settings
from slinky.bridge.translate import Site, translate
from slinky.bridge.workload import WorkloadKey, workload_of
from slinky.kube.objects import Pod
from slinky.kube.quantities import QuantityError, quantity
from slinky.slurm import ConfigurationError, expand
from slinky.slurm.hostlists import count, shorten
from tests.bridge.counting import calls

SITE = Settings(managed_namespaces=["ns"])
LONGEST_ANSWER = 16 * 1024  # characters
MOST_CALLS = 20_000
MOST_BYTES = 4 * 2**20

HOSTLISTS = [
    "n[1-999999]",
    "n[1-9999]",
    "n[1-10000]",
    "n[1-999999999999999999999999]",
    "n" + "[1-9]" * 200,
    "n" + "[1-10]" * 150,
    "n[" + "9" * 500 + "-" + "9" * 501 + "]",
    "n[" + "0" * 500 + "1-65536]",
    "[000000000001-9]",
    "n[9-1]",
    "n[" * 300,
    "n" + "[" * 300 + "]" * 300,
    "]" * 1000,
    "," * 1000,
    "n[1-65536]," * 80,
    "a," * 500,
]
HOSTILE = [
    *HOSTLISTS,
    "9" * 1024,
    "9" * 100_000,
    "1e999999999",
    "1e" + "9" * 1000,
    "." + "0" * 900 + "1",
    "1" + "0" * 900 + "Ei",
    "9" * 300 + "-" + "9" * 300 + ":" + "9" * 300,
    ":".join(["9" * 200] * 3),
    "now+" + "9" * 1000,
    "0" * 1000 + "1",
    "after:" + ":".join(["1"] * 500),
    "after" + ":1+1" * 250,
    ",".join(["afterok:1"] * 100),
    "gpu:" * 250,
    ",".join(["gpu:1"] * 170),
    "gres/" * 200,
    "a" * 1023 + "!",
    "a," * 511 + "!",
    "a" * 262_144,
    " " * 1024,
    "SIG" * 340,
    "x@" * 500,
    "\u0663" * 500,
    "(" * 1000,
    "\ud7ff" * 1000,
]
TEXT = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=1100),
    st.text(alphabet="n0123456789[]-,.e:@+Gi", max_size=1100),
    st.builds(lambda word, times: word * times, st.text(alphabet="na19[]-,:+@.", min_size=1, max_size=12), st.integers(1, 400)),
)


def cost(act: Callable[[], object]) -> tuple[int, int]:
    """Function calls, and the most bytes that were held at one time."""
    made = calls(act)
    tracemalloc.start()
    try:
        act()
        return made, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def answer(act: Callable[[], object]) -> str:
    try:
        return str(act())
    except (ValueError, ConfigurationError) as error:
        return str(error)


@given(st.dictionaries(st.sampled_from(sorted(SUFFIXES)), TEXT, max_size=40))
@settings(max_examples=150, deadline=None)
def test_annotations_cost_little_to_read_and_are_not_repeated_at_length(said: dict[str, str]) -> None:
    annotations = {SETTINGS + suffix: text for suffix, text in said.items()}
    made, held = cost(lambda: answer(lambda: read_settings(annotations)))
    assert made <= MOST_CALLS
    assert held <= MOST_BYTES
    try:
        read_settings(annotations)
    except AnnotationError as error:
        assert len(str(error)) <= LONGEST_ANSWER


@pytest.mark.parametrize(
    "suffixes", [[each] for each in ("exclude", "mem-per-node", "dependency")] + [sorted(SUFFIXES)], ids=lambda each: each[-1]
)
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: f"{text[:12]!r}x{len(text)}")
def test_hostile_text_in_the_annotations_of_a_pod(suffixes: list[str], text: str) -> None:
    """All the way: admission, and what the scheduler makes of a pod that went round it."""
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": {SETTINGS + each: text for each in suffixes}},
        "spec": {"containers": [{"name": "c"}]},
    }

    def schedule() -> str:
        read = msgspec.convert(pod, Pod)
        workload = workload_of(WorkloadKey("Pod", "ns", "u"), [read])
        assert workload is not None
        return str(translate(Policy(SITE).grant("ns", {}).settled(workload), Site(cluster="c", partition="p")))

    for act in (lambda: admit_pod(pod, SITE, managed=True).refusal, schedule):
        made, held = cost(lambda act=act: answer(act))  # type: ignore[misc]
        assert made <= MOST_CALLS
        assert held <= MOST_BYTES
        assert len(answer(act)) <= LONGEST_ANSWER


def test_the_same_text_costs_less_at_the_next_looks() -> None:
    said = {SETTINGS + "exclude": "node-[0001-9876]", SETTINGS + "dependency": ",".join(["afterok:17"] * 90)}
    first = calls(lambda: read_settings(said))
    assert calls(lambda: [read_settings(said) for _ in range(30)]) < 30 * min(first, 60)


def test_thousands_of_annotations_with_our_prefix_are_refused_by_their_number() -> None:
    """A look for similar names took each of them a millisecond."""
    pod: dict[str, Any] = {"metadata": {"namespace": "ns", "annotations": {}}, "spec": {"containers": [{"name": "c"}]}}
    pod["metadata"]["annotations"] = {f"{SETTINGS}acount{number}": "x" for number in range(8000)}
    made, _ = cost(lambda: admit_pod(pod, SITE, managed=True))
    assert made <= 5 * 8000
    assert "more than 64 annotations" in admit_pod(pod, SITE, managed=True).refusal
    pod["metadata"]["annotations"] = {f"{TASK}x{number}": "x" for number in range(8000)}
    refusal = admit_pod(pod, SITE, managed=True).refusal
    assert len(refusal) <= LONGEST_ANSWER
    assert "and 7990 more problems" in refusal


def test_a_jobset_of_a_thousand_replicated_jobs_is_judged_in_proportion_to_its_bytes() -> None:
    def root(jobs: int, annotations: int) -> dict[str, Any]:
        template = {"metadata": {"annotations": {SETTINGS + "nice": "7"}}, "spec": {"containers": [{"name": "c"}]}}
        replicated = [{"name": f"r{number}", "template": {"spec": {"parallelism": 2, "template": template}}} for number in range(jobs)]
        notes = {f"other/{number}": "x" for number in range(annotations)} | {SETTINGS + "comment": "x" * 1000}
        return {"metadata": {"name": "s", "namespace": "ns", "annotations": notes}, "spec": {"replicatedJobs": replicated}}

    ten, thousand = root(10, 4000), root(1000, 4000)
    assert not admit_root(thousand, SITE).refusal
    assert calls(lambda: admit_root(thousand, SITE)) <= 100_000 + 2 * calls(lambda: admit_root(ten, SITE))
    wrong = root(1000, 0)
    for each in wrong["spec"]["replicatedJobs"]:
        each["template"]["spec"]["template"]["spec"]["nodeName"] = "n" * 100_000
    assert len(admit_root(wrong, SITE).refusal) <= LONGEST_ANSWER


def near_misses(jobs: int, names: int) -> dict[str, Any]:
    """A JobSet of which each template has annotations that are almost right."""
    replicated = [
        {"template": {"spec": {"template": {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}}}}}
        for annotations in ({f"{SETTINGS}time-limits{job}x{number}": "x" for number in range(names)} for job in range(jobs))
    ]
    return {"metadata": {"name": "s", "namespace": "ns"}, "spec": {"replicatedJobs": replicated}}


def test_a_jobset_of_thousands_of_mistakes_is_refused_for_the_first_of_them() -> None:
    """1,200 templates of 20 names that are almost right blocked the webhook for a second."""
    small, large = near_misses(3, 20), near_misses(1200, 20)
    made = calls(lambda: admit_root(large, SITE))
    assert made <= calls(lambda: admit_root(small, SITE)) + 1200 * 200
    refusal = admit_root(large, SITE).refusal
    assert refusal.count("did you mean") == 10
    assert "is not known" in refusal
    assert len(refusal) <= LONGEST_ANSWER


def test_names_that_are_almost_right_are_looked_for_ten_times_in_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    def look(suffix: str) -> str:
        looks.append(suffix)
        return ": did you mean x?"

    monkeypatch.setattr(annotations_module, "_suggestion", look)
    assert "more problems" in admit_root(near_misses(1200, 20), SITE).refusal
    assert len(looks) == MOST_HINTS
    pod = {"metadata": {"annotations": {f"{SETTINGS}x{number}": "" for number in range(60)}}, "spec": {"containers": []}}
    assert admit_pod(pod, SITE, managed=True).refusal
    assert len(looks) == 2 * MOST_HINTS


@pytest.mark.parametrize("jobs", [1, 40])
def test_an_object_that_was_wrong_already_may_be_changed_where_its_mistakes_are_too_many_to_be_told(jobs: int) -> None:
    before = near_misses(jobs, 20)
    after = near_misses(jobs, 20)
    after["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"].popitem()
    first = after["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"]
    del first[next(iter(first))]
    assert admit_root(before, SITE).refusal
    assert admit_root(after, SITE, before).refusal == ""


def test_a_pod_whose_annotations_were_wrong_already_may_be_changed() -> None:
    def pod(names: range) -> dict[str, Any]:
        annotations = {f"{SETTINGS}time-limit{number}": "" for number in names}
        spec = {"schedulerName": SITE.scheduler_name, "containers": [{"name": "c"}]}
        return {"metadata": {"name": "p", "namespace": "ns", "annotations": annotations}, "spec": spec}

    assert admit_change(pod(range(20)), pod(range(1, 20)), SITE, by_bridge=False).refusal == ""
    assert admit_change(pod(range(20)), pod(range(21)), SITE, by_bridge=False).refusal


def test_a_quantity_of_any_length_is_refused_as_one() -> None:
    """The API server takes a JobSet's and LeaderWorkerSet's quantities as they stand."""
    for text in ("1e999999999", "1e" + "9" * 5000, "9" * 5000, "0." + "0" * 100_000 + "1", "9" * 1_000_000 + "Gi", 10**5000):
        with pytest.raises(QuantityError) as caught:
            quantity(text)
        assert len(str(caught.value)) < 300


def test_a_jobset_of_a_role_named_like_numbers_is_read() -> None:
    found = msgspec.convert(
        {"metadata": {"name": "s"}, "spec": {"replicatedJobs": [{"name": "a-1", "replicas": 3}, {"name": "a", "replicas": 2}]}}, JobSet
    )
    group = group_of_root(found, "a-1")
    assert group is not None
    assert dict(group.first_ranks) == {"s-a-1-0": (0, 1), "s-a-1-1": (1, 1), "s-a-1-2": (2, 1), "s-a-0": (3, 1), "s-a-1": (4, 1)}
    assert "s-a-9" not in group.first_ranks
    assert "s-a-" + "9" * 5000 not in group.first_ranks


@pytest.mark.parametrize("text", HOSTLISTS, ids=lambda text: f"{text[:12]!r}x{len(text)}")
def test_a_hostlist_is_counted_before_a_name_of_it_is_made(text: str) -> None:
    made, held = cost(lambda: answer(lambda: count(text)))
    assert made <= 10_000
    assert held <= 2**20
    try:
        assert count(text, 100_000) == len(expand(text, 100_000))
    except ConfigurationError as error:
        assert len(str(error)) <= 400
        with pytest.raises(ConfigurationError):
            expand(text, 100_000)


@given(st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{0,4}(-[0-9]{1,3}){0,3}(\.[a-z]{1,2}[0-9]?)?", fullmatch=True)))
def test_what_was_shortened_expands_to_the_same_names_in_the_same_order(names: list[str]) -> None:
    assert expand(shorten(names)) == names


def test_shortening_takes_time_in_proportion_to_the_names() -> None:
    def work(size: int) -> int:
        names = [f"ip-10-{number // 62500}-{number // 250 % 250}-{number % 250}.eu-west-1.compute.internal" for number in range(size)]
        return calls(lambda: shorten(names))

    assert work(40_000) <= 11 * work(4_000)


def test_policy_errors_are_not_repeated_at_length() -> None:
    grant = Policy(SITE).grant("ns", {})
    said = read_settings({SETTINGS + "partition": ",".join(f"p{number}" for number in range(200))})
    assert len(grant.refusals(said)) == 200
    assert len(str(PolicyError(grant.refusals(said)))) <= LONGEST_ANSWER
