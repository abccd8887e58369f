"""`python -m tests.chaos --seed N --seconds S`: one run on a sandbox of its own, or several with the seeds that follow. Exit code 1 where something that must always be true was not."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.progress import Progress
from slinky.sandbox.up import up
from tests.chaos.history import History, read_history
from tests.chaos.invariants import check
from tests.chaos.operator_history import OperatorHistory
from tests.chaos.operator_invariants import check_operator
from tests.chaos.operator_plan import OperatorPlan
from tests.chaos.operator_run import operator_chaos
from tests.chaos.report import Report, fates, show, write_report
from tests.chaos.run import Plan, chaos

ARTEFACTS = Path(__file__).parents[2] / "artefacts"
TOLD_TO_END = 130


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides users and faults; the same seed is the same schedule")
    parser.add_argument("--seconds", type=float, default=120, help="how long faults are injected")
    parser.add_argument("--runs", type=int, default=1, help="so many, with the seeds that follow, each on a new sandbox")
    parser.add_argument("--faults-per-second", type=float, default=8, help="of single requests; what happens to servers has its own pace")
    parser.add_argument("--arrivals-per-second", type=float, default=1, help="pods, Jobs, gangs")
    parser.add_argument("--old-state", action="store_true", help="once in the run Slurm is set back to an old state of its own")
    parser.add_argument("--hybrid", action="store_true", help="two real nodes more, which pods share with jobs of sbatch")
    parser.add_argument(
        "--operator", action="store_true", help="the operator instead of the bridge: NodeSets under jobs, and two operators that fail"
    )
    parser.add_argument("--keep", action="store_true", help="leave the sandbox up for a look")
    parser.add_argument(
        "--folder", type=Path, default=ARTEFACTS, help="where chaos-SEED/ is left (artefacts/, which the next run of the tests empties)"
    )
    parser.add_argument("--plan", action="store_true", help="only show what would happen, and when")
    parser.add_argument("--judge", type=Path, metavar="HISTORY", help="judge a history.json that an earlier run left, and nothing else")
    chosen = parser.parse_args()
    logging.getLogger("slinky").setLevel(logging.ERROR)  # of users who are turned away there is no need to hear
    console = Console(width=None if sys.stdout.isatty() else 170)
    _end_orderly()
    if chosen.judge:
        sys.exit(_judge(chosen.judge, console, operator=chosen.operator))
    violated = False
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        plan: Plan | OperatorPlan = Plan(
            seed=seed,
            seconds=chosen.seconds,
            faults_per_second=chosen.faults_per_second,
            arrivals_per_second=chosen.arrivals_per_second,
            old_state=chosen.old_state,
            hybrid=chosen.hybrid,
        )
        if chosen.operator:
            plan = OperatorPlan(seed=seed, seconds=chosen.seconds, faults_per_second=chosen.faults_per_second)
        if chosen.plan:
            _show_plan(plan, console)
            continue
        try:
            report = _run(plan, console, chosen.folder / f"chaos-{seed}", keep=chosen.keep)
        except KeyboardInterrupt:
            console.print(f"chaos {seed}: told to end{'' if chosen.keep else ', and its sandbox is down'}", markup=False)
            sys.exit(TOLD_TO_END)
        violated = violated or bool(report.violations)
    sys.exit(1 if violated else 0)


def _end_orderly() -> None:
    """SIGTERM and SIGINT take the sandbox and the bridge down with the run, also in the background of a shell, which has SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


async def _chaos(sandbox: Sandbox, plan: Plan | OperatorPlan, folder: Path, say: Callable[[str], None]) -> Report:
    if isinstance(plan, OperatorPlan):
        return await operator_chaos(sandbox, plan, folder, say)
    return await chaos(sandbox, plan, folder, say)


def _run(plan: Plan | OperatorPlan, console: Console, folder: Path, *, keep: bool) -> Report:
    name = f"chaos-{plan.seed}"
    down(name)
    report = None
    try:
        with Progress() as progress:
            sandbox = asyncio.run(up(name, plan.shape, progress))
        report = asyncio.run(_chaos(sandbox, plan, folder, lambda text: console.print(f"chaos {plan.seed}: {text}", markup=False)))
    finally:
        if not keep:
            down(name, folder / "servers" if report is None or report.violations else None)
    show(report, console)
    console.print(f"written: {write_report(report, folder)}", markup=False)
    return report


def _judge(path: Path, console: Console, *, operator: bool) -> int:
    if operator:
        report = Report(seed=0, seconds=0, faults={}, invariants=check_operator(read_history(path, OperatorHistory)), lives={})
        show(report, console)
        return 1 if report.violations else 0
    history = read_history(path, History)
    report = Report(seed=0, seconds=0, faults={}, invariants=check(history), lives=fates(history), jobs=len(history.jobs))
    show(report, console)
    return 1 if report.violations else 0


def _show_plan(plan: Plan | OperatorPlan, console: Console) -> None:
    steps = [(fault.at, f"{fault.kind} {fault.target} {f'for {fault.seconds:g} s' if fault.seconds else ''}") for fault in plan.faults]
    if isinstance(plan, OperatorPlan):
        steps += [(deed.at, f"{deed.kind} {deed.nodeset} {deed.number}") for deed in plan.deeds]
        steps += [(job.at, f"job {job.name} on {job.nodes} of {job.nodeset} for {job.seconds:g} s") for job in plan.jobs]
    else:
        steps += [(arrival.at, f"{arrival.namespace}/{arrival.name}: {arrival.pods} pods") for arrival in plan.arrivals]
    for at, text in sorted(steps):
        console.print(f"{at:8.3f} {text}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
