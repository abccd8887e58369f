"""The reference of the metrics, made from where they are described.

Pure. Goes out: Markdown, kept in docs/exporter-metrics.md (`slinky exporter metrics` prints it). What must stay true: every metric that is told is there.
"""

from slinky.exporter.exporter import OWN
from slinky.exporter.samples import DESCRIBED

__all__ = ["metrics_reference"]

INTRODUCTION = """\
# Metrics of the exporter

Made from the code: `slinky exporter metrics > docs/exporter-metrics.md`. docs/exporter.md says what the labels mean.

| Metric | Kind | Labels | |
|---|---|---|---|
"""


def metrics_reference() -> str:
    rows = (f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.help} |" for one in (*OWN, *DESCRIBED))
    return INTRODUCTION + "\n".join(rows) + "\n"
