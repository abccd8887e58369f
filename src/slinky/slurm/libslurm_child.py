"""Runs as a process of its own, and uses nothing but the standard library: calls libslurm for its parent.

libslurm ends its process on a fatal error, so it is never loaded into a program that matters. On stdin come lines `{"job_id": 7, "code": 256}`; on stdout goes one
line at the start, `{"version": 45}` or `{"unavailable": "why"}`, and then one for each request, `{"job_id": 7, "number": 0, "text": ""}`. The token, where one is needed,
comes in SLURM_JWT: an environment is read by its owner only, a command line by everyone.

What must stay true: nothing is called in a library whose layout is not known here.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import ClassVar

NO_VAL = 0xFFFFFFFE

PLACES = [
    "usr/lib/*/slurm-wlm/libslurmfull.so",
    "usr/lib64/slurm/libslurmfull.so",
    "usr/lib/slurm/libslurmfull.so",
    "usr/local/lib*/slurm/libslurmfull.so",
    "opt/slurm/lib*/slurm/libslurmfull.so",
]

KNOWN = {45: "26.05"}  # libslurm's own version → the Slurm release that has it


class StepId(ctypes.Structure):
    """As Slurm 26.05 lays it out."""

    _fields_: ClassVar = [
        ("sluid", ctypes.c_uint64),
        ("job_id", ctypes.c_uint32),
        ("het_component", ctypes.c_uint32),
        ("step_id", ctypes.c_uint32),
    ]


def say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def find(named: str) -> str | None:
    places = [Path(named)] if named else [path for pattern in PLACES for path in sorted(Path("/").glob(pattern))]
    return next((str(path) for path in places if path.exists()), None)


def load(path: str) -> tuple[ctypes.CDLL | None, int | str]:
    """The library, ready to be called; or why not."""
    try:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL, use_errno=True)
        library.slurm_api_version.restype = ctypes.c_long
        version = library.slurm_api_version() >> 16
    except (OSError, AttributeError) as error:
        return None, f"{path} cannot be used: {error}"
    if version not in KNOWN:
        known = ", ".join(f"{number} (Slurm {release})" for number, release in KNOWN.items())
        return None, f"{path} has version {version}, whose layout is not known; known is {known}"
    library.slurm_strerror.restype = ctypes.c_char_p
    library.slurm_complete_job.argtypes = [ctypes.POINTER(StepId), ctypes.c_uint32]
    library.slurm_init(None)
    return library, version


def complete(library: ctypes.CDLL, job_id: int, code: int) -> dict[str, object]:
    step = StepId(0, job_id, NO_VAL, NO_VAL)
    ctypes.set_errno(0)
    if library.slurm_complete_job(ctypes.byref(step), code) == 0:
        return {"job_id": job_id, "number": 0, "text": ""}
    number = ctypes.get_errno()
    return {"job_id": job_id, "number": number or -1, "text": library.slurm_strerror(number).decode(errors="replace")}


def main() -> None:
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    path = find(named)
    if path is None:
        looked = named or ", ".join(f"/{pattern}" for pattern in PLACES)
        say({"unavailable": f"there is no libslurm here (looked for {looked})"})
        return
    library, found = load(path)
    if library is None:
        say({"unavailable": found})
        return
    say({"version": found})
    for line in sys.stdin:
        request = json.loads(line)
        say(complete(library, request["job_id"], request["code"]))


if __name__ == "__main__":
    main()
