"""Run the measurements one after the other and write the table: `python -m bench [NAME …] [--quick]`."""

import argparse
import datetime as dt
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import kube_cache, limits, sandbox_times, slurm_client
from bench.rows import Row

RESULTS = Path(__file__).parent / "results"
MEASUREMENTS: dict[str, Callable[[bool], list[Row]]] = {
    "sandbox": sandbox_times.measure,
    "limits": limits.measure,
    "client": slurm_client.measure,
    "kube-cache": kube_cache.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="smaller numbers, to see that it works")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(MEASUREMENTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there is {', '.join(MEASUREMENTS)}")
    rows = [row for name in chosen.names or MEASUREMENTS for row in MEASUREMENTS[name](chosen.quick)]
    _show(rows)
    if chosen.quick or chosen.names:
        print("not written to bench/results/: that is for a full run")
    else:
        _write(rows)


def _show(rows: list[Row]) -> None:
    table = Table("what", "figure", "unit", "goal", "met")
    for row in rows:
        table.add_row(row.what, f"{row.figure:,.4g}", row.unit, row.goal_text, row.met_text)
    Console().print(table)


def _write(rows: list[Row]) -> None:
    RESULTS.mkdir(exist_ok=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    when = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    document = {"measured": when, "machine": machine, "rows": [row.as_dict() for row in rows]}
    (RESULTS / "latest.json").write_text(json.dumps(document, indent=1) + "\n")
    lines = [
        f"Measured {when} on {machine['cores']} cores, Python {machine['python']}.",
        "",
        "| what | figure | unit | goal | met |",
        "|---|---:|---|---|---|",
    ]
    lines += [f"| {row.what} | {row.figure:,.4g} | {row.unit} | {row.goal_text} | {row.met_text} |" for row in rows]
    (RESULTS / "latest.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
