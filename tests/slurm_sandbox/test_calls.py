"""Each call, against a real slurmrestd and slurmctld, in every version that both sides speak."""

import asyncio
import time
import tracemalloc
from collections.abc import AsyncIterator

import msgspec
import pytest

from slinky.sandbox.handle import Sandbox
from slinky.slurm import (
    INFINITE,
    AlreadyDoneError,
    ConfigurationError,
    ForbiddenError,
    JobDescription,
    JobState,
    MintedToken,
    NodeChange,
    NodeDescription,
    NodeGres,
    NotFoundError,
    RefusedError,
    SlurmClient,
    TokenFile,
    UnsupportedError,
    job_ids,
    markers,
    streams,
)
from slinky.slurm.numbers import Triplet
from tests.slurm_sandbox.conftest import until

pytestmark = pytest.mark.sandbox

SMALL = JobDescription(name="small", tasks=1, cpus_per_task=1, memory_per_node=64, partition="bridge", time_limit=10)
SCRIPT = JobDescription(name="batch", script="#!/bin/sh\nsleep 1\n", partition="compute", hold=True)
VERSIONS = ["v0.0.43", "v0.0.44", "v0.0.45"]


@pytest.fixture(params=VERSIONS)
async def each(sandbox: Sandbox, slurm: SlurmClient, request: pytest.FixtureRequest) -> AsyncIterator[SlurmClient]:
    """A client of each version; `slurm` cleans up behind it."""
    assert slurm
    async with SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file), version=request.param) as client:
        yield client


async def running(client: SlurmClient, job_id: int) -> None:
    async def is_running() -> bool:
        return (await client.jobs.states([job_id]))[0].is_running

    await until(is_running, f"job {job_id} running")


# The server


async def test_the_newest_version_is_spoken(slurm: SlurmClient) -> None:
    server = await slurm.server()
    assert str(server.version) == "v0.0.45"
    assert server.release.startswith("Slurm-26.05")
    assert server.has_accounting


async def test_a_version_that_is_not_served_is_refused_with_those_that_are(sandbox: Sandbox) -> None:
    async with SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file), version="v0.0.46") as client:
        with pytest.raises(UnsupportedError, match=r"offers v0\.0\.42, v0\.0\.43, v0\.0\.44, v0\.0\.45"):
            await client.ping()


async def test_ping(each: SlurmClient) -> None:
    [ping] = await each.ping()
    assert (ping.hostname, ping.responding, ping.primary) == ("head", True, True)


async def test_the_cluster(each: SlurmClient) -> None:
    assert (await each.diag()).jobs_submitted >= 0
    shares = {share.name: share for share in await each.shares()}
    assert shares["alice"].is_user
    assert shares["physics"].shares == 40
    assert [share.name for share in await each.shares(users=["carol"], accounts=["physics"])] == ["carol", "physics"]
    partitions = {partition.name: partition for partition in await each.partitions.all()}
    assert partitions["bridge"].is_up
    assert partitions["bridge"].maximums.time is INFINITE
    assert partitions["bridge"].nodes.total >= 20
    assert (await each.partitions.get("all")).name == "all"
    with pytest.raises(NotFoundError):
        await each.partitions.get("nope")


async def test_licenses(each: SlurmClient, sandbox: Sandbox) -> None:
    name = f"solver{(await each.server()).version.number}"
    sacctmgr = ("head", "sacctmgr", "--immediate")
    await sandbox.link.run(
        *sacctmgr, "add", "resource", f"name={name}", "server=flex", "count=50", "type=license", "cluster=sandbox", "allowed=100"
    )
    try:

        async def told() -> bool:
            return any(license.name == f"{name}@flex" for license in await each.licenses())

        await until(told, "slurmctld knowing the licenses")
        found = next(license for license in await each.licenses() if license.name == f"{name}@flex")
        assert (found.total, found.used, found.free, found.is_remote) == (50, 0, 50, True)
    finally:
        await sandbox.link.run(*sacctmgr, "delete", "resource", f"name={name}", "server=flex")


async def test_conf_and_reconfigure(slurm: SlurmClient, sandbox: Sandbox) -> None:
    assert (await slurm.conf())["ClusterName"] == "sandbox"
    await slurm.reconfigure()
    await until(slurm.is_up, "slurmctld answering after a reconfigure")
    async with SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file), version="v0.0.44") as older:
        with pytest.raises(UnsupportedError, match=r"26\.05"):
            await older.conf()


async def test_reservations(each: SlurmClient) -> None:
    name = f"maintenance-{(await each.server()).version.number}"
    start = int(time.time()) + 3600
    await each.reservations.put(
        name, start_time=start, duration=60, users=["alice"], node_list=["kwok-00"], partition="bridge", flags=["MAINT"]
    )
    try:
        found = await each.reservations.get(name)
        assert (found.node_list, found.users, found.start_time) == ("kwok-00", "alice", start)
        assert name in {reservation.name for reservation in await each.reservations.all()}
        await each.reservations.put(name, users=["alice", "bob"])
        assert (await each.reservations.get(name)).users == "alice,bob"
    finally:
        await each.reservations.delete(name)
    with pytest.raises(NotFoundError):
        await each.reservations.get(name)


async def test_a_generic_call_reaches_what_has_no_method(slurm: SlurmClient) -> None:
    answer = await slurm.call("POST", "/util/{version}/hostnames", {"hostlist": "n[1-3]"})
    assert answer["hostnames"] == ["n1", "n2", "n3"]
    assert (await slurm.call("GET", "/slurm/{version}/node/kwok-00"))["nodes"][0]["name"] == "kwok-00"
    states = await slurm.call("GET", "/slurm/{version}/jobs/state/?job_id=99999999")  # a query in the path is one
    assert states["jobs"] == []
    with pytest.raises(UnsupportedError, match="no path"):
        await slurm.call("GET", "/slurm/{version}/nothing/")
    with pytest.raises(NotFoundError):
        await slurm.call("GET", "/slurm/{version}/job/99999999")


# Jobs


async def test_an_external_job_from_submit_to_cancel(each: SlurmClient) -> None:
    submitted = await each.jobs.submit_external(SMALL)
    await running(each, submitted.job_id)
    job = await each.jobs.get(submitted.job_id)
    assert (job.name, job.user_name, job.state, job.cpus, job.time_limit) == ("small", "root", JobState.RUNNING, 1, 10)
    assert job.is_external
    assert job.nodes
    assert job.memory_per_node == 64
    assert job.memory_per_cpu is None
    assert job.het_job_id in (0, None)
    await each.jobs.cancel(job.job_id)
    assert (await each.jobs.get(job.job_id)).state is JobState.CANCELLED
    await each.jobs.cancel(job.job_id)  # over already: fine


async def test_a_held_job_is_no_failure_and_is_released(each: SlurmClient) -> None:
    submitted = await each.jobs.submit_external(JobDescription(name="held", tasks=1, partition="bridge", hold=True))
    assert any("held" in note for note in submitted.notes)
    assert (await each.jobs.get(submitted.job_id)).is_held
    await each.jobs.release(submitted.job_id)
    await running(each, submitted.job_id)
    waiting = await each.jobs.submit_external(JobDescription(tasks=1, partition="bridge", begin_time=int(time.time()) + 3600))
    await each.jobs.hold(waiting.job_id)
    assert (await each.jobs.get(waiting.job_id)).is_held


async def test_update_changes_what_it_names(each: SlurmClient) -> None:
    job_id = (await each.jobs.submit_external(SMALL)).job_id
    await each.jobs.update(job_id, JobDescription(comment="new", time_limit=77))
    job = await each.jobs.get(job_id)
    assert (job.comment, job.time_limit, job.name) == ("new", 77, "small")
    with pytest.raises(NotFoundError):
        await each.jobs.update(99999999, JobDescription(comment="x"))


async def test_hetjobs(each: SlurmClient) -> None:
    leader = await each.jobs.submit_hetjob(
        [SMALL, JobDescription(name="other", tasks=2, memory_per_node=64, partition="bridge")], external=True
    )
    jobs = [await each.jobs.get(leader.job_id + part) for part in (0, 1)]
    assert [(job.het_job_id, job.het_job_offset, job.name) for job in jobs] == [(leader.job_id, 0, "small"), (leader.job_id, 1, "other")]


async def test_states_of_many_cost_one_request_and_leave_out_the_unknown(each: SlurmClient) -> None:
    ids = [submitted.job_id for submitted in await asyncio.gather(*(each.jobs.submit_external(SMALL) for _ in range(5)))]
    states = await each.jobs.states([*ids, 99999999])
    assert sorted(status.job_id for status in states) == sorted(ids)
    assert {status.job_id for status in await each.jobs.states()} >= set(ids)
    assert {status.job_id for status in await each.jobs.states([*ids, *range(10**7, 10**7 + 500)])} == set(ids)
    assert await each.jobs.states([]) == []


async def test_lists_and_streams_agree(each: SlurmClient) -> None:
    ids = {(await each.jobs.submit_external(SMALL)).job_id for _ in range(3)}
    listed = {job.job_id: job.name for job in await each.jobs.all()}
    streamed = {job.job_id: job.name async for job in each.jobs.stream()}
    assert ids <= listed.keys()
    assert all(streamed[job_id] == "small" for job_id in ids)


async def test_a_streamed_list_is_counted_like_any_other_request(sandbox: Sandbox) -> None:
    counted: list[tuple[str, str]] = []
    client = SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file), observer=lambda one: counted.append((one.call, one.outcome)))
    async with client:
        async for _ in client.jobs.stream():
            pass
    assert counted.count(("GET slurm/jobs", "ok")) == 1


async def test_cancel_many_tells_about_those_it_could_not(each: SlurmClient) -> None:
    ids = [(await each.jobs.submit_external(SMALL)).job_id for _ in range(3)]
    results = await each.jobs.cancel_many([*ids, 99999999])
    assert [(result.label, result.error.code) for result in results] == [("99999999", 2017)]
    assert all(status.is_finished for status in await each.jobs.states(ids))
    with pytest.raises(NotFoundError):
        await each.jobs.cancel(99999999)
    assert await each.jobs.cancel_many([]) == []


async def test_a_signal_other_than_kill_is_sent(slurm: SlurmClient) -> None:
    job_id = (await slurm.jobs.submit(SCRIPT)).job_id
    with pytest.raises(RefusedError):  # a pending job takes no TERM: Slurm says so, so it heard
        await slurm.jobs.cancel(job_id, signal="NOTASIGNAL")
    await slurm.jobs.cancel(job_id, signal="KILL")


async def test_a_batch_job_is_submitted_held_and_requeued(slurm: SlurmClient, sandbox: Sandbox) -> None:
    job_id = (await slurm.jobs.submit(SCRIPT)).job_id
    job = await slurm.jobs.get(job_id)
    assert not job.is_external
    assert job.is_pending
    with pytest.raises(RefusedError, match="2024"):  # it is pending: there is nothing to requeue
        await slurm.jobs.requeue(job_id)
    for requeue in (slurm.jobs.requeue(job_id), slurm.jobs.requeue_many([job_id])):
        await slurm.jobs.cancel(job_id)
        assert (await slurm.jobs.get(job_id)).is_finished
        await requeue
        assert (await slurm.jobs.get(job_id)).is_pending
    with pytest.raises(ConfigurationError):
        await slurm.jobs.submit(JobDescription(name="no script"))
    external = await slurm.jobs.submit_external(SMALL)
    with pytest.raises(RefusedError, match="2039"):
        await slurm.jobs.requeue(external.job_id)
    async with SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file), version="v0.0.44") as older:
        with pytest.raises(UnsupportedError, match=r"26\.05"):
            await older.jobs.requeue(job_id)


async def test_the_allocation_of_a_job(slurm: SlurmClient) -> None:
    job_id = (
        await slurm.jobs.submit_external(
            JobDescription(
                tasks=2,
                tasks_per_node=1,
                minimum_nodes=2,
                cpus_per_task=4,
                memory_per_node=128,
                tres_per_node="gres/gpu:2",
                partition="bridge",
            )
        )
    ).job_id
    await running(slurm, job_id)
    allocation = await slurm.jobs.allocation(job_id)
    assert len(allocation.nodes) == 2
    for node in allocation.nodes:
        assert node.memory == 128
        assert len(node.cores) == 4
        assert [(gres.name, gres.count) for gres in node.gres] == [("gpu", 2)]
        assert len(gres_indices(node.gres[0].index or "")) == 2


def gres_indices(text: str) -> list[int]:
    return [i for part in text.split(",") for low, _, high in [part.partition("-")] for i in range(int(low), int(high or low) + 1)]


async def test_a_refusal_carries_slurms_number_name_and_words(each: SlurmClient) -> None:
    with pytest.raises(RefusedError) as caught:
        await each.jobs.submit_external(JobDescription(tasks=1, partition="nope"))
    assert (caught.value.number, caught.value.name) == (2000, "ESLURM_INVALID_PARTITION_NAME")
    assert caught.value.outcome_known
    assert "job/submit" in caught.value.request
    with pytest.raises(NotFoundError):
        await each.jobs.get(99999999)


async def test_a_chosen_id_is_refused_the_second_time(slurm: SlurmClient) -> None:
    chosen = JobDescription(tasks=1, partition="bridge", hold=True, job_id=50_000_000 + int(time.time()) % 1_000_000)
    assert (await slurm.jobs.submit_external(chosen)).job_id == chosen.job_id
    with pytest.raises(AlreadyDoneError, match="2011"):
        await slurm.jobs.submit_external(chosen)


async def test_a_job_is_found_by_its_marker_by_a_client_that_did_not_submit_it(slurm: SlurmClient, sandbox: Sandbox) -> None:
    marker = f"workload-{time.time_ns()}"
    marked = await slurm.jobs.submit_external(SMALL, marker=marker, marker_in="admin_comment")
    async with SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file)) as other:
        found = await other.jobs.find(marker, marker_in="admin_comment")
        assert found
        assert found.job_id == marked.job_id
        assert await other.jobs.find(marker) is None  # another field
        assert await other.jobs.find(marker[:-1], marker_in="admin_comment") is None
        later = await slurm.jobs.submit_external(SMALL, marker=f"{marker}-b")
        assert await other.jobs.find_all(f"{marker}-b") == [later.job_id]


@pytest.mark.parametrize(("many", "version"), [(20_000, ""), (-1, ""), (-1, "v0.0.44")], ids=["few", "many", "many, no next id"])
async def test_a_sole_submitter_finds_its_job_among_the_newest_and_reads_nothing_before_a_submit(
    slurm: SlurmClient, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, many: int, version: str
) -> None:
    monkeypatch.setattr(job_ids, "MANY_JOBS", many)
    monkeypatch.setattr(markers, "OLDER_IN_A_ROW", 20)
    held = JobDescription(tasks=1, partition="bridge", hold=True)
    older = [(await slurm.jobs.submit_external(held)).job_id for _ in range(60)]
    submitted = (await slurm.jobs.get(older[-1])).submit_time
    assert isinstance(submitted, int)

    async def later() -> bool:
        now = (await slurm.diag()).req_time
        return isinstance(now, int) and now > submitted + markers.CLOCK_SECONDS + 1

    await until(later, "Slurm's clock to be past the time that clocks may differ by")
    since = time.time()
    marker = f"workload-{time.time_ns()}"
    lost = await slurm.jobs.submit_external(held, marker=marker, marker_in="admin_comment")
    newer = [(await slurm.jobs.submit_external(held)).job_id for _ in range(5)]
    async with SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file), version=version) as other:
        await other.jobs.submits_alone("admin_comment")
        await other.jobs.ids_used(older[0])
        assert await other.jobs.find_all(marker, marker_in="admin_comment", since=since) == [lost.job_id]
        assert await other.jobs.last_id() >= newer[-1]
        assert await other.jobs.live_ids() >= {*older, lost.job_id, *newer}
        await slurm.jobs.cancel(newer[0])
        newest = (await slurm.jobs.submit_external(held)).job_id
        again = await other.jobs.live_ids()
        assert newest in again
        assert newer[0] not in again
        unread = set(await other.jobs.unread(live=True))
        assert not unread & {lost.job_id, *newer}
        assert len(unread & set(older)) >= 20, "it stopped at those that were submitted before"
        assert (await other.jobs.submit_external(held, marker=marker, marker_in="admin_comment", once=True)).job_id == lost.job_id
        records = await other.jobs.records([older[0], 999_999_999], learn=True)
        assert [job.job_id for job in records] == [older[0]]
        assert older[0] not in await other.jobs.unread()


async def test_a_restart_of_slurmctld_shows_in_its_statistics_and_a_look_at_them_does_not(slurm: SlurmClient, sandbox: Sandbox) -> None:
    before = await slurm.diag()
    assert before.rpcs_by_message_type
    await sandbox.restart("slurmctld")
    after = await slurm.diag()
    assert after.is_of_another_start(before)

    async def counts() -> bool:  # for half a second after its start slurmctld has none: then nothing tells of one more start
        nonlocal after
        after = await slurm.diag()
        return bool(after.rpcs_by_message_type)

    await until(counts, "slurmctld counting requests")
    assert not (await slurm.diag()).is_of_another_start(after)
    midnight = msgspec.structs.replace(after, _req_time_start=Triplet(set=True, number=1))
    assert not (await slurm.diag()).is_of_another_start(midnight), "the counts have not fallen"


async def test_a_ping_does_not_wait_behind_bulk(slurm: SlurmClient) -> None:
    submits = [asyncio.create_task(slurm.jobs.submit_external(JobDescription(tasks=1, partition="bridge", hold=True))) for _ in range(300)]
    await asyncio.sleep(0)
    assert await slurm.is_up()
    assert sum(submit.done() for submit in submits) < 100
    assert len({submitted.job_id for submitted in await asyncio.gather(*submits)}) == 300


async def test_a_full_list_is_read_with_bounded_memory(slurm: SlurmClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too much to be held is decoded as it arrives."""
    monkeypatch.setattr(streams, "AT_ONCE", 0)
    await asyncio.gather(*(slurm.jobs.submit_external(JobDescription(tasks=1, partition="bridge", hold=True)) for _ in range(300)))
    tracemalloc.start()
    try:
        count = 0
        async for _ in slurm.jobs.stream():
            count += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count >= 300
    assert peak < 1_300_000, f"{count} jobs of 9 KB took {peak:,} bytes"


# Who asks


async def test_an_ordinary_user_may_submit_her_own_and_no_more(slurm: SlurmClient, sandbox: Sandbox) -> None:
    key = sandbox.head / "etc/slurm/jwt_hs256.key"
    async with SlurmClient(sandbox.slurm_server, MintedToken(key, "alice", lifespan=60)) as alice:
        mine = await alice.jobs.submit_external(SMALL)
        assert (await alice.jobs.get(mine.job_id)).user_name == "alice"
        others = await slurm.jobs.submit_external(SMALL)
        with pytest.raises(ForbiddenError):
            await alice.jobs.cancel(others.job_id)
        with pytest.raises(RefusedError):
            await alice.nodes.drain("kwok-00", "not hers")
        await alice.jobs.cancel(mine.job_id)
    assert not (await slurm.nodes.get("kwok-00")).is_drained


async def test_an_administrator_asks_as_a_user(slurm: SlurmClient, sandbox: Sandbox) -> None:
    async with SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file, user="bob")) as as_bob:
        submitted = await as_bob.jobs.submit_external(SMALL)
    assert (await slurm.jobs.get(submitted.job_id)).user_name == "bob"


# Nodes


async def test_nodes(each: SlurmClient) -> None:
    nodes = {node.name: node for node in await each.nodes.all()}
    node = await each.nodes.get("kwok-01")
    assert node.name in nodes
    assert node.is_external or (await each.server()).version.number < 44
    assert node.cpus == node.sockets * node.cores * node.threads
    assert "bridge" in node.partitions
    with pytest.raises(NotFoundError):
        await each.nodes.get("nope")


async def test_drain_undrain_down_resume_one_or_many(each: SlurmClient) -> None:
    await each.nodes.drain("kwok-[10-12]", "new disks")
    node = await each.nodes.get("kwok-11")
    assert node.is_drained
    assert node.reason.startswith("new disks")
    await each.nodes.undrain(["kwok-10", "kwok-12"])
    assert [(await each.nodes.get(name)).is_drained for name in ("kwok-10", "kwok-11", "kwok-12")] == [False, True, False]
    await each.nodes.down("kwok-11", "broken")
    assert (await each.nodes.get("kwok-11")).is_down
    await each.nodes.resume("kwok-11")
    assert all([(await each.nodes.get(name)).takes_jobs for name in ("kwok-10", "kwok-11", "kwok-12")])
    with pytest.raises(NotFoundError):
        await each.nodes.drain("nope", "x")


async def test_update_of_nodes(each: SlurmClient) -> None:
    await each.nodes.update("kwok-13", NodeChange(comment="hello", weight=7))
    node = await each.nodes.get("kwok-13")
    assert (node.comment, node.weight) == ("hello", 7)
    await each.nodes.update("kwok-13", NodeChange(comment="", weight=1))


async def test_nodes_are_made_and_removed(slurm: SlurmClient, sandbox: Sandbox) -> None:
    plain = NodeDescription(
        name="made-[1-3]",
        address="127.9.0.[1-3]",
        cpus=8,
        sockets_per_board=1,
        cores_per_socket=4,
        threads_per_core=2,
        boards=1,
        real_memory=1000,
        features=["made"],
    )
    gpus = NodeDescription(
        name="gpu-[1-2]", address="127.9.1.[1-2]", cpus=4, real_memory=1000, gres=[NodeGres(name="gpu", type="h100", count=2)]
    )
    try:
        assert await slurm.nodes.create(plain) == ["made-1", "made-2", "made-3"]
        assert await slurm.nodes.create(gpus) == ["gpu-1", "gpu-2"]
        node = await slurm.nodes.get("made-2")
        assert (node.address, node.cpus, node.features, node.is_external) == ("127.9.0.2", 8, ["made"], True)
        assert (await slurm.nodes.get("gpu-2")).gres == "gpu:h100:2"
        with pytest.raises(AlreadyDoneError):
            await slurm.nodes.create(plain)
    finally:
        await slurm.nodes.delete(["made-1", "made-2", "made-3"])
        for name in ("gpu-1", "gpu-2"):
            await slurm.nodes.delete(name)
    with pytest.raises(NotFoundError):
        await slurm.nodes.delete("made-1")
    async with SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file), version="v0.0.43") as older:
        with pytest.raises(UnsupportedError, match=r"25\.11"):
            await older.nodes.create(plain)


# Accounting


async def test_accounting(each: SlurmClient) -> None:
    accounting = each.accounting
    assert {account.name for account in await accounting.accounts()} >= {"research", "physics", "biology", "ai"}
    assert {association.user for association in (await accounting.account("physics")).associations} >= {"alice", "bob"}
    assert {user.name for user in await accounting.users()} >= {"alice", "bob", "carol", "dave", "root"}
    assert (await accounting.user("root")).is_administrator
    assert {association.account for association in await accounting.associations(user="alice")} == {"physics", "ai"}
    qos = {quality.name: quality for quality in await accounting.qos()}
    assert (qos["high"].priority, sorted(qos["high"].preempt.over)) == (1000, ["low", "normal"])
    assert [cluster.name for cluster in await accounting.clusters()] == ["sandbox"]
    assert {"cpu", "mem", "gres"} <= {tres.type for tres in await accounting.tres()}
    for missing in (accounting.account("nope"), accounting.user("nope"), accounting.job(99999999)):
        with pytest.raises(NotFoundError):
            await missing


async def test_wckeys(each: SlurmClient) -> None:
    name = f"key{(await each.server()).version.number}"
    await each.call("POST", "/slurmdb/{version}/wckeys/", {"wckeys": [{"name": name, "user": "alice", "cluster": "sandbox"}]})
    [found] = [wckey for wckey in await each.accounting.wckeys() if wckey.name == name]
    assert (found.user, found.cluster) == ("alice", "sandbox")


async def test_jobs_of_the_past(each: SlurmClient) -> None:
    job_id = (await each.jobs.submit_external(JobDescription(name="past", tasks=1, partition="bridge"))).job_id
    await running(each, job_id)
    await each.jobs.cancel(job_id)

    async def told() -> bool:
        try:
            return (await each.accounting.job(job_id)).state is JobState.CANCELLED
        except NotFoundError:
            return False

    await until(told, "accounting knowing the job")
    job = await each.accounting.job(job_id)
    assert (job.name, job.user, job.partition, job.is_finished) == ("past", "root", "bridge", True)
    assert job.time.end >= job.time.start > 0
    assert job_id in {past.job_id for past in await each.accounting.jobs(users=["root"])}
    assert job_id not in {past.job_id for past in await each.accounting.jobs(users=["alice"])}
