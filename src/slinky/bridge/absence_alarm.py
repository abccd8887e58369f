"""The alarm that is raised where many of our jobs are absent from Slurm at once, and what follows an outage.

Comes in: what the poller and the records say of jobs, the bridge's Lease. Goes out: whether anything may be settled about absent jobs; an Event on the Lease, a metric, a reason not to be ready; and another look at every job after an outage. What must
stay true: it deletes nothing and asks Slurm nothing itself; looks after an outage come at a limited rate; an administrator's word counts for the alarm that it names, and for no other.
"""

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from slinky.bridge.absence import Alarm, Toll, is_mass, next_alarm
from slinky.bridge.jobs import Jobs
from slinky.bridge.keys import ABSENCE_CONFIRMED
from slinky.bridge.memory import Known
from slinky.bridge.poller import JobPoller
from slinky.bridge.settings import AbsenceSettings
from slinky.bridge.workload import WorkloadKey
from slinky.kube import LEASES, Client, EventRecorder, KubeError, Lease, ObjectReference, reference

__all__ = ["AbsenceAlarm", "AbsenceGauges"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
JUDGED_SECONDS = 0.1  # how long it is good enough to have counted
LEASE_SECONDS = 3.0  # between two looks for an administrator's word, while there is an alarm
LOOKS_PER_SECOND = 50.0  # at jobs, after an outage


class AbsenceGauges:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.alarm = Gauge(
            "slinky_bridge_absence_alarm", "1 while many jobs are absent from Slurm at once, and nothing is deleted", registry=registry
        )
        self.absent = Gauge("slinky_bridge_absent_jobs", "Jobs with pods on nodes that Slurm does not know", registry=registry)

    def show(self, alarm: Alarm | None, absent: int) -> None:
        self.alarm.set(1 if alarm else 0)
        self.absent.set(absent)


class AbsenceAlarm:
    """`known` is what is remembered of workloads, `look(key)` asks for another look at one. Without `events` (shadow mode) it is logged only. `lease` is the bridge's, by namespace and name."""

    def __init__(
        self,
        settings: AbsenceSettings,
        jobs: Jobs,
        poller: JobPoller,
        known: Mapping[WorkloadKey, Known],
        look: Callable[[WorkloadKey], None],
        kube: Client,
        events: EventRecorder | None,
        lease: tuple[str, str],
        gauges: AbsenceGauges,
    ) -> None:
        self._settings = settings
        self._jobs = jobs
        self._poller = poller
        self._known = known
        self._look = look
        self._kube = kube
        self._events = events
        self._lease = lease
        self._gauges = gauges
        self._lease_at = float("-inf")
        self._judged = (float("-inf"), False)
        self.alarm: Alarm | None = None
        jobs.holds_back = self.holds_back

    @property
    def problem(self) -> str | None:
        """For the readiness probe: for people's eyes, as nothing is sent to a bridge anyway."""
        return f"{self.alarm.words}; nothing is evicted or let go on that ground: {self._advice(self.alarm)}" if self.alarm else None

    def holds_back(self) -> bool:
        """Whether nothing is to be settled about absent jobs now."""
        if self.alarm is not None:
            return True
        now = asyncio.get_running_loop().time()
        if now - self._judged[0] >= JUDGED_SECONDS:
            self._judged = (now, is_mass(self._toll(), self._settings))
        return self._judged[1]

    async def run(self) -> None:
        """For ever."""
        epoch = self._poller.epoch
        looks: asyncio.Task[None] | None = None
        try:
            while True:
                await self._judge()
                if self._poller.epoch != epoch:
                    epoch = self._poller.epoch
                    if looks:
                        looks.cancel()
                    looks = asyncio.create_task(self._look_at_all(), name="looks after an outage")
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._gauges.show(None, 0)
            if looks:
                looks.cancel()

    async def _look_at_all(self) -> None:
        """Every job, also those that were lost: a number may mean another job now, and a job may be back."""
        for key, known in list(self._known.items()):
            if known.job_id:
                self._look(key)
                await asyncio.sleep(1 / LOOKS_PER_SECOND)

    def _absent(self) -> Iterable[tuple[WorkloadKey, Known]]:
        for key in {*self._poller.owners_gone(), *self._jobs.foreign}:
            known = self._known.get(key)
            if known is not None and known.holds and not known.lost and not known.over and not known.given_up:
                yield key, known

    def _toll(self) -> Toll:
        absent = sum(1 for _ in self._absent())
        return Toll(sum(known.holds for known in self._known.values()) if absent else 0, absent)

    async def _judge(self) -> None:
        toll, before = self._toll(), self.alarm
        if before is None and not toll.absent:
            self._gauges.show(None, 0)
            return
        lease = await self._read_lease() if before else None
        confirmed = lease.metadata.annotations.get(ABSENCE_CONFIRMED, "") if lease else ""
        self.alarm = next_alarm(before, toll, self._settings, confirmed, f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}")
        self._gauges.show(self.alarm, toll.absent)
        if before is None and self.alarm is not None:
            await self._raise(self.alarm)
        elif before is not None and self.alarm is None:
            await self._end(before, by_word=confirmed == before.name)

    async def _raise(self, alarm: Alarm) -> None:
        text = f"{alarm.words}: nothing is evicted or let go on that ground. {self._advice(alarm)}"
        log.error("absence alarm %s: %s", alarm.name, text)
        self._tell(await self._read_lease(now=True), "AbsenceAlarm", text, warning=True)

    async def _end(self, alarm: Alarm, *, by_word: bool) -> None:
        if by_word:
            gone = list(self._absent())
            for key, known in gone:
                known.given_up = True
                self._look(key)
            text = f"alarm {alarm.name} is over, as an administrator confirmed it: {len(gone)} jobs are given up, and their pods run on"
        else:
            text = f"alarm {alarm.name} is over: Slurm knows the jobs again, or their pods are gone"
        log.warning("absence %s", text)
        self._tell(await self._read_lease(now=True), "AbsenceAlarmOver", text, warning=False)

    def _advice(self, alarm: Alarm) -> str:
        namespace, name = self._lease
        return f"restore Slurm's state; or, if those jobs will not come back: kubectl -n {namespace} annotate --overwrite lease {name} {ABSENCE_CONFIRMED}={alarm.name}"

    async def _read_lease(self, *, now: bool = False) -> Lease | None:
        moment = asyncio.get_running_loop().time()
        if not now and moment - self._lease_at < LEASE_SECONDS:
            return None
        self._lease_at = moment
        namespace, name = self._lease
        try:
            return await self._kube.get(LEASES, name, namespace)
        except KubeError as error:
            log.warning("Lease %s/%s cannot be read: %s; again in %g s", namespace, name, error, LEASE_SECONDS)
            return None

    def _tell(self, lease: Lease | None, reason: str, text: str, *, warning: bool) -> None:
        if self._events is None:
            return
        namespace, name = self._lease
        kind = "coordination.k8s.io/v1"
        about = (
            reference(lease, kind, "Lease") if lease else ObjectReference(api_version=kind, kind="Lease", namespace=namespace, name=name)
        )
        self._events.record(msgspec.structs.replace(about, namespace=namespace, name=name), reason, text, warning=warning)
