"""Whatever the two sides say, something is said about it, and nothing is raised."""

from hypothesis import given
from hypothesis import strategies as st

from slinky.explain.facts import Facts
from slinky.explain.report import as_json, explain_job, explain_node, explain_pod, text
from slinky.slurm import JobFlag, JobState, NodeFlag, NodeState
from tests.explain.worlds import facts, job, kube_node, lease, namespace, node, number, partition, pod, reservation

words = st.text(max_size=30)
reasons = (
    st.sampled_from(["", "None", "Priority", "Resources", "JobHeldUser", "QOSJobLimit", "ReqNodeNotAvail, Reserved for maintenance"])
    | words
)
standings = st.none() | st.tuples(
    st.sampled_from(["Parked", "Window", "Lost", "NodeNotFree", "Absent", "Gathering", "JobHeldAdmin"]) | words, words
)
jobs = st.builds(
    lambda state, flag, reason, said, priority: job(
        7, f"{state}+{flag}", reason, state_description=said, priority=number(priority), nodes="w1"
    ),
    st.sampled_from(JobState),
    st.sampled_from(JobFlag),
    reasons,
    words,
    st.integers(0, 2**32 - 1),
)
nodes = st.builds(
    lambda state, flag, gres, reason: node("w1", f"{state}+{flag}", gres=gres, reason=reason),
    st.sampled_from(NodeState),
    st.sampled_from(NodeFlag),
    words,
    words,
)
pods = st.builds(
    lambda standing, number, where, phase, scheduler: pod(
        job=number, standing=standing, spec={"nodeName": where, "schedulerName": scheduler}, status={"phase": phase}
    ),
    standings,
    st.sampled_from([0, 7]),
    st.sampled_from(["", "w1"]),
    st.sampled_from(["Pending", "Running", "Failed", ""]),
    st.sampled_from(["slurm-bridge-scheduler", "default-scheduler"]),
)
unread = st.frozensets(st.sampled_from(["pod", "job", "lease", "nodes", "queue"]))


@st.composite
def situations(draw: st.DrawFn) -> Facts:
    kube = {
        "pod": draw(st.none() | pods),
        "namespace": draw(st.none() | st.just(namespace())),
        "lease": draw(st.none() | st.just(lease())),
        "node": draw(st.none() | st.just(kube_node())),
        "unread": draw(unread),
    }
    slurm = {
        "asked": 7,
        "jobs": tuple(draw(st.lists(jobs, max_size=2))),
        "queue": draw(st.none() | st.just((job(8),))),
        "partitions": (partition(state=draw(words)),),
        "nodes": tuple(draw(st.lists(nodes, max_size=2))),
        "reservations": draw(st.just(()) | st.just((reservation(starts=-5),))),
        "unread": draw(unread),
    }
    return facts(kube, slurm)


@given(situations())
def test_whatever_is_so_it_is_explained(seen: Facts) -> None:
    for explained in (explain_pod(seen), explain_job(seen), explain_node(seen)):
        assert text(explained).startswith(explained.about)
        assert as_json(explained)
        assert all(found.seen for found in explained.findings)


@given(pods, jobs)
def test_a_pod_that_waits_in_a_world_that_is_known_is_never_without_a_word(waits: object, its: object) -> None:
    assert explain_pod(facts({"pod": waits}, {"asked": 7, "jobs": (its,)})).findings
