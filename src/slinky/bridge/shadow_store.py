"""Where shadow mode's report is kept: a ConfigMap in the bridge's own namespace, the one thing of Kubernetes that shadow mode writes.

Comes in: a report. Goes out: the ConfigMap, and the report again. What must stay true: it stays well below the megabyte that an object may have; what cannot be read is begun anew, and said.
"""

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from slinky.bridge.shadow_report import Report
from slinky.kube import Backoff, Client, ForbiddenError, KubeError, KubeObject, NotFoundError, Resource
from slinky.kube.objects.meta import NOTHING

__all__ = ["CONFIG_MAP", "read_report", "recall_report", "write_report"]

log = logging.getLogger(__name__)

CONFIG_MAP = "slurm-bridge-shadow"
KEY = "report.json"
MOST_BYTES = 512 * 1024
BACKOFF = Backoff(first=0.5, most=15.0)


class _ConfigMap(KubeObject, frozen=True):
    data: Mapping[str, str] = NOTHING


CONFIG_MAPS = Resource("", "v1", "configmaps", _ConfigMap)


async def read_report(kube: Client, namespace: str) -> Report | None:
    """None where there is none. Raises KubeError; msgspec.DecodeError where it is not a report."""
    try:
        found = await kube.get(CONFIG_MAPS, CONFIG_MAP, namespace)
    except NotFoundError:
        return None
    text = found.data.get(KEY)
    return msgspec.json.decode(text, type=Report) if text is not None else None


async def recall_report(kube: Client, namespace: str) -> Report | None:
    """What was written last, however long the API server takes to say it; None where there is none that can be read."""
    failures = 0
    while True:
        try:
            return await read_report(kube, namespace)
        except (ForbiddenError, msgspec.DecodeError) as error:
            log.warning("ConfigMap %s/%s cannot be read (%s): the report begins anew", namespace, CONFIG_MAP, error)
            return None
        except KubeError as error:
            failures += 1
            wait = BACKOFF.seconds(failures)
            log.warning("the last report cannot be read (%s); again in %.1f s", error, wait)
            await asyncio.sleep(wait)


async def write_report(kube: Client, namespace: str, report: Report) -> None:
    """Cut to half where it is too long, as often as needed. Raises KubeError."""
    text = msgspec.json.encode(report)
    while len(text) > MOST_BYTES:
        report = _halved(report)
        text = msgspec.json.encode(report)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP, "namespace": namespace}, "data": {KEY: text.decode()}}
    await kube.apply(CONFIG_MAPS, CONFIG_MAP, body, namespace)


def _halved(report: Report) -> Report:
    return msgspec.structs.replace(
        report,
        namespaces=dict(list(report.namespaces.items())[: len(report.namespaces) // 2]),
        refused=report.refused[len(report.refused) // 2 :],
        evicted=report.evicted[len(report.evicted) // 2 :],
        latest=report.latest[len(report.latest) // 2 :],
        longest=report.longest[: len(report.longest) // 2],
        waiting=report.waiting[: len(report.waiting) // 2],
        evicted_uids=report.evicted_uids[len(report.evicted_uids) // 2 :],
    )
