"""A signal into a pod's containers: `kill -USR1 1` in each that runs.

Comes in: a pod and a signal's name. Goes out: which containers were reached, what was in the way elsewhere, and whether to try again. What must stay true: nobody else's process is ever signalled: where process 1 is not the container's own (it
shares its pod's or its node's process table), nothing is sent. An image's `kill` is anything its owner likes: it gets so many seconds and bytes, and no more.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from slinky.kube import Client, ForbiddenError, KubeError, NotFoundError, OutcomeUnknownError, Pod

__all__ = ["Delivery", "deliver", "running_containers"]

log = logging.getLogger(__name__)

SECONDS = 10.0  # for one command
POD_SECONDS = 20.0  # for all of a pod's containers
MOST_OUTPUT = 1000  # bytes kept, for an Event
MOST_READ = 64 * 1024  # bytes read: what says more is no `kill`
NOT_THERE = (126, 127)  # how shells and runtimes say that there is no such program


class Delivery(msgspec.Struct, frozen=True):
    """`problems` are sentences about containers that were not reached. `again`: nothing was reached, and it may be later: without problems, because nothing runs yet."""

    reached: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    again: bool = False


def running_containers(pod: Pod) -> list[str]:
    """Sidecars and an init container that is at work among them."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return [status.name for status in statuses if status.state.running is not None]


async def deliver(kube: Client, pod: Pod, signal: str) -> Delivery:
    """To all containers that run, one after another, within `POD_SECONDS`."""
    reached: list[str] = []
    problems: list[str] = []
    try:
        async with asyncio.timeout(POD_SECONDS):
            return await _deliver(kube, pod, signal, reached, problems)
    except TimeoutError:
        problems.append(f"the signal commands did not finish within {POD_SECONDS:g} s; the bridge stopped waiting")
        return Delivery(tuple(reached), tuple(problems))


async def _deliver(kube: Client, pod: Pod, signal: str, reached: list[str], problems: list[str]) -> Delivery:
    """`reached` and `problems` are added to, container by container."""
    if pod.spec.host_pid or pod.spec.share_process_namespace:
        whose = "its node's (hostPID)" if pod.spec.host_pid else "its pod's (shareProcessNamespace)"
        return Delivery(problems=(f"the containers use {whose} process table, in which process 1 is not theirs",))
    names = running_containers(pod)
    if not names:
        return Delivery(again=True)
    broken = 0
    for name in names:
        try:
            problem = await _signal(kube, pod, name, signal)
        except NotFoundError:
            return Delivery(again=True)  # the pod is gone, or the watch will show what is
        except ForbiddenError:
            problem = "the bridge may not run commands in pods (pods/exec in its rights)"
        except OutcomeUnknownError as error:
            problem, broken = f"it may have been delivered: {error.message}", broken + 1
        except KubeError as error:
            problem, broken = str(error), broken + 1
        if problem:
            problems.append(f"container {name}: {problem}")
        else:
            reached.append(name)
    if broken == len(names):
        log.warning("pod %s: %s was not delivered: %s", pod.key, signal, "; ".join(problems))
        return Delivery(problems=tuple(problems), again=True)
    return Delivery(tuple(reached), tuple(problems))


async def _signal(kube: Client, pod: Pod, container: str, signal: str) -> str:
    """Empty where it was delivered, else why not."""
    commands: Sequence[list[str]] = (["kill", f"-{signal}", "1"], ["sh", "-c", f"kill -{signal} 1"])
    why = ""
    for command in commands:
        result = await kube.exec(
            pod.metadata.name,
            pod.metadata.namespace,
            command,
            container=container,
            seconds=SECONDS,
            most_output=MOST_OUTPUT,
            most_read=MOST_READ,
        )
        if result.exit_code == 0:
            return ""
        if result.exit_code is not None and result.exit_code not in NOT_THERE:
            said = (result.stderr or result.stdout or result.message).strip()[:200]
            return f"{' '.join(command)} ended with {result.exit_code}: {said}"
        why = result.message or result.stderr
    log.info("pod %s, container %s: neither kill nor sh: %s", pod.key, container, why)
    return "its image has neither kill nor sh to send a signal with"
