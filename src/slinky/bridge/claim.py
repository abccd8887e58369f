"""Which copy of this Kubernetes cluster may act on Slurm's jobs: a claim that both sides keep.

A control plane that was restored from a backup, or a second cluster with the same `cluster` setting, has the same identity in the jobs'
markers. It knows none of production's newer pods, so it would take their jobs for leftovers and end them.

Each leader's time has a claim: a generation, a random token, and a beat that grows while it leads. It is written to Kubernetes first
(an annotation on the Lease `NAME-claim`), then to Slurm: every job is submitted with it, and one live job, the bearer, gets each beat. So
Kubernetes always knows at least what Slurm knows. A Slurm that knows more was told by another copy of the cluster.

In Slurm the claim is part of `admin_comment`, which only an administrator can write. The owner of a job can change its `extra` and `comment`,
so a claim there could be forged, and would stop the bridge.

*Invariants:* no job gets a claim that Kubernetes has not confirmed: the next leader of this Kubernetes would take it for a copy's. Until
the jobs' claims were compared, and while one of them is foreign, nothing is done on either side: no submit, cancel,
bind, evict, or change of a node. Pods that run go on. Jobs without a claim (of an earlier release, or none in Slurm at all) stop nothing.
Only an administrator's word ends a conflict whose jobs live. Each beat rewrites the bearer's comment, and slurmctld logs all of it: of the
oldest live jobs, the one with the shortest comment is the bearer. No other part of the bridge writes that comment meanwhile.
"""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from slinky.bridge.comment_locks import CommentLocks
from slinky.bridge.keys import CLAIM, CLAIM_CONFLICT, TAKE_OVER
from slinky.bridge.marker import with_claim
from slinky.kube import (
    LEASES,
    AlreadyExistsError,
    Client,
    EventRecorder,
    ForbiddenError,
    InvalidError,
    KubeError,
    Lease,
    NotFoundError,
    ObjectReference,
    PatchKind,
)
from slinky.slurm import Job, JobDescription, RefusedError, SlurmClient, SlurmError
from slinky.slurm import NotFoundError as NoSuchJobError
from slinky.slurm.pod_comments import PodComment, read_pod_comment

__all__ = [
    "Claim",
    "ClaimKeeper",
    "Claimed",
    "claim_lease",
    "claim_of",
    "conflict_in",
    "foreign_among",
    "is_foreign",
]

log = logging.getLogger(__name__)

BEAT_SECONDS = 10.0  # less than a Lease takes to run out: a copy that may lead has seen production's next beat
BEARERS = 3  # the oldest live jobs: one of them gets each beat, and all are looked at
REMIND_SECONDS = 300.0
WRITTEN = re.compile(r"([0-9]{1,10})\.([0-9A-Za-z]{1,64})\.([0-9]{1,10})")


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Written as `generation.token.beat`."""

    generation: int
    token: str
    beat: int = 0

    def __str__(self) -> str:
        return f"{self.generation}.{self.token}.{self.beat}"

    @property
    def word(self) -> str:
        """By which an administrator names it: without the beat, which moves."""
        return f"{self.generation}.{self.token}"

    @classmethod
    def parse(cls, text: str) -> "Claim | None":
        found = WRITTEN.fullmatch(text)
        return cls(int(found[1]), found[2], int(found[3])) if found else None


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A live job of this cluster that carries a claim. `is_ours`: this Kubernetes has a pod with the job's label."""

    job_id: int
    claim: Claim
    is_ours: bool = False


def claim_of(admin_comment: str) -> Claim | None:
    """The claim that a job carries, whichever cluster wrote it."""
    said = read_pod_comment(admin_comment, _Claiming)
    return Claim.parse(said.claim) if said else None


class _Claiming(PodComment):
    claim: str = ""


def is_foreign(found: Claim, stored: Claim) -> bool:
    """Was it written by somebody else than this Kubernetes' leaders? `stored` is the newest that this Kubernetes knows of."""
    if found.generation != stored.generation:
        return found.generation > stored.generation
    return found.token != stored.token or found.beat > stored.beat


def foreign_among(jobs: Iterable[Claimed], stored: Claim | None) -> list[Claimed]:
    """The newest first. A Kubernetes without a claim (a new installation) knows a job as its own by its pod."""
    found = [job for job in jobs if (is_foreign(job.claim, stored) if stored else not job.is_ours)]
    return sorted(found, key=lambda job: (job.claim.generation, job.claim.beat), reverse=True)


def claim_lease(lease: str) -> str:
    """The Lease that keeps the claim: one of its own, as each write to the bridge's Lease would get in the way of its renewal."""
    return f"{lease}-claim"


class Conflict(msgspec.Struct, frozen=True, rename="camel"):
    """What the leader writes on the claim's Lease while it does nothing."""

    job_id: int
    claim: str

    @property
    def word(self) -> str:
        """For the annotation by which an administrator lets the bridge take over."""
        return self.claim.rpartition(".")[0]


def conflict_in(annotations: Mapping[str, str]) -> Conflict | None:
    """What the annotations of the claim's Lease say."""
    try:
        return msgspec.json.decode(annotations.get(CLAIM_CONFLICT, ""), type=Conflict)
    except msgspec.DecodeError:
        return None


class ClaimGauge:
    def __init__(self, registry: CollectorRegistry) -> None:
        text = "1 while the bridge does nothing because another copy of this cluster claims its jobs"
        self._gauge = Gauge("slinky_bridge_claim_conflict", text, registry=registry)

    def show(self, conflict: bool) -> None:
        self._gauge.set(1 if conflict else 0)


class ClaimKeeper:
    """`lease` names the bridge's Lease (namespace, name); `live()` are the ids of this leader's jobs that are not over."""

    def __init__(self, kube: Client, slurm: SlurmClient, lease: tuple[str, str], registry: CollectorRegistry) -> None:
        self._kube, self._slurm = kube, slurm
        self._namespace, self._name = lease[0], claim_lease(lease[1])
        self._gauge = ClaimGauge(registry)
        self._own: Claim | None = None
        self._off = ""  # why there are no claims
        self._foreign: Claimed | None = None
        self._noticed = asyncio.Event()
        self._said_at = float("-inf")
        self._told: str | None = None  # on the Lease: the conflict
        self.events: EventRecorder | None = None
        self.live: Callable[[], Iterable[int]] = tuple
        self.comments = CommentLocks()

    # For those that act

    @property
    def may_act(self) -> bool:
        return self._foreign is None and (self._own is not None or bool(self._off))

    @property
    def problem(self) -> str | None:
        """For the readiness probe and the log."""
        if self._foreign is None:
            return None
        job = self._foreign
        return (
            f"Slurm job {job.job_id} has claim {job.claim}, which this Kubernetes did not write. Either another cluster uses this Slurm "
            f"(a restored copy, or the same `cluster` setting), or this cluster was restored to an older state. "
            f"The bridge does nothing; running pods keep running. To let this bridge act, stop the other one and run: "
            f"kubectl -n {self._namespace} annotate --overwrite lease {self._name} {TAKE_OVER}={job.claim.word}"
        )

    def stamp(self) -> str | None:
        """The claim of a job that is submitted now."""
        return str(self._own) if self._own and not self._off else None

    def is_foreign_job(self, job_id: int, claim: Claim | None) -> bool:
        """Found while leading; from then on nothing is done, until it is known who wrote it."""
        if claim is None or self._own is None or not is_foreign(claim, self._own):
            return False
        self._stop(Claimed(job_id, claim))
        return True

    # A leader's time

    def begin(self) -> None:
        """Nothing is known yet, so nothing may be done."""
        self._own, self._foreign, self._off = None, None, ""
        self._gauge.show(False)

    async def settle(self, jobs: Sequence[Claimed]) -> bool:
        """Compare Slurm's claims with this Kubernetes' own. True: this leader's claim is made, and it may act. Raises KubeError and SlurmError."""
        try:
            lease = await self._lease()
        except ForbiddenError as error:
            return self._give_up(str(error))
        text = lease.metadata.annotations.get(CLAIM, "")
        self._told = lease.metadata.annotations.get(CLAIM_CONFLICT)
        stored = Claim.parse(text)
        foreign = foreign_among(jobs, stored)
        if foreign and lease.metadata.annotations.get(TAKE_OVER) != foreign[0].claim.word:
            self._conflict(foreign[0])
            await self._tell()
            return False
        newest = max([stored.generation if stored else 0, *(job.claim.generation for job in foreign)])
        claim = Claim(newest + 1, os.urandom(6).hex())
        if not await self._write(text, claim):
            return False  # another leader came in between: look again
        if foreign:
            log.warning("claim %s of Slurm job %d is taken over, as an administrator says", foreign[0].claim, foreign[0].job_id)
            for job_id in sorted(job.job_id for job in foreign)[:BEARERS]:  # its writer looks at the oldest that lives
                if await self._put_on(job_id, claim):
                    break
        self._own, self._foreign = claim, None
        self._gauge.show(False)
        await self._tell()
        log.info("this leader's claim in Slurm: %s", claim)
        return True

    async def run(self) -> None:
        """For ever: show in Slurm that this leader lives, and notice another."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._noticed.wait()
            self._noticed.clear()
            if self._own is None or self._off:
                continue
            try:
                if self._foreign is not None:
                    await self._resolve(self._foreign, self._own)
                else:
                    await self._beat(self._own)
                await self._tell()
            except (KubeError, SlurmError) as error:
                log.info("the claim in Slurm was not renewed: %s; again in %g s", error, BEAT_SECONDS)

    async def _beat(self, own: Claim) -> None:
        bearers = await self._bearers()
        for job in bearers:
            if self.is_foreign_job(job.job_id, claim_of(job.admin_comment)):
                return
        if not bearers:
            return
        beat = await self._next_beat(own)
        if beat is None:
            log.warning("Lease %s/%s has another claim than this leader's: another process leads", self._namespace, self._name)
            return
        self._own = beat
        for job in sorted(bearers, key=lambda job: (len(job.admin_comment), job.job_id)):
            if await self._put_on(job.job_id, beat):
                return

    async def _next_beat(self, own: Claim) -> Claim | None:
        """The beat after `own`, once Kubernetes has it; None when another leader wrote its claim.

        A write whose answer was lost may have been carried out: the next beat then follows what the Lease says.
        """
        beat = msgspec.structs.replace(own, beat=own.beat + 1)
        if await self._write(str(own), beat):
            return beat
        text = (await self._lease()).metadata.annotations.get(CLAIM, "")
        stored = Claim.parse(text)
        if stored is None or stored.word != own.word:
            return None
        beat = msgspec.structs.replace(stored, beat=stored.beat + 1)
        return beat if await self._write(text, beat) else None

    async def _bearers(self) -> list[Job]:
        """The oldest jobs that are not over."""
        found = []
        for job_id in sorted(self.live())[:BEARERS]:
            try:
                job = await self._slurm.jobs.get(job_id)
            except NoSuchJobError:
                continue
            if not job.is_finished:
                found.append(job)
        return found

    async def _resolve(self, foreign: Claimed, own: Claim) -> None:
        """The conflict is over when its job is, or when an administrator says so. It was none if this Kubernetes knows the claim."""
        lease = await self._lease()
        stored = Claim.parse(lease.metadata.annotations.get(CLAIM, ""))
        if stored is not None and not is_foreign(foreign.claim, stored):
            log.warning("job %d is of a newer leader of this Kubernetes: this process leads no longer", foreign.job_id)
            self.begin()
            return
        if lease.metadata.annotations.get(TAKE_OVER) == foreign.claim.word:
            claim = Claim(max(own.generation, foreign.claim.generation) + 1, os.urandom(6).hex())
            if await self._write(lease.metadata.annotations.get(CLAIM, ""), claim):
                await self._put_on(foreign.job_id, claim)
                self._over(claim, "an administrator says so")
            return
        try:
            job = await self._slurm.jobs.get(foreign.job_id)
        except NoSuchJobError:
            self._over(own, f"job {foreign.job_id} is gone")
            return
        if job.is_finished:
            self._over(own, f"job {foreign.job_id} is over")
        else:
            self._conflict(foreign)

    def _over(self, own: Claim, why: str) -> None:
        log.warning("the conflict with claim %s is over: %s", self._foreign.claim if self._foreign else "?", why)
        self._own, self._foreign = own, None
        self._gauge.show(False)

    def _stop(self, job: Claimed) -> None:
        """Nothing is done; whether another copy or only a newer leader wrote the claim is looked up at once."""
        if self._foreign is None:
            self._foreign = job
            self._noticed.set()

    def _conflict(self, job: Claimed) -> None:
        self._foreign = job
        self._gauge.show(True)
        now = asyncio.get_running_loop().time()
        if now - self._said_at < REMIND_SECONDS:
            return
        self._said_at = now
        text = self.problem or ""
        log.error("%s", text)
        if self.events is not None:
            about = ObjectReference(api_version="coordination.k8s.io/v1", kind="Lease", namespace=self._namespace, name=self._name)
            self.events.record(about, "ClaimConflict", text, warning=True)

    def _give_up(self, why: str) -> bool:
        log.warning("no claim is kept, so the bridge cannot notice a restored copy of this cluster on the same Slurm: %s", why)
        self._off, self._foreign = why, None
        self._gauge.show(False)
        return True

    # The edges

    async def _tell(self) -> None:
        """On the Lease: whether there is a conflict. A failure is made good with the next beat."""
        found = self._foreign
        said = msgspec.json.encode(Conflict(found.job_id, str(found.claim))).decode() if found else None
        if said == self._told:
            return
        change = {"metadata": {"annotations": {CLAIM_CONFLICT: said}}}
        try:
            await self._kube.patch(LEASES, self._name, change, self._namespace)
        except KubeError as error:
            log.info("Lease %s/%s does not show the conflict: %s", self._namespace, self._name, error)
        else:
            self._told = said

    async def _lease(self) -> Lease:
        try:
            return await self._kube.get(LEASES, self._name, self._namespace)
        except NotFoundError:
            body = {"metadata": {"name": self._name, "annotations": {}}, "spec": {}}
            try:
                return await self._kube.create(LEASES, body, self._namespace)
            except AlreadyExistsError:
                return await self._kube.get(LEASES, self._name, self._namespace)

    async def _write(self, before: str, claim: Claim) -> bool:
        """If it still says what it said `before`: two leaders of one Kubernetes never write over each other."""
        path = f"/metadata/annotations/{CLAIM.replace('/', '~1')}"
        patch = [{"op": "test", "path": path, "value": before}, {"op": "replace", "path": path, "value": str(claim)}]
        try:
            if before:
                await self._kube.patch(LEASES, self._name, patch, self._namespace, kind=PatchKind.JSON)
            else:
                await self._kube.patch(LEASES, self._name, {"metadata": {"annotations": {CLAIM: str(claim)}}}, self._namespace)
        except InvalidError:
            return False
        return True

    async def _put_on(self, job_id: int, claim: Claim) -> bool:
        """False where the job does not take it: one that names a deleted node cannot be changed."""
        try:
            async with self.comments.of(job_id):
                comment = (await self._slurm.jobs.get(job_id)).admin_comment
                there = claim_of(comment)
                if there and is_foreign(there, claim):  # it came since this leader looked
                    self._stop(Claimed(job_id, there))
                    return True
                await self._slurm.jobs.update(job_id, JobDescription(admin_comment=with_claim(comment, str(claim))))
        except (NoSuchJobError, RefusedError) as error:
            log.debug("job %d does not take the claim: %s", job_id, error)
            return False
        return True
