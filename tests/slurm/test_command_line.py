"""`slinky slurm` with arguments that cannot work: one sentence, an exit code that is not 0, and no request."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from slinky.cli.slurm import slurm
from slinky.slurm import ConfigurationError, expand
from slinky.slurm.calls.jobs import Jobs
from slinky.slurm.models.jobs import Submitted
from slinky.slurm.numbers import WireWarning

NOWHERE = ["--url", "http://127.0.0.1:9"]


def slinky(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-c", "from slinky.cli import main; main()", "slurm", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={"SLURM_JWT": "a.b.c"})
    assert result.stdout == ""
    return result.returncode, result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--url", "http://[::1", "ping"], "'http://[::1' is no address"),
        ([*NOWHERE, "--key", "/nope", "ping"], "the HS256 key cannot be read from /nope"),
        ([*NOWHERE, "--user", "a\nb", "ping"], "'a\\nb' is no name of a user"),
        ([*NOWHERE, "nodes", "n\udcff"], "is no name of a node"),
        ([*NOWHERE, "nodes", f"n[{'1' * 4400}]"], "has a range of 4,400 characters"),
        ([*NOWHERE, "drain", f"n[{'1' * 4400}]", "-r", "x"], "has a range of 4,400 characters"),
    ],
)
def test_what_cannot_work_is_one_sentence_and_exit_code_1(arguments: list[str], said: str) -> None:
    code, text = slinky(*arguments)
    assert (code, len(text.splitlines())) == (1, 1)
    assert text.startswith("slinky: ")
    assert said in text


def test_a_script_that_is_no_text_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"#!/bin/sh\n\xff\xfe")
    code, text = slinky(*NOWHERE, "submit", str(script))
    assert (code, len(text.splitlines())) == (1, 1)
    assert "not in UTF-8" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit", "--external", "-t", "-5"], "x>=1"),
        (["submit", "--external", "--mem", "-1"], "x>=1"),
        (["submit", "--external", "--ntasks", "0"], "x>=1"),
        (["submit", "--external", "-c", "0"], "x>=1"),
        (["--deadline", "0", "ping"], "above 0"),
        (["--deadline", "-1", "ping"], "above 0"),
        (["--deadline", "nan", "ping"], "above 0"),
        (["--deadline", "inf", "ping"], "above 0"),
        (["jobs", "--state", "nope"], "NOPE is no state of a job; known are PENDING, RUNNING"),
        (["drain", "", "-r", "x"], "names no node"),
        (["resume", ","], "names no node"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(slurm, [*NOWHERE, *arguments], env={"SLURM_JWT": "a.b.c"})
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_a_note_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def submitted(*_: object, **__: object) -> Submitted:
        return Submitted(job_id=7, warnings=[WireWarning("it is held"), WireWarning("it is held"), WireWarning("and late")])

    monkeypatch.setattr(Jobs, "submit_external", submitted)
    result = CliRunner().invoke(slurm, [*NOWHERE, "submit", "--external"], env={"SLURM_JWT": "a.b.c"})
    assert result.output.splitlines() == ["it is held", "and late", "7"]


def test_a_range_longer_than_any_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'n\[1-1.* has a range of 4,402 characters"):
        expand(f"n[1-{'1' * 4400}]")
