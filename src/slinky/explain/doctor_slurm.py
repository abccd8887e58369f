"""What the doctor looks at in Slurm: version, token, partitions, nodes, GRES types, scheduler parameters, grace times, clock. Pure.

What must stay true: each check reads what it was promised (see `doctor.CHECKS`) and says only what follows from it.
"""

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from typing import Any

from slinky.bridge.node_reasons import is_by_others
from slinky.explain.catalogue import entry
from slinky.explain.findings import Finding
from slinky.explain.installation import Installation
from slinky.explain.nodes import address_is_missing
from slinky.slurm import compress

__all__ = ["clock", "grace", "gres_types", "nodes", "partitions", "scheduler", "token", "version"]

OLDEST = (25, 11)
SOON = dt.timedelta(hours=1)
LONG = dt.timedelta(days=366)
SKEW = 10.0  # seconds
SHOWN = 5
ENOUGH_DEPTH = 1000
LITTLE_AGE = 30  # seconds that an ended job is remembered
SPARE = 5  # seconds above the pods' own
DEFAULT_GRACE = 30  # of pods


def said(conf: Mapping[str, Any], key: str) -> str:
    """A key of slurm.conf, whatever its case, as text."""
    found = next((value for name, value in conf.items() if name.lower() == key.lower()), None)
    if isinstance(found, Mapping):
        found = found.get("number") if found.get("set", True) else None
    if isinstance(found, list | tuple):
        return ",".join(map(str, found))
    return "" if found is None else str(found)


def number(conf: Mapping[str, Any], key: str) -> int | None:
    """`300 sec` is 300."""
    found = re.match(r"\s*(\d+)", said(conf, key))
    return int(found[1]) if found else None


def version(seen: Installation) -> Iterator[Finding]:
    release = re.search(r"(\d+)\.(\d+)", seen.slurm.release)
    if release and tuple(map(int, release.groups())) < OLDEST:
        yield entry("slurm-version").found("Slurm", f"slurmrestd is of Slurm {seen.slurm.release}")


def token(seen: Installation) -> Iterator[Finding]:
    found, settings = seen.slurm.token, seen.settings
    if found is None or any(trouble.code.startswith("slurm-token") for trouble in seen.slurm.troubles):
        return
    user, file = settings.slurm.user or found.user, settings.slurm.token_file
    admin = re.sub(r"\(.*", "", said(seen.slurm.conf, "SlurmUser")) or "slurm"
    if user and user not in ("root", admin) and seen.slurm.is_administrator is False:
        yield entry("token-user").found(
            f"token {file}", f"its user is {user}, and {user} is no administrator of Slurm", user=user, admin=admin
        )
    if found.ends is None or found.ends - seen.now > LONG:
        until = f"until {found.ends:%Y-%m-%d}" if found.ends else "with no end that it says"
        yield entry("token-without-end").found(f"token {file}", f"it holds {until}")
    elif found.ends - seen.now < SOON:
        minutes = max(0, int((found.ends - seen.now).total_seconds() // 60))
        yield entry("token-expires").found(f"token {file}", f"it ends in {minutes} minutes", user=user or "slurm", file=file)


def partitions(seen: Installation) -> Iterator[Finding]:
    for name in filter(None, seen.settings.partition.split(",")):
        about = f"partition {name}"
        found = next((each for each in seen.slurm.partitions if each.name == name), None)
        if found is None:
            there = ", ".join(each.name for each in seen.slurm.partitions) or "none"
            yield entry("partition-missing").found(about, f"Slurm has no such partition; there is {there}", partition=name)
            continue
        if not found.is_up:
            yield entry("partition-down").found(about, f"its state is {'+'.join(found.states)}", partition=name)
        members = [node for node in seen.slurm.nodes if name in node.partitions]
        if not members:
            yield entry("partition-empty").found(about, "no node is in it")
        elif not any(node.takes_jobs for node in members):
            reasons = ", ".join(sorted({node.reason for node in members if node.reason})) or "none given"
            names = compress(node.name for node in members)
            yield entry("partition-unavailable").found(
                about, f"none of its {len(members)} nodes takes jobs; reasons: {reasons}", nodes=names
            )


def nodes(seen: Installation) -> Iterator[Finding]:
    if unnamed := [node.name for node in seen.slurm.nodes if address_is_missing(node)]:
        yield entry("nodes-address-missing").found(
            f"nodes {compress(unnamed)}", f"{len(unnamed)} external nodes have no NodeAddr but their name"
        )
    if silent := [node.name for node in seen.slurm.nodes if node.is_external and not node.is_responding]:
        yield entry("nodes-not-responding").found(f"nodes {compress(silent)}", f"{len(silent)} external nodes are NOT_RESPONDING")
    out = [node for node in seen.slurm.nodes if is_by_others(node)]
    if out:
        names = compress(node.name for node in out)
        reasons = "; ".join(f"{node.name}: {node.reason or 'no reason'}" for node in out[:SHOWN])
        yield entry("nodes-drained").found(f"nodes {names}", f"{len(out)} nodes take no jobs ({reasons})", nodes=names)


def gres_types(seen: Installation) -> Iterator[Finding]:
    known = {word.strip() for word in said(seen.slurm.conf, "GresTypes").split(",")} - {"", "(null)"}
    wanted: dict[str, list[str]] = {}
    for resource, gres in seen.settings.gres.items():
        wanted.setdefault(gres.partition(":")[0], []).append(resource)
    for gres, resources in wanted.items():
        if gres not in known and any(resource in node.status.allocatable for node in seen.kube.nodes for resource in resources):
            seen_types = ", ".join(sorted(known)) or "empty"
            yield entry("gres-type-missing").found(
                "slurm.conf",
                f"GresTypes is {seen_types}, and `gres` maps {', '.join(resources)} to {gres}",
                gres=gres,
                resource=resources[0],
            )


def scheduler(seen: Installation) -> Iterator[Finding]:
    conf, settings = seen.slurm.conf, seen.settings
    about = "slurm.conf"
    select = said(conf, "SelectType")
    if select and "cons_tres" not in select:
        yield entry("select-type").found(about, f"SelectType is {select}")
    parameters = dict(word.partition("=")[::2] for word in said(conf, "SchedulerParameters").split(",") if word and word != "(null)")
    wanted = {"batch_sched_delay": 3, "sched_min_interval": 2}  # Slurm's own defaults, in seconds and microseconds
    slow = [name for name, default in wanted.items() if _int(parameters.get(name), default) > (0 if name == "batch_sched_delay" else 1000)]
    if slow:
        right = ",".join(
            [
                *(f"{name}={value}" if value else name for name, value in parameters.items() if name not in wanted),
                "batch_sched_delay=0",
                "sched_min_interval=0",
            ]
        )
        now = ", ".join(f"{name} is {parameters.get(name, f'{wanted[name]}, by default')}" for name in slow)
        yield entry("scheduler-delay").found(about, now, parameters=right)
    if _int(parameters.get("default_queue_depth"), 100) < ENOUGH_DEPTH:
        yield entry("queue-depth").found(about, f"default_queue_depth is {parameters.get('default_queue_depth', '100, by default')}")
    most, age = number(conf, "MaxJobCount"), number(conf, "MinJobAge")
    if most is not None and most < settings.windows.total * 1.2:
        count = int(settings.windows.total * 2)
        yield entry("max-job-count").found(
            about, f"MaxJobCount is {most}, windows.total {settings.windows.total}", count=count, total=settings.windows.total
        )
    if age is not None and 0 < age < LITTLE_AGE:
        yield entry("min-job-age").found(about, f"MinJobAge is {age} seconds")
    if not seen.slurm.has_accounting:
        yield entry("no-accounting").found("Slurm", "slurmrestd offers no accounting")


def _int(text: str | None, default: int) -> int:
    try:
        return int(text) if text else default
    except ValueError:
        return default


def grace(seen: Installation) -> Iterator[Finding]:
    """A grace time of 0 asks for nothing: the next pod waits for the last one's containers anyway."""
    settings = seen.settings
    external = any(node.is_external for node in seen.slurm.nodes)
    pods = [pod for pod in seen.kube.pods if pod.spec.scheduler_name == settings.scheduler_name and not pod.is_over]
    longest = max(pods, key=lambda pod: _grace(pod.spec.termination_grace_period_seconds), default=None)
    times = {f"partition {found.name}": found.grace_time for found in seen.slurm.partitions if found.grace_time}
    times |= {f"QoS {found.name}": found.limits.grace_time for found in seen.slurm.qos if found.limits.grace_time}
    for about, seconds in times.items():
        if external and not settings.nodes.sink:
            yield entry("grace-without-sink").found(about, f"GraceTime is {seconds} s, nodes.sink is empty, and there are external nodes")
        asked = _grace(longest.spec.termination_grace_period_seconds) if longest else 0
        if longest and asked > seconds:
            kind, _, name = about.partition(" ")
            more = asked + SPARE
            command = (
                f"scontrol update PartitionName={name} GraceTime={more}, and the same in slurm.conf"
                if kind == "partition"
                else f"sacctmgr modify qos {name} set gracetime={more}"
            )
            seen_words = f"GraceTime is {seconds} s, and pod {longest.metadata.key} has terminationGracePeriodSeconds {asked}"
            yield entry("grace-too-short").found(about, seen_words, advice=f"{command}; or shorter terminationGracePeriodSeconds")


def _grace(seconds: int | None) -> int:
    return DEFAULT_GRACE if seconds is None else seconds


def clock(seen: Installation) -> Iterator[Finding]:
    if seen.slurm.ahead is not None and abs(seen.slurm.ahead) > SKEW:
        yield entry("clock-slurm").found(
            "slurmctld's host",
            f"its clock is {abs(seen.slurm.ahead):.0f} s {'ahead of' if seen.slurm.ahead > 0 else 'behind'} the one here",
        )
