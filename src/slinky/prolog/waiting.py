"""The prolog itself: look, and look again until nobody has to be waited for, or the limit is reached.

Comes in: options, and what slurmd says in the environment (the node, the job). Goes out: the exit code. What must stay true: it ends, at the limit at the latest; what it waits for is in the log when it begins to wait and when it gives up, and at the limit in the reason of the node's drain; a job that is
cancelled while it waits is waited for no longer.
"""

import argparse
import contextlib
import os
import socket
import sys
import syslog
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from slinky.prolog.decision import Awaited, Look, Starters, in_words, waits_for
from slinky.prolog.grpc import RuntimeSilentError
from slinky.prolog.node import RUNTIMES, has_pods, lingering, starting
from slinky.prolog.runtime import pods_of
from slinky.prolog.slurm import SlurmSilentError, drain, jobs_here

__all__ = ["main", "parsed", "wait"]

FIRST, LONGEST = 0.1, 1.0  # seconds between looks
RUNTIME_SECONDS = 5.0
LONGEST_REASON = 500
HELP_SETTLE = """how many seconds a pod that is being started when the prolog begins
 may take to show its job (default 5)"""


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="slinky prolog",
        description="slurmd's Prolog on a node with a kubelet: waits until the containers are gone of pods whose share Slurm took back.",
    )
    parser.add_argument("--limit", type=float, default=300.0, help="how many seconds at most (default 300)")
    parser.add_argument(
        "--then",
        choices=["drain", "go"],
        default="drain",
        help="at the limit: drain the node and give the job back (default), or let it begin",
    )
    parser.add_argument("--settle", type=float, default=5.0, help=HELP_SETTLE)
    parser.add_argument(
        "--runtime", action="append", help=f"the container runtime's socket (default: the first there is of {', '.join(RUNTIMES)})"
    )
    parser.add_argument("--kubelet", type=Path, default=Path("/var/lib/kubelet"), help="the kubelet's folder (default /var/lib/kubelet)")
    parser.add_argument("--cgroups", type=Path, default=Path("/sys/fs/cgroup"), help=argparse.SUPPRESS)
    parser.add_argument(
        "--node",
        default=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        help="Slurm's name of this node (default: as slurmd says)",
    )
    parser.add_argument(
        "--job", type=int, default=_number(os.environ.get("SLURM_JOB_ID")), help="the job that is to begin (default: as slurmd says)"
    )
    parser.add_argument("--look", action="store_true", help="only tell who would be waited for now")
    parser.add_argument("--write", metavar="FILE", type=Path, help="write this command as one file, for Prolog= in slurm.conf, and end")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    said = parsed(sys.argv[1:] if arguments is None else arguments)
    if said.write:
        from slinky.prolog.file import write  # not needed on a node

        write(said.write)
        return 0
    if said.look:
        awaited = look(said)
        print(in_words(awaited) or "nobody: a job may begin")
        return 0
    starters = Starters(said.settle)
    return wait(said, lambda: look(said, starters))


def look(
    said: argparse.Namespace,
    starters: Starters | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Awaited]:
    """What the job must wait for now. What cannot be known counts. `starters` is kept from look to look."""
    sockets = [path for path in said.runtime or RUNTIMES if Path(path).exists()]
    if not sockets:
        return [Awaited("the container runtime", "it is not there, and the kubelet has pods")] if has_pods(said.kubelet) else []
    try:
        pods = pods_of(sockets[0], RUNTIME_SECONDS)
    except RuntimeSilentError as error:
        return [Awaited("the container runtime", f"it does not answer: {error}")]
    ours = [pod for pod in pods if pod.job_id]
    starters = starters or Starters(said.settle)
    young = starters.among(starting(said.kubelet, {pod.uid for pod in pods}, said.settle), clock())
    left = lingering(said.cgroups, {pod.uid for pod in ours if not pod.alive})
    asked = {pod.job_id for pod in ours if pod.alive or pod.uid in left}
    try:
        running = {job_id for job_id, comment in jobs_here(asked, said.node).items() if comment.startswith("{")}
    except SlurmSilentError as error:
        return [Awaited("Slurm", f"it cannot be asked about jobs {', '.join(map(str, sorted(asked)))}: {error}")]
    return waits_for(Look(ours, running, young, left), said.job)


def wait(
    said: argparse.Namespace,
    seen: Callable[[], list[Awaited]],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """The exit code."""
    began, pause = clock(), FIRST
    while awaited := seen():
        waited = clock() - began
        if waited >= said.limit:
            return _give_up(said, awaited)
        if pause == FIRST:
            _say(f"job {said.job} waits on {said.node} for {in_words(awaited)}")
        elif said.job and _is_over(said):
            _say(f"job {said.job} is over: it waits no longer on {said.node}")
            return 0
        sleep(min(pause, said.limit - waited))
        pause = min(pause * 1.5, LONGEST)
    if pause != FIRST:
        _say(f"job {said.job} begins on {said.node} after {clock() - began:.1f} s")
    return 0


def _give_up(said: argparse.Namespace, awaited: Sequence[Awaited]) -> int:
    reason = f"slinky prolog: job {said.job} waited {said.limit:g} s for {in_words(awaited)}"
    if said.then == "go":
        _say(f"{reason}; it begins all the same")
        return 0
    _say(f"{reason}; the node is drained")
    with contextlib.suppress(SlurmSilentError):
        drain(said.node, reason[:LONGEST_REASON])
    return 1


def _is_over(said: argparse.Namespace) -> bool:
    try:
        return said.job not in jobs_here([said.job], said.node)
    except SlurmSilentError:
        return False


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
    syslog.openlog("slinky-prolog", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_NOTICE, text)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
