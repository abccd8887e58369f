"""The printed `sbatch` line, typed: the real sbatch takes every one, and the job that it makes is the one that the bridge would submit."""

import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from slinky.cli.translate import translate
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobDescription, SlurmClient
from tests.translate.test_golden import CASES, words

pytestmark = pytest.mark.sandbox

# Of a site: an account, a QoS, licenses, a reservation … that the sandbox does not have.
OF_A_SITE = (
    "--account=",
    "--qos=",
    "--licenses=",
    "--reservation=",
    "--constraint=",
    "--partition=",
    "--wckey=",
    "--priority=",
    "--uid=",
    "--gid=",
)
GRES_OF_A_SITE = re.compile(r"gres/ib:1,|gpu:h100:|,nvme:1|,gres/nvme:1")  # the sandbox has gpu without a type
LEFT_OUT = ("account", "qos", "licenses", "reservation", "constraints", "wckey", "user_id", "group_id", "priority")
# Which job it is, when it was typed, and by which way it came.
OF_THE_MOMENT = {
    "JobId",
    "SubmitTime",
    "EligibleTime",
    "AccrueTime",
    "StartTime",
    "EndTime",
    "LastSchedEval",
    "SubmitLine",
    "Priority",
    "SLUID",
}
OF_THE_MOMENT |= {"TresBind", "OOMKillStep", "AllocNode:Sid", "StdErr", "StdIn", "StdOut", "Command", "UserId", "GroupId"}


@pytest.fixture
async def slurm(sandbox: Sandbox) -> AsyncIterator[SlurmClient]:
    async with sandbox.slurm_client() as found:
        yield found


def workloads(case: Path) -> list[dict[str, Any]]:
    done = CliRunner().invoke(translate, [*words(case), "-o", "json"])
    return [found for found in json.loads(done.output)["workloads"] if "sbatch" in found]


def for_the_sandbox(line: str) -> list[str]:
    """On its partition, held, and without what only the site has."""
    found: list[str] = []
    for word in shlex.split(GRES_OF_A_SITE.sub(_of_the_sandbox, line)):
        if not word.startswith(OF_A_SITE):
            found.append(word)
        if word == "--external":
            found += ["--partition=bridge", "--hold"]
    return found


@pytest.mark.parametrize("case", [case for case in CASES if workloads(case)], ids=lambda case: case.stem)
async def test_slurm_takes_the_line_and_makes_the_same_job(case: Path, sandbox: Sandbox, slurm: SlurmClient) -> None:
    for workload in workloads(case):
        typed = await sandbox.link.run("head", *_with(for_the_sandbox(workload["sbatch"]), "--parsable"))
        job_id = int(typed.split(";")[0])
        try:
            assert (await slurm.jobs.get(job_id)).is_external
            if len(workload["jobs"]) == 1:
                await _is_the_same(job_id, workload["jobs"][0], sandbox, slurm)
        finally:
            await slurm.jobs.cancel(job_id)


async def _is_the_same(job_id: int, described: dict[str, Any], sandbox: Sandbox, slurm: SlurmClient) -> None:
    """As the bridge's own way makes it, but for what only the site has."""
    said = {key: value for key, value in described.items() if key not in LEFT_OUT}
    said |= {key: GRES_OF_A_SITE.sub(_of_the_sandbox, said[key]) for key in ("tres_per_node", "tres_per_task") if key in said}
    answer = await slurm.jobs.submit_external(JobDescription(**said | {"partition": "bridge", "hold": True}))
    try:
        assert await _shown(sandbox, job_id) == await _shown(sandbox, answer.job_id)
    finally:
        await slurm.jobs.cancel(answer.job_id)


async def _shown(sandbox: Sandbox, job_id: int) -> dict[str, str]:
    text = await sandbox.link.run("head", "scontrol", "-o", "show", "job", str(job_id))
    found = re.findall(r"(?:^| )([A-Z][\w/:]*)=(.*?)(?= [A-Z][\w/:]*=|$)", text.strip())
    shown = {key: value for key, value in found if key not in OF_THE_MOMENT}
    if shown.get("NtasksPerN:B:S:C", "0").split(":")[0] != "0":  # sbatch reckons the nodes from that by itself
        shown["ReqTRES"] = re.sub(r",node=\d+", "", shown["ReqTRES"])
        shown.pop("NumNodes")
    if words := [
        word for word in shown.pop("TresPerTask", "").split(",") if word and not word.startswith("cpu=")
    ]:  # sbatch says CPUs there too
        shown["TresPerTask"] = ",".join(words)
    return shown


def _of_the_sandbox(found: re.Match[str]) -> str:
    return "gpu:" if "gpu" in found[0] else ""


def _with(line: list[str], option: str) -> list[str]:
    return [line[0], option, *line[1:]]
