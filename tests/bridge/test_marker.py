"""How the bridge knows its own jobs again: the comment, the marker, the workload's name in it."""

from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.marker import (
    MOST_BYTES,
    MOST_EXCLUDED,
    MOST_REST,
    Failure,
    Told,
    comment_for,
    failures_of,
    made_by_others,
    marker_for,
    read_comment,
    told_of,
    told_that,
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


# What a job was told, however much it is

SOME = st.lists(st.from_regex(r"[a-z]{1,3}-[a-z0-9]{4,8}", fullmatch=True), unique=True, max_size=40)


def many(seed: int, count: int) -> list[str]:
    return [f"ip-10-{seed % 256}-{number % 256}-{number // 256}.eu-central-1.compute.internal" for number in range(count)]


@given(SOME, st.integers(0, 255), st.integers(0, 3000), st.integers(0, 4), st.integers(0, 2))
def test_exclusions_are_known_again_and_so_are_those_that_others_added(
    more: list[str], seed: int, count: int, added: int, removed: int
) -> None:
    """Few or thousands: the comment has them in full, or checksums of them."""
    ours = {*more[added:], *many(seed, count)}
    hostlist = ",".join(sorted(ours))
    told = told_that("zone=a", hostlist)
    comment = with_told(comment_for("c", "w", [("ns", "a" * 200)] * 200, ["u"]), told)
    read = told_of(comment)
    assert read == told
    assert bool(read.sums) == (len(hostlist) > MOST_EXCLUDED)
    assert made_by_others(frozenset(ours), read) == frozenset()
    theirs = set(more[:added]) - ours
    assert made_by_others(frozenset(ours | theirs), read) == theirs
    left = {*sorted(ours)[removed:]}
    assert made_by_others(frozenset(left | theirs), read, likely=frozenset(ours)) == theirs, "and where some were taken out, too"


@given(SOME)
def test_a_list_that_others_have_put_in_place_of_ours_is_theirs(names: list[str]) -> None:
    told = told_that("", ",".join(many(1, 3000)))
    assert made_by_others(frozenset(names), told) == frozenset(names)


def test_many_added_at_once_are_found_in_bounded_time_and_most_of_ours_stay_ours() -> None:
    ours, theirs = frozenset(many(1, 3000)), frozenset(f"added-{number}x" for number in range(100))
    told = told_that("", ",".join(sorted(ours)))
    found = made_by_others(ours | theirs, told)
    assert theirs <= found
    assert len(found & ours) < len(ours) / 10


def test_what_others_wrote_for_checksums_is_none_of_ours() -> None:
    there = frozenset({"n1"})
    for sums in ("x", "AAAA", "é", "A" * 100_000):
        assert made_by_others(there, Told(sums=sums)) == there


def test_a_long_constraint_is_known_again_by_its_digest() -> None:
    long = "|".join(f"zone=z{number}" for number in range(5000))
    assert told_that(long, "").is_ours(long)
    assert not told_that(long, "").is_ours(long + "x")
    assert told_that("zone=a", "").is_ours("zone=a")
    assert not told_that("zone=a", "").is_ours("")
    assert told_that("", "").is_ours("")


def test_whatever_is_to_be_told_fits_into_a_comment() -> None:
    """With as many pods and failures as it can have."""
    uids = [f"{number:036}" for number in range(5000)]
    comment = comment_for("c1", "Job ns/large", [("namespace", "pod" * 20 + uid) for uid in uids], uids)
    failed = with_failures(comment, [Failure(99_999, uid, 255) for uid in uids])
    for constraint, hostlist in (("x" * 1024, "n" * MOST_EXCLUDED), ("x" * 100_000, ",".join(many(1, 20_000)))):
        written = with_told(failed, told_that(constraint, hostlist))
        assert len(written) < MOST_BYTES + MOST_REST
        assert told_of(written) != Told()
        assert failures_of(with_failures(written, failures_of(failed))) == failures_of(failed)
