"""Slurm, from a node: which jobs have it now, and draining it. By Slurm's own commands, which every node with a slurmd has.

Comes in: job ids that pods name. Goes out: those that run here. What must stay true: each is asked about by its number, which costs slurmctld one record and not its whole table; nothing that a user can write is read as an answer; every question has a deadline.
"""

import os
import subprocess
from collections.abc import Iterable, Sequence

__all__ = ["SlurmSilentError", "drain", "jobs_here"]

AT_ONCE = 8
PLACES = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/opt/slurm/sbin:/opt/slurm/bin"
UNKNOWN = "Invalid job id"
# A job that is suspended keeps its place for when it goes on; pods cannot be made to give theirs up meanwhile.
STATES = "--states=RUNNING,SUSPENDED,CONFIGURING"
FORMAT = "--Format=JobID:16,admin_comment:32"  # cut to these widths, so that the second begins at a known place


class SlurmSilentError(Exception):
    """slurmctld did not answer."""


def jobs_here(job_ids: Iterable[int], node: str, seconds: float = 10.0) -> dict[int, str]:
    """Those that have the node now, with the beginning of their administrator's comment. Raises SlurmSilentError."""
    left, found = sorted(set(job_ids)), {}
    while left:
        batch, left = left[:AT_ONCE], left[AT_ONCE:]
        asked = [(job_id, _start("squeue", "--noheader", f"--jobs={job_id}", f"--nodelist={node}", STATES, FORMAT)) for job_id in batch]
        for job_id, process in asked:
            said = _said(process, seconds)
            if said:
                found[job_id] = said[16:].strip()
    return found


def drain(node: str, reason: str, seconds: float = 10.0) -> None:
    """Raises SlurmSilentError."""
    _said(_start("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"), seconds)


def _start(*command: str) -> subprocess.Popen[str]:
    path = f"{os.environ['PATH']}:{PLACES}" if os.environ.get("PATH") else PLACES
    try:
        return subprocess.Popen(
            command,
            env=os.environ | {"PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise SlurmSilentError(f"{command[0]}: {error}") from error


def _said(process: subprocess.Popen[str], seconds: float) -> str:
    try:
        out, trouble = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise SlurmSilentError("slurmctld did not answer in time") from None
    if process.returncode == 0:
        return out
    if UNKNOWN in trouble:
        return ""
    raise SlurmSilentError(" ".join(trouble.split())[:200] or f"{_command(process.args)} failed")


def _command(args: object) -> str:
    return str(args[0]) if isinstance(args, Sequence) and args else "the command"
