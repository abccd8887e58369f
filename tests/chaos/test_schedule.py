"""The same seed is the same storm; every kind of fault comes; nothing asks for more than there is."""

from collections import Counter

from tests.chaos.run import SHAPE, Plan
from tests.chaos.schedule import KINDS, OLD_STATE, REQUEST_KINDS
from tests.chaos.slurm_side import APART, record_of

PLAN = Plan(seed=7, seconds=600, faults_per_second=10)


def test_the_same_seed_is_the_same_schedule_and_another_is_another() -> None:
    again, other = Plan(seed=7, seconds=600, faults_per_second=10), Plan(seed=8, seconds=600, faults_per_second=10)
    assert (again.faults, again.arrivals) == (PLAN.faults, PLAN.arrivals)
    assert other.faults != PLAN.faults
    assert other.arrivals != PLAN.arrivals


def test_a_longer_run_of_a_seed_begins_as_a_shorter_one() -> None:
    short = Plan(seed=7, seconds=60, faults_per_second=10)
    assert [fault for fault in PLAN.faults if fault.at < 60] == short.faults
    assert [arrival for arrival in PLAN.arrivals if arrival.at < 60] == short.arrivals


def test_every_kind_of_fault_comes_about_as_often_as_its_share_says() -> None:
    counts = Counter(fault.kind for fault in PLAN.faults)
    assert counts.keys() == REQUEST_KINDS.keys() | KINDS.keys()
    decks = sum(counts[kind] for kind in REQUEST_KINDS) // sum(REQUEST_KINDS.values())
    assert all(decks * count <= counts[kind] <= (decks + 1) * count for kind, count in REQUEST_KINDS.items())


def test_an_old_state_comes_once_and_only_if_asked_for() -> None:
    assert OLD_STATE not in {fault.kind for fault in PLAN.faults}
    asked = Plan(seed=7, seconds=600, old_state=True)
    assert [fault.kind for fault in asked.faults].count(OLD_STATE) == 1


def test_there_are_hundreds_of_pods_of_every_shape_and_each_fits_a_node() -> None:
    assert sum(arrival.pods for arrival in Plan(seed=1, seconds=240).arrivals) > 300
    assert {arrival.shape for arrival in PLAN.arrivals} == {"pod", "job", "gang-job", "pod-group", "jobset", "stays"}
    pods = [document for arrival in PLAN.arrivals for document in arrival.documents if document["kind"] == "Pod"]
    for pod in pods:
        asked = pod["spec"]["containers"][0]["resources"]["requests"]
        assert int(asked["cpu"]) <= SHAPE.node_cpus
        assert int(asked.get("nvidia.com/gpu", 0)) <= SHAPE.node_gpus


def test_a_line_of_accounting_is_read() -> None:
    comment = '{"slinky":1,"marker":"slinky-1","cluster":"chaos","workload":"Pod a/u","count":1,"pods":["a/p"]}'
    words = ["12", "a/p", "CANCELLED by 0", "100", "101", "Unknown", "kwok-[1-2]", "billing=2,cpu=2,gres/gpu=1,mem=2G,node=2", comment]
    job = record_of(APART.join(words))
    assert (job.job_id, job.nodes, job.cpus, job.gpus, job.memory) == (12, ("kwok-1", "kwok-2"), 2, 1, 2 << 30)
    assert (job.start, job.end, job.cluster, job.pods) == (101.0, 0.0, "chaos", ("a/p",))
