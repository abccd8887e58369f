"""How the bridge knows its own jobs again: the comment, the marker, the workload's name in it."""

from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.marker import (
    MOST_BYTES,
    Failure,
    Told,
    comment_for,
    failures_of,
    marker_for,
    read_comment,
    told_of,
    with_failures,
    with_told,
)
from slinky.bridge.workload import WorkloadKey

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
KINDS = st.sampled_from(["Pod", "PodGroup", "Workload", "CoschedulingPodGroup", "Job"])
PARTS = st.builds(lambda names, job: "/".join(names) + job, st.lists(NAMES, min_size=1, max_size=3), st.sampled_from(["", "#7"]))


@given(KINDS, NAMES, PARTS)
def test_a_workloads_name_is_read_as_it_was_written(kind: str, namespace: str, name: str) -> None:
    key = WorkloadKey(kind, namespace, name)  # type: ignore[arg-type]
    assert WorkloadKey.parse(str(key)) == key


@given(st.text(max_size=40))
def test_anything_else_is_no_workload(text: str) -> None:
    found = WorkloadKey.parse(text)
    assert found is None or str(found) == text


@given(st.lists(NAMES, min_size=1, unique=True), st.integers(0, 20))
def test_a_comment_is_read_as_it_was_written_and_the_order_of_pods_does_not_matter(uids: list[str], attempt: int) -> None:
    comment = comment_for("c1", "Job ns/a", [("ns", uid) for uid in uids], uids, attempt)
    read = read_comment(comment, "c1")
    assert read is not None
    assert (read.workload, read.count, list(read.pods)) == ("Job ns/a", len(uids), [f"ns/{uid}" for uid in uids])
    assert read.marker == marker_for("c1", "Job ns/a", reversed(uids), attempt)


def test_attempts_have_markers_of_their_own_that_tell_whose_they_are() -> None:
    first, *others = [marker_for("c1", "Pod ns/u", ["u"], attempt) for attempt in range(20)]
    assert len({first, *others}) == 20
    assert all(other.startswith(first) for other in others)
    assert not marker_for("c1", "Pod ns/u", ["u", "v"]).startswith(first)
    assert not marker_for("c2", "Pod ns/u", ["u"]).startswith(first)
    assert not marker_for("c1", "Pod ns/w", ["u"]).startswith(first)


def test_a_large_gangs_comment_is_cut_and_still_read() -> None:
    uids = [f"{number:036}" for number in range(5000)]
    comment = comment_for("c1", "Job ns/large", [("namespace", "pod" * 20 + uid) for uid in uids], uids)
    assert len(comment) <= MOST_BYTES
    read = read_comment(comment, "c1")
    assert read is not None
    assert read.count == 5000
    assert 0 < len(read.pods) < 5000


def test_what_is_not_ours_is_nothing() -> None:
    ours = comment_for("c1", "Pod ns/u", [("ns", "a")], ["u"])
    assert read_comment(ours, "c2") is None
    for text in (
        "",
        "a person's word",
        "{}",
        "[]",
        '{"pods":["ns/a"]}',
        ours.replace('"slinky": 1', '"slinky": 2').replace('"slinky":1', '"slinky":2'),
        ours[:-5],
    ):
        assert read_comment(text, "c1") is None


@given(st.sets(st.integers(0, 400), min_size=1))
def test_the_ranks_of_a_component_are_read_as_they_were_written(ranks: set[int]) -> None:
    own = tuple(sorted(ranks))
    found = read_comment(comment_for("c", "w", [], ["u"], 0, own), "c")
    assert found is not None
    assert found.ranks == own


def test_ranks_that_are_none_of_ours_are_none() -> None:
    for text in ("x", "1-", "-1", "3-x", "0-99999999999", "²"):
        found = read_comment('{"slinky":1,"marker":"m","cluster":"c","ranks":"' + text + '"}', "c")
        assert found is not None
        assert found.ranks in ((), (1,))


@given(
    st.lists(
        st.builds(Failure, st.integers(0, 9999), st.text("abcdef0123456789-", min_size=36, max_size=36), st.integers(1, 255)), max_size=100
    )
)
def test_failures_of_pods_that_are_gone_are_read_as_they_were_written_the_worst_first(failures: list[Failure]) -> None:
    plain = with_told(comment_for("c", "w", [("ns", "a")], ["u"]), Told(constraint="x"))
    written = with_failures(plain, failures)
    found = failures_of(written)
    assert set(found) <= set(failures)
    assert len(found) == min(len(failures), 64)
    assert max((failure.exit_code for failure in found), default=0) == max((failure.exit_code for failure in failures), default=0)
    assert read_comment(written, "c") == read_comment(plain, "c")
    assert told_of(written) == Told(constraint="x")
    assert with_failures(written, []) == plain


def test_a_comment_that_somebody_else_has_written_is_left_as_it_is() -> None:
    assert with_failures("a person's word", [Failure(0, "u", 1)]) == "a person's word"
    assert failures_of("a person's word") == ()
    assert failures_of('{"failed": "x"}') == ()
