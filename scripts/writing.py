"""What the scripts beside this one have in common: files are written where they are not as they should be; with --check that is only said.

Comes in: the files' texts by path. Goes out: an exit code, which is not 0 where --check found a file that would be written.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["CHECKOUT", "write_or_check"]

CHECKOUT = Path(__file__).resolve().parent.parent


def write_or_check(wanted: Mapping[Path, str]) -> int:
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        shown = path.relative_to(CHECKOUT)
        if "--check" in sys.argv:
            print(f"{shown} is not as scripts/{Path(sys.argv[0]).name} writes it")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
        print(shown)
    return 1 if stale and "--check" in sys.argv else 0
