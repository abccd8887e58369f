#!/usr/bin/env python3
"""Writes the tables of figures in README.md and docs/benchmarks.md from bench/results: `scripts/benchmark_tables.py`; with --check it only says which page is not as it would be written.

Comes in: the results as `python -m bench` leaves them, and pages with `<!-- figures: NAME -->` … `<!-- end of figures -->`. Goes out: the same pages, with the newest run that has a chapter's rows between the two. What must stay true: no figure is
typed by hand; every row of a chapter comes from one run, since ratios mean something only within one; a row that no chapter has is told.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[1]
RESULTS = CHECKOUT / "bench" / "results"
PAGES = ("README.md", "docs/benchmarks.md")
BLOCK = re.compile(r"(<!-- figures: ([a-z-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)

CHAPTERS = {  # how its rows begin; one that begins with … belongs to what stands before it
    "rates": r"Slurm alone|Kubernetes alone|pipeline without|CPU of the pipeline|kube-scheduler|bridge",
    "cpu": r"CPU of (kube-|etcd|kwok|slurm|the bridge)",
    "waits": r"Slurm start to bound",
    "costs": r"writes to|calls to|polls of|status, Events|reads from|CPU of ours|start of the bridge|memory of the bridge",
    "eligibility": r"verdict on",
    "client": r"states of|decoding|submits through|the same through|submit rate",
    "cache": r"bare msgspec|cached watch|memory of a held|CPU share|longest gap|real API server",
    "limits": r"Slurm, |Kubernetes, ",
    "sandbox": r"warm up|cold up|down with|up with",
    "operator": r"a NodeSet of|ten clusters",
    "operator-large": r"[0-9,]+ workers",
    "scale": r"gang of|[0-9,]+ (mixed nodes|waiting jobs|jobs of others): |takeover of",
}
SUMMARY = {  # the row, in README's words
    "bridge, single pods, of Slurm alone": "single pods, created to bound, of the rate at which Slurm alone takes and starts jobs",
    "bridge, single pods, of the pipeline without logic": "… of a pipeline without logic (create, submit, poll, read, bind)",
    "bridge, single pods, of kube-scheduler": "… of kube-scheduler, which has no queue, account or gang",
    "bridge, gangs of 25, of create, label, bind": "gangs of 25, of the rate at which the API server creates, labels and binds pods",
    "Slurm start to bound at 30 % of the burst's rate, bridge, p50": "from Slurm's start of the job to the pod bound, p50",
    "Slurm start to bound at 30 % of the burst's rate, bridge, p99": "… p99",
    "writes to Kubernetes for a pod's whole life, libslurm at hand": "writes to Kubernetes for a pod's whole life",
    "calls to Slurm for a pod's whole life, libslurm at hand": "calls to Slurm for a pod's whole life",
    "CPU of ours a pod, with 10,000 other jobs, of the same with none": "our CPU a pod beside 10,000 other jobs, of that beside none",
    "memory of the bridge with 10,000 pods known, 1,000 in Slurm": "memory with 10,000 pods known, 1,000 of them in Slurm",
}

Row = dict[str, Any]


def runs() -> list[dict[str, Any]]:
    """The newest first."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    return sorted(found, key=lambda run: str(run["measured"]), reverse=True)


def chapters_of(run: dict[str, Any]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    chapter = ""
    for row in run["rows"]:
        if not row["what"].startswith("…"):
            chapter = next((name for name, start in CHAPTERS.items() if re.match(start, row["what"])), "")
        found.setdefault(chapter, []).append(row)
    return found


def lines(name: str, all_runs: list[dict[str, Any]]) -> Iterator[str]:
    """One block: a table, and when and on what it was measured."""
    if name == "summary":
        run = next((run for run in all_runs if {row["what"] for row in run["rows"]} >= set(SUMMARY)), None)
        rows = (
            [] if run is None else [row | {"what": SUMMARY[row["what"]]} for what in SUMMARY for row in run["rows"] if row["what"] == what]
        )
    else:
        run = next((run for run in all_runs if chapters_of(run).get(name)), None)
        rows = [] if run is None else chapters_of(run)[name]
    if run is None:
        yield "Not measured yet."
        return
    goals = any(row["met"] is not None for row in rows)
    limits = any(row["ratio"] is not None for row in rows)
    heads = ["what", "figure", *(["measured against", "ratio"] if limits else []), *(["goal", "met"] if goals else [])]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join('---:' if head in ('figure', 'measured against', 'ratio') else '---' for head in heads)}|"
    for row in rows:
        cells = [row["what"], f"{_number(row['figure'])} {_unit(row['unit'])}".strip()]
        if limits:
            cells += [_number(row["limit"]), "" if row["ratio"] is None else f"{row['ratio']:.2f}"]
        if goals:
            cells += [_goal(row), {None: "", True: "yes", False: "**no**"}[row["met"]]]
        yield f"| {' | '.join(cells)} |"
    machine = run["machine"]
    yield ""
    yield f"Measured {run['measured'][:10]} on {machine['cores']} cores, which all servers share, with Python {machine['python']}."


def _unit(unit: str) -> str:
    return "" if unit == "ratio" else unit


def _number(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def _goal(row: Row) -> str:
    ends = (("≤", row["at_most"]), ("≥", row["at_least"]))
    return " ".join(f"{sign} {end:g}" for sign, end in ends if end is not None) + (
        " (ratio)" if row["met"] is not None and row["ratio"] is not None else ""
    )


def written(text: str, all_runs: list[dict[str, Any]]) -> str:
    """A page with its blocks filled."""

    def filled(found: re.Match[str]) -> str:
        if found[2] not in (*CHAPTERS, "summary"):
            raise ValueError(f"there are no figures called {found[2]}; there are summary, {', '.join(CHAPTERS)}")
        return found[1] + "\n".join(lines(found[2], all_runs)) + "\n" + found[3]

    return BLOCK.sub(filled, text)


def main() -> int:
    all_runs = runs()
    wrong = [f"{row['what']}: no chapter of scripts/benchmark_tables.py has it" for run in all_runs for row in chapters_of(run).get("", [])]
    for page in PAGES:
        path = CHECKOUT / page
        text = path.read_text()
        if (wanted := written(text, all_runs)) == text:
            continue
        if "--check" in sys.argv:
            wrong.append(f"{page} is not as scripts/benchmark_tables.py writes it")
        else:
            path.write_text(wanted)
            print(f"written: {page}")
    print("\n".join(wrong), end="\n" if wrong else "")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
