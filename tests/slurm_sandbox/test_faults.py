"""What the client does when slurmrestd, slurmctld or the way to them misbehaves: a real slurmrestd behind a proxy that breaks things."""

import asyncio
import logging
import random
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from slinky.sandbox.handle import Sandbox
from slinky.slurm import (
    AuthenticationError,
    BadAnswerError,
    CircuitOpenError,
    ConfigurationError,
    DeadlineError,
    FixedToken,
    ForbiddenError,
    JobDescription,
    Limits,
    OutcomeUnknownError,
    SlurmClient,
    SlurmError,
    TokenFile,
    UnavailableError,
)
from slinky.slurm.connection import Server
from slinky.slurm.credentials import mint
from slinky.slurm.versions import Version
from tests.faults import Fault, FaultProxy, HeardRequest
from tests.slurm_sandbox.conftest import QUICK, until

pytestmark = pytest.mark.sandbox

JOB = JobDescription(name="faulty", tasks=1, cpus_per_task=1, memory_per_node=16, partition="bridge", time_limit=10)
AFTER_IT_WAS_DONE = [fault for fault in Fault if fault.name.startswith("DONE_")]
BEFORE_IT_WAS_DONE = [Fault.RESET, Fault.STALL, Fault.PLAIN_500]


class Once:
    """A plan: the fault for the first request of that kind, then peace."""

    def __init__(self, fault: Fault, method: str, ending: str) -> None:
        self.fault, self.method, self.ending, self.struck = fault, method, ending, 0

    def __call__(self, request: HeardRequest) -> Fault:
        if self.struck or request.method != self.method or not request.path.partition("?")[0].endswith(self.ending):
            return Fault.NONE
        self.struck += 1
        return self.fault


def marker(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}-{random.getrandbits(40):x}".replace("[", "-").replace("]", "")


@pytest.mark.parametrize("fault", [*BEFORE_IT_WAS_DONE, *AFTER_IT_WAS_DONE])
async def test_a_read_survives_each_fault(through: SlurmClient, proxy: FaultProxy, fault: Fault) -> None:
    proxy.plan = plan = Once(fault, "GET", "/ping/")

    assert await through.is_up()

    assert plan.struck == 1


@pytest.mark.parametrize("fault", [*BEFORE_IT_WAS_DONE, *AFTER_IT_WAS_DONE])
async def test_a_submit_that_went_wrong_is_unknown_and_is_sent_once(
    slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy, fault: Fault, request: pytest.FixtureRequest
) -> None:
    proxy.plan = Once(fault, "POST", "/job/submit")
    mark = marker(request)
    submit = through.within(2).jobs.submit_external(JOB, marker=mark)

    if fault is Fault.DONE_TWO_ANSWERS:  # the first answer is whole, and is believed
        assert (await submit).job_id
    else:
        with pytest.raises(OutcomeUnknownError) as caught:
            await submit
        assert not caught.value.outcome_known
        assert "job/submit" in caught.value.request

    assert len([heard for heard in proxy.heard if heard.path.endswith("/job/submit")]) == 1
    assert len(await slurm.jobs.find_all(mark)) == (fault in AFTER_IT_WAS_DONE)


@pytest.mark.parametrize("fault", [*BEFORE_IT_WAS_DONE, *AFTER_IT_WAS_DONE])
async def test_once_makes_exactly_one_job(
    slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy, fault: Fault, request: pytest.FixtureRequest
) -> None:
    proxy.plan = plan = Once(fault, "POST", "/job/submit")
    mark = marker(request)

    submitted = await through.within(2).jobs.submit_external(JOB, marker=mark, once=True, settle=0.3)

    assert plan.struck == 1
    assert await slurm.jobs.find_all(mark) == [submitted.job_id]
    again = await through.jobs.submit_external(JOB, marker=mark, once=True)
    assert again.job_id == submitted.job_id


async def test_refused_connections_are_no_outcome_to_wonder_about(
    slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy, request: pytest.FixtureRequest
) -> None:
    await through.jobs.find("nothing")  # markers are read before the trouble begins
    async with proxy.refusing():
        with pytest.raises(UnavailableError) as caught:
            await through.jobs.submit_external(JOB, marker=(mark := marker(request)))
    assert caught.value.outcome_known
    assert await slurm.jobs.find(mark) is None


async def test_a_stall_of_30_seconds_ends_at_the_deadline(through: SlurmClient, proxy: FaultProxy) -> None:
    proxy.plan = lambda _: Fault.STALL
    began = asyncio.get_running_loop().time()
    with pytest.raises(DeadlineError):
        await through.within(1).jobs.states()
    assert asyncio.get_running_loop().time() - began < 2


async def test_401_is_answered_with_the_rotated_token(sandbox: Sandbox, proxy: FaultProxy, tmp_path: Path) -> None:
    """The first token is refused by the real Slurm; while that answer is on its way the file gets the good one."""
    file = tmp_path / "token"
    shutil.copy(sandbox.token_file, file)
    async with SlurmClient(proxy.url, TokenFile(file, look_every=0), limits=QUICK) as client:
        await client.server()
        good = file.read_text()
        file.write_text("not.a.token")

        def rotate(_: HeardRequest) -> Fault:
            file.write_text(good)
            return Fault.NONE

        with pytest.raises(AuthenticationError) as caught:
            await client.jobs.states()
        assert good.strip() not in str(caught.value)
        proxy.plan = rotate
        assert await client.jobs.states() is not None
        proxy.plan = Once(Fault.UNAUTHORIZED, "GET", "/state/")
        with pytest.raises(AuthenticationError):  # a 401 with the same token is final
            await client.jobs.states()


async def test_the_circuit_opens_and_a_ping_closes_it(sandbox: Sandbox, proxy: FaultProxy, caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(deadline=3, attempt=1, attempts=1, circuit_threshold=3)
    async with SlurmClient(proxy.url, TokenFile(sandbox.token_file), limits=limits) as client:
        await client.server()
        with caplog.at_level(logging.INFO, "slinky.slurm"):
            async with proxy.refusing():
                for _ in range(3):
                    with pytest.raises(UnavailableError):
                        await client.jobs.states()
                with pytest.raises(CircuitOpenError) as caught:
                    await client.jobs.states()
                assert caught.value.outcome_known

            async def answers() -> bool:
                try:
                    return await client.jobs.states() is not None
                except CircuitOpenError:
                    return False

            await until(answers, "the circuit closing")
        assert "until a ping succeeds" in caplog.text
        assert "answers pings again" in caplog.text


async def test_slurmctld_stopped_and_started(sandbox: Sandbox, slurm: SlurmClient, request: pytest.FixtureRequest) -> None:
    """A submit while slurmctld is down is known not to be done; a `once` submit waits for it; a watch goes on."""
    mark = marker(request)
    await slurm.jobs.find("nothing")
    watched = await slurm.jobs.submit_external(JOB)
    transitions = slurm.jobs.watch([watched.job_id])
    async for transition in transitions:
        assert transition.after
        if transition.after.is_running:
            break
    part = await sandbox.stop("slurmctld")
    try:
        assert not await slurm.is_up()
        with pytest.raises(UnavailableError) as caught:
            await slurm.within(11).jobs.submit_external(JOB, marker=mark)
        assert caught.value.number == 1800
        pending = asyncio.create_task(slurm.jobs.submit_external(JOB, marker=mark, once=True, settle=1))
    finally:
        await sandbox.link.start(part)
    submitted = await pending
    assert await slurm.jobs.find_all(mark) == [submitted.job_id]
    await slurm.jobs.cancel(watched.job_id)
    last = [transition async for transition in transitions]
    assert last[-1].after
    assert last[-1].after.is_finished


async def test_no_job_is_lost_or_doubled_in_1000_submits_through_random_faults(
    slurm: SlurmClient, sandbox: Sandbox, proxy: FaultProxy, request: pytest.FixtureRequest
) -> None:
    faults = [*BEFORE_IT_WAS_DONE, *AFTER_IT_WAS_DONE]
    dice = random.Random(20)
    deck: list[Fault] = []  # for submits: every kind comes up once before any comes up again, whatever else is asked meanwhile
    struck: Counter[Fault] = Counter()

    def plan(heard: HeardRequest) -> Fault:
        if dice.random() > 0.15:
            return Fault.NONE
        if not heard.path.endswith("/job/submit"):
            return dice.choice(faults)
        if not deck:
            deck.extend(dice.sample(faults, len(faults)))
        struck[fault := deck.pop()] += 1
        return fault

    mark = marker(request)
    limits = Limits(deadline=1.5, attempt=1.5, attempts=5, first_pause=0.02, longest_pause=0.2)
    async with SlurmClient(proxy.url, TokenFile(sandbox.token_file), limits=limits) as client:
        proxy.plan = plan
        turns = asyncio.Semaphore(32)

        async def submit(number: int) -> int:
            job = JobDescription(name="chaos", tasks=1, cpus_per_task=1, memory_per_node=1, partition="bridge", hold=True)
            async with turns:
                while True:
                    try:
                        return (await client.jobs.submit_external(job, marker=f"{mark}:{number}", once=True, settle=0.5)).job_id
                    except SlurmError as error:  # a caller who does not give up: the marker makes it safe
                        assert not isinstance(error, AuthenticationError)

        ids = await asyncio.gather(*(submit(number) for number in range(1000)))
    markers = Counter([job.extra async for job in slurm.jobs.stream() if job.extra.startswith(f"{mark}:")])
    assert len(set(ids)) == 1000
    assert markers == {f"{mark}:{number}": 1 for number in range(1000)}
    assert min(struck[fault] for fault in faults) >= 3, f"too few faults to mean anything: {struck}"


async def test_a_job_that_slurmctld_makes_after_its_sender_gave_up_is_found(
    sandbox: Sandbox, slurm: SlurmClient, request: pytest.FixtureRequest
) -> None:
    """slurmctld stands still while a submit waits in its socket, and carries it out when it goes on."""
    mark = marker(request)
    await slurm.jobs.find("nothing")
    await sandbox.link.signal("slurmctld", signal.SIGSTOP)
    try:
        pending = asyncio.create_task(slurm.within(2).jobs.submit_external(JOB, marker=mark, once=True, settle=5))

        async def gave_up() -> bool:
            return slurm._connection.transport.circuit._failures > 0

        await until(gave_up, "the submit giving up")
    finally:
        await sandbox.link.signal("slurmctld", signal.SIGCONT)
    submitted = await pending
    assert submitted.message == "found by its marker"
    assert await slurm.jobs.find_all(mark) == [submitted.job_id]


async def test_the_same_marker_at_the_same_time_is_one_job(slurm: SlurmClient, request: pytest.FixtureRequest) -> None:
    mark = marker(request)
    submitted = await asyncio.gather(*(slurm.jobs.submit_external(JOB, marker=mark, once=True) for _ in range(10)))
    assert len({each.job_id for each in submitted}) == 1
    assert len(await slurm.jobs.find_all(mark)) == 1


async def test_finding_a_marker_costs_one_full_list_and_then_the_new_jobs_alone(
    slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy, request: pytest.FixtureRequest
) -> None:
    mark = marker(request)

    def asked() -> list[str]:
        paths = [heard.path.partition("v0.0.45/")[2] for heard in proxy.heard]
        proxy.heard.clear()
        return paths

    await through.jobs.find("nothing")
    assert asked().count("jobs/") == 1
    ids = [(await slurm.jobs.submit_external(JOB, marker=f"{mark}-{number}")).job_id for number in range(3)]
    assert await through.jobs.find_all(f"{mark}-1") == [ids[1]]
    assert sorted(asked()) == sorted(["jobs/state/", *(f"job/{job_id}" for job_id in ids)])
    assert await through.jobs.find_all(f"{mark}-2") == [ids[2]]
    assert asked() == ["jobs/state/"]


async def test_a_stream_that_breaks_says_so(slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy) -> None:
    await slurm.jobs.submit_external(JOB)
    for fault, error in (
        (Fault.DONE_TRUNCATED, BadAnswerError),
        (Fault.DONE_RESET_MIDDLE, UnavailableError),
        (Fault.PLAIN_500, UnavailableError),
    ):
        proxy.plan = lambda heard, fault=fault: fault if heard.path.endswith("/jobs/") else Fault.NONE  # type: ignore[misc]
        with pytest.raises(error):
            [job async for job in through.jobs.stream()]
    proxy.plan = Once(Fault.STALL, "GET", "/jobs/")
    with pytest.raises(DeadlineError):
        [job async for job in through.within(1).jobs.stream()]
    assert [job async for job in through.jobs.stream()]
    assert through._connection.transport.lanes.in_flight == 0


async def test_no_token_reaches_a_log_or_an_error_whatever_breaks(
    through: SlurmClient, proxy: FaultProxy, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    token = sandbox.token_file.read_text().strip()
    shown: list[str] = []
    with caplog.at_level(logging.DEBUG):
        for fault in Fault:
            for method, ending in (("POST", "/job/submit"), ("GET", "/state/")):
                proxy.plan = plan = Once(fault, method, ending)
                try:
                    await (through.within(1).jobs.submit_external(JOB) if method == "POST" else through.jobs.states())
                except SlurmError as error:
                    shown += traceback.format_exception(error)
                assert plan.struck
    assert shown
    assert caplog.records
    assert token not in "".join(shown)
    assert token not in caplog.text
    assert token.split(".")[2] not in caplog.text


async def test_a_name_reaches_slurm_as_a_name_whatever_is_in_it(slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy) -> None:
    job_id = (await slurm.jobs.submit_external(JOB)).job_id
    calls: list[tuple[Callable[[str], Awaitable[object]], str]] = [
        (through.nodes.delete, "node"),
        (through.nodes.get, "node"),
        (through.partitions.get, "partition"),
        (through.reservations.get, "reservation"),
        (through.reservations.delete, "reservation"),
        (through.accounting.account, "account"),
        (through.accounting.user, "user"),
    ]
    for call, what in calls:
        for name, written in ((f"../job/{job_id}", f"..%2Fjob%2F{job_id}"), ("kwok-00?flags=x&y#z", "kwok-00%3Fflags%3Dx%26y%23z")):
            proxy.heard.clear()
            with pytest.raises(SlurmError):
                await call(name)
            assert {heard.path.partition("?")[0].rpartition(f"/{what}/")[2] for heard in proxy.heard} == {written}
        for name in ("", ".", ".."):
            with pytest.raises(ConfigurationError, match="is no name of a"):
                await call(name)
    with pytest.raises(ConfigurationError):
        await through.call("DELETE", f"/slurm/{{version}}/node/../job/{job_id}")
    assert not (await slurm.jobs.get(job_id)).is_finished


@pytest.mark.long
async def test_a_stream_is_tried_again_until_its_first_piece(slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy) -> None:
    await slurm.jobs.submit_external(JOB)
    for fault in (Fault.RESET, Fault.PLAIN_500, Fault.DONE_RESET, Fault.DONE_CLOSE_EARLY):
        proxy.plan = plan = Once(fault, "GET", "/jobs/")
        assert [job async for job in through.jobs.stream()]
        assert plan.struck == 1
    async with proxy.refusing():
        pending = asyncio.create_task(through.jobs.submit_external(JOB, marker="first-of-all", once=True))
        await asyncio.sleep(0.01)
    assert (await pending).job_id
    assert through._connection.transport.lanes.in_flight == 0


async def test_a_stream_takes_the_rotated_token(sandbox: Sandbox, proxy: FaultProxy, tmp_path: Path) -> None:
    file = tmp_path / "token"
    shutil.copy(sandbox.token_file, file)
    good = file.read_text()
    async with SlurmClient(proxy.url, TokenFile(file, look_every=0), limits=QUICK) as client:
        await client.server()
        file.write_text("not.a.token")

        def rotate(_: HeardRequest) -> Fault:
            file.write_text(good)
            return Fault.NONE

        with pytest.raises(AuthenticationError):
            [job async for job in client.jobs.stream()]
        proxy.plan = rotate
        [job async for job in client.jobs.stream()]


async def test_a_stream_that_fails_opens_the_circuit(sandbox: Sandbox, proxy: FaultProxy) -> None:
    limits = Limits(deadline=3, attempt=1, attempts=1, circuit_threshold=3)
    async with SlurmClient(proxy.url, TokenFile(sandbox.token_file), limits=limits) as client:
        await client.server()
        async with proxy.refusing():
            for kind in (UnavailableError, UnavailableError, UnavailableError, CircuitOpenError):
                with pytest.raises(kind):
                    [job async for job in client.jobs.stream()]


async def test_an_error_whose_text_never_comes_ends_at_the_deadline(sandbox: Sandbox) -> None:
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 INTERNAL ERROR\r\nContent-Length: 17\r\n\r\n")
        with suppress(OSError):
            await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with SlurmClient(url, TokenFile(sandbox.token_file)) as client:
            client._connection._found.append(Server(Version(45), "", frozenset()))
            async with asyncio.timeout(5):
                with pytest.raises(DeadlineError):
                    [job async for job in client.within(0.5).jobs.stream()]
            assert client._connection.transport.lanes.in_flight == 0
        await over.wait()


async def test_a_circuit_that_opened_does_not_hide_that_the_token_is_refused(sandbox: Sandbox, proxy: FaultProxy, tmp_path: Path) -> None:
    file = tmp_path / "token"
    shutil.copy(sandbox.token_file, file)
    limits = Limits(deadline=3, attempt=1, attempts=1, circuit_threshold=3)
    async with SlurmClient(proxy.url, TokenFile(file, look_every=0), limits=limits) as client:
        await client.server()
        async with proxy.refusing():
            file.write_text("not.a.token")
            for _ in range(3):
                with pytest.raises(UnavailableError):
                    await client.jobs.states()
        async with asyncio.timeout(10):
            await client._connection.transport.circuit.closed()
        with pytest.raises(AuthenticationError):
            await client.jobs.states()


async def test_where_there_is_no_accounting_the_owner_is_looked_at_before_a_cancel(
    sandbox: Sandbox, slurm: SlurmClient, proxy: FaultProxy
) -> None:
    """Also for a token that names its user itself. The server is the real one; that it has accounting is kept from the client."""
    job_id = (await slurm.jobs.submit_external(JOB)).job_id
    token = mint((sandbox.head / "etc/slurm/jwt_hs256.key").read_bytes(), "alice", 60, time.time())
    async with SlurmClient(proxy.url, FixedToken(token)) as alice:
        server = await alice.server()
        alice._connection._found[0] = Server(server.version, server.release, frozenset())
        with pytest.raises(ForbiddenError, match="belongs to root, and alice asks"):
            await alice.jobs.cancel(job_id)
    assert "DELETE" not in {heard.method for heard in proxy.heard}


async def test_once_sees_the_jobs_of_others_when_what_it_knows_is_old(
    slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy, request: pytest.FixtureRequest
) -> None:
    """Also where Slurm does not answer at first, and where the marker stands in JSON."""
    mark = marker(request)
    await through.jobs.submit_external(JOB, marker=f"{mark}-first", once=True)
    comment = JobDescription(tasks=1, partition="bridge", memory_per_node=16, admin_comment=f'{{"slinky":1,"marker":"{mark}"}}')
    theirs = await slurm.jobs.submit_external(comment, marker=mark, marker_in="admin_comment")
    through._markers._refresh_began = float("-inf")
    proxy.plan = plan = Once(Fault.RESET, "GET", "/state/")
    found = await through.jobs.submit_external(comment, marker=mark, marker_in="admin_comment", once=True)
    assert (found.job_id, found.message, plan.struck) == (theirs.job_id, "found by its marker", 1)
    proxy.heard.clear()
    await asyncio.gather(*(through.jobs.submit_external(JOB, marker=f"{mark}-{number}", once=True) for number in range(20)))
    assert {heard.path.rpartition("v0.0.45/")[2] for heard in proxy.heard} == {"job/submit"}
