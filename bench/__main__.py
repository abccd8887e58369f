"""Run the measurements one after the other and write the table: `python -m bench [NAME …] [--quick] [--profile]`."""

import argparse
import datetime as dt
import json
import os
import platform
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import bridge, eligibility, kube_cache, limits, nodesets, sandbox_times, scale, slurm_client
from bench.rows import Row

RESULTS = Path(__file__).parent / "results"
TRIED = Path(__file__).parents[1] / "artefacts" / "bench"  # what a quick run leaves
COLUMNS = ("what", "figure", "unit", "limit", "ratio", "goal", "met")
MEASUREMENTS: dict[str, Callable[[bool], list[Row]]] = {
    "sandbox": sandbox_times.measure,
    "limits": limits.measure,
    "client": slurm_client.measure,
    "kube-cache": kube_cache.measure,
    "eligibility": eligibility.measure,
    "nodesets": nodesets.measure,
}
NAMES = (*MEASUREMENTS, "bridge")
PARTS = (*scale.PARTS, *nodesets.PARTS)
BY_NAME_ONLY = ("scale",)  # takes long, and needs a machine of its own


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (all by default), {', '.join(BY_NAME_ONLY)}")
    parser.add_argument("--quick", action="store_true", help="smaller numbers, to see that it works; written to artefacts/bench/")
    parser.add_argument("--profile", action="store_true", help="bridge: where its time goes, instead of how fast it is")
    parser.add_argument("--sandbox", default="", metavar="NAME", help="bridge: on this sandbox, which is up and stays up")
    parser.add_argument(
        "--part", action="append", default=[], choices=PARTS, help="scale, nodesets: only this part; may be given several times"
    )
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - {*NAMES, *BY_NAME_ONLY}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there is {', '.join((*NAMES, *BY_NAME_ONLY))}")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell started it in the background
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # so that its sandboxes go with it
    results = TRIED if chosen.quick else RESULTS
    if chosen.profile:
        print(f"written: {bridge.profile(chosen.quick, results, chosen.sandbox)}")
        return
    measurements = MEASUREMENTS | {
        "bridge": partial(bridge.measure, results=results, sandbox=chosen.sandbox),
        "scale": partial(scale.measure, parts=chosen.part),
        "nodesets": partial(nodesets.measure, parts=chosen.part),
    }
    rows = [row for name in chosen.names or NAMES for row in measurements[name](chosen.quick)]
    _show(rows)
    # A part of `nodesets` has a file of its own: what stands in the other one keeps its date.
    name = "-".join([*chosen.names, *(part for part in chosen.part if part in nodesets.PARTS)]) or "latest"
    rows += _kept(results / f"{name}.json", chosen.part)
    _write(sorted(rows, key=lambda row: PARTS.index(row.part) if row.part else 0), results, name)


def _kept(before: Path, parts: Sequence[str]) -> list[Row]:
    """Where only some parts are measured, the rows of the others stay as they were measured before."""
    if not parts or not before.exists():
        return []
    rows = [Row(**{key: value for key, value in row.items() if key != "met"}) for row in json.loads(before.read_text())["rows"]]
    return [row for row in rows if row.part not in parts]


def _show(rows: list[Row]) -> None:
    table = Table(*COLUMNS)
    for row in rows:
        table.add_row(*row.cells)
    console = Console(width=None if sys.stdout.isatty() else 170)
    console.print(table)


def _write(rows: list[Row], results: Path, name: str) -> None:
    results.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    when = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    document = {"measured": when, "machine": machine, "rows": [row.as_dict() for row in rows]}
    (results / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    lines = [
        f"Measured {when} on {machine['cores']} cores, Python {machine['python']}.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---|---:|---|---:|---:|---|---|",
    ]
    lines += [f"| {' | '.join(row.cells)} |" for row in rows]
    (results / f"{name}.md").write_text("\n".join(lines) + "\n")
    print(f"written: {results / name}.{{json,md}}")


if __name__ == "__main__":
    main()
