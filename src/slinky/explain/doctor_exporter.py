"""What the doctor looks at in an exporter: whether it answers, whether Slurm answers it, how old its snapshot is, whether anybody scrapes it, and its token. Pure."""

import datetime as dt
from collections.abc import Iterator

from slinky.explain.catalogue import entry
from slinky.explain.findings import Finding
from slinky.explain.installation import ExporterSide, Installation

__all__ = ["answers", "tokens"]

OLD = 120.0  # seconds, as the alert rule has it
UNHEARD = dt.timedelta(minutes=10)  # after which Prometheus has come by
SOON = dt.timedelta(hours=1)


def answers(seen: Installation) -> Iterator[Finding]:
    if seen.exporters == ():
        yield entry("exporter-missing").found("exporter", "no Service has the label app.kubernetes.io/name=slurm-exporter")
    for exporter in seen.exporters or ():
        yield from _answers(exporter, seen.now)


def _answers(exporter: ExporterSide, now: dt.datetime) -> Iterator[Finding]:
    about, namespace = f"exporter {exporter.place}", exporter.namespace or "NAMESPACE"
    if exporter.endpoints == 0:
        yield entry("exporter-without-endpoint").found(about, "no address behind it is ready", namespace=namespace)
        return
    if exporter.unanswered:
        yield entry("exporter-unanswered").found(about, exporter.unanswered, namespace=namespace)
        return
    if exporter.up is False:
        yield entry("exporter-slurm-down").found(about, "slurm_up is 0", namespace=namespace)
    elif exporter.age is not None and exporter.age > OLD:
        yield entry("exporter-snapshot-old").found(about, f"what it tells is {exporter.age:.0f} s old")
    elif exporter.missing:
        yield entry("exporter-part-missing").found(about, f"it could not read {', '.join(exporter.missing)}")
    if exporter.looks is not None and exporter.looks <= 1 and exporter.since is not None and now - exporter.since > UNHEARD:
        words = f"it runs since {exporter.since:%Y-%m-%d %H:%M} UTC, and was scraped by nobody but the doctor"
        yield entry("exporter-not-scraped").found(about, words)


def tokens(seen: Installation) -> Iterator[Finding]:
    for exporter in seen.exporters or ():
        if not exporter.secret:
            continue
        about, token = f"Secret {exporter.secret}", exporter.token
        names = {
            "namespace": exporter.namespace,
            "secret": exporter.secret.rpartition("/")[2],
            "user": (token.user if token else "") or "slurm",
        }
        if exporter.without_token:
            yield entry("exporter-token-missing").found(about, exporter.without_token, **names)
        elif token is not None and token.ends is not None and token.ends <= seen.now:
            yield entry("exporter-token-over").found(about, f"the exporter's token ended at {token.ends:%Y-%m-%d %H:%M} UTC", **names)
        elif token is not None and token.ends is not None and token.ends - seen.now < SOON:
            minutes = int((token.ends - seen.now).total_seconds() // 60)
            yield entry("exporter-token-expires").found(about, f"the exporter's token ends in {minutes} minutes", **names)
