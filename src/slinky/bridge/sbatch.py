"""A job description as the command line that would submit the same: for people who know `sbatch`, and to try a job by hand.

Comes in: the description of a job, or of each component of a heterogeneous one. Goes out: one line for a shell, and the names of what no option can say. Pure. What must stay true: every field that a description has is either told or named as untold; the
line is quoted so that a shell gives `sbatch` exactly these words.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from slinky.slurm import JobDescription

__all__ = ["UNTOLD", "sbatch_line", "untold"]

EXTERNAL = "EXTERNAL_JOB"
FLAGS = {
    "SPREAD_JOB": "--spread-job",
    "KILL_INVALID_DEPENDENCY": "--kill-on-invalid-dep=yes",
    "NO_KILL_INVALID_DEPENDENCY": "--kill-on-invalid-dep=no",
}

# Of no concern to a job that runs nothing itself, or the bridge's own.
UNTOLD = {
    "admin_comment": "only the bridge can set the job's AdminComment, which holds its marker",
    "environment": "",
    "argv": "",
    "script": "",
    "standard_input": "",
    "standard_output": "",
    "standard_error": "",
    "array": "an external job cannot be an array",
    "job_id": "",
    "required_nodes": "a job that names its nodes is killed when one of them is gone",
}

Words = Callable[[Any], list[str]]


def _option(name: str, written: Callable[[Any], str] = str) -> Words:
    return lambda value: [f"--{name}={written(value)}"]


def _switch(when_true: str, when_false: str = "") -> Words:
    return lambda value: [word] if (word := when_true if value else when_false) else []


def _mebibytes(value: object) -> str:
    return f"{value}M"


def _without_prefix(value: str) -> str:
    """`gres/gpu:2` is what REST reads, `gpu:2` what --gres does."""
    return ",".join(word.removeprefix("gres/") for word in value.split(","))


def _moment(value: int) -> str:
    """Slurm reads a moment in the time zone of whoever types it: said in UTC, as the line may be typed anywhere."""
    return f"uts{value}"


def _exclusive(value: Sequence[str]) -> list[str]:
    ways = {"none": "--exclusive", "oversubscribe": "--oversubscribe"}
    return [ways.get(way, f"--exclusive={way}") for way in value]


def _flags(value: Sequence[str]) -> list[str]:
    return [FLAGS[flag] for flag in value if flag in FLAGS]


OPTIONS: Mapping[str, Words] = {
    "name": _option("job-name"),
    "account": _option("account"),
    "qos": _option("qos"),
    "partition": _option("partition"),
    "reservation": _option("reservation"),
    "user_id": _option("uid"),
    "group_id": _option("gid"),
    "wckey": _option("wckey"),
    "licenses": _option("licenses"),
    "constraints": _option("constraint"),
    "prefer": _option("prefer"),
    "excluded_nodes": _option("exclude", ",".join),
    "priority": _option("priority"),
    "nice": _option("nice"),
    "time_limit": _option("time"),
    "time_minimum": _option("time-min"),
    "begin_time": _option("begin", _moment),
    "deadline": _option("deadline", _moment),
    "dependency": _option("dependency"),
    "comment": _option("comment"),
    "extra": _option("extra"),
    "tasks": _option("ntasks"),
    "tasks_per_node": _option("ntasks-per-node"),
    "cpus_per_task": _option("cpus-per-task"),
    "nodes": _option("nodes"),
    "memory_per_node": _option("mem", _mebibytes),
    "memory_per_cpu": _option("mem-per-cpu", _mebibytes),
    "tres_per_node": _option("gres", _without_prefix),
    "tres_per_task": _option("tres-per-task"),
    "tres_per_job": lambda value: [f"--gpus={word.removeprefix('gres/gpu:')}" for word in value.split(",") if word.startswith("gres/gpu:")],
    "segment_size": _option("segment"),
    "contiguous": _switch("--contiguous"),
    "shared": _exclusive,
    "flags": _flags,
    "hold": _switch("--hold"),
    "requeue": _switch("--requeue", "--no-requeue"),
    "kill_on_node_fail": _switch("", "--no-kill"),
    "mcs_label": _option("mcs-label"),
    "current_working_directory": _option("chdir"),
}
TOGETHER = frozenset(
    {
        "required_switches",
        "wait_for_switch",
        "minimum_nodes",
        "maximum_nodes",
        "kill_warning_signal",
        "kill_warning_delay",
        "kill_warning_flags",
    }
)


def sbatch_line(components: Sequence[JobDescription]) -> str:
    """`sbatch --external …`, the components of a heterogeneous job separated by colons."""
    parts = [shlex.join(["--external", *_words(job)]) for job in components]
    return "sbatch " + " : ".join(parts)


def untold(components: Sequence[JobDescription]) -> list[str]:
    """What the line leaves out and that would matter: `field: why`."""
    found = {}
    for job in components:
        for name, value in _said(job).items():
            if name == "flags" and (strange := [flag for flag in value if flag not in FLAGS and flag != EXTERNAL]):
                found[name] = ", ".join(strange)
            elif name not in OPTIONS and name not in TOGETHER:
                found[name] = UNTOLD.get(name, "no option says it")
    return [f"{name}: {why}" for name, why in found.items() if why]


def _said(job: JobDescription) -> dict[str, Any]:
    """What has a value; `other` by the names that it gives."""
    found = {name: value for name in job.__struct_fields__ if name != "other" and (value := getattr(job, name)) is not None}
    return found | (job.other or {})


def _words(job: JobDescription) -> Iterator[str]:
    said = _said(job)
    for name, words in OPTIONS.items():
        if name in said:
            yield from words(said[name])
    yield from _nodes(said)
    yield from _signal(said)
    yield from _switches(said)


def _nodes(said: Mapping[str, Any]) -> list[str]:
    """To sbatch one number is both the least and the most. Where only the least is said, there can be as many as tasks."""
    least, most = said.get("minimum_nodes"), said.get("maximum_nodes")
    if not least and not most:
        return []
    least = least or 1
    most = most or max(said.get("tasks") or 1, least)
    return [f"--nodes={least}" if least == most else f"--nodes={least}-{most}"]


def _signal(said: Mapping[str, Any]) -> list[str]:
    signal, delay = said.get("kill_warning_signal"), said.get("kill_warning_delay")
    return [f"--signal={signal}" + (f"@{delay}" if delay else "")] if signal else []


def _switches(said: Mapping[str, Any]) -> list[str]:
    """For how long to insist is minutes and seconds to sbatch."""
    count, seconds = said.get("required_switches"), said.get("wait_for_switch")
    return [f"--switches={count}" + (f"@{seconds // 60}:{seconds % 60:02}" if seconds else "")] if count else []
