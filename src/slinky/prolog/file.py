"""The prolog as one file that a node can run with its own Python (3.11 or later), with nothing installed: a zip archive of this package, with a first line for the kernel.

It holds each module twice: as it stands, for any Python, and compiled, for a Python of the release that wrote it, which then starts in half the time.
"""

import tempfile
import zipfile
from importlib.util import MAGIC_NUMBER
from marshal import dumps
from pathlib import Path

__all__ = ["write"]

FIRST_LINE = b"#!/usr/bin/python3 -IS\n"  # isolated, and without a site: a job's start waits for it
MAIN = "import sys\nfrom slinky.prolog.waiting import main\nsys.exit(main())\n"
UNCHECKED = (1).to_bytes(4, "little") + bytes(8)  # compiled code that is believed without a look at the source


def write(file: Path) -> None:
    """All of it or nothing: slurmd may be about to run it."""
    modules = {"__main__.py": MAIN, "slinky/__init__.py": ""}
    modules |= {f"slinky/prolog/{module.name}": module.read_text() for module in sorted(Path(__file__).parent.glob("*.py"))}
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as target:
        target.write(FIRST_LINE)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for name, text in modules.items():
                archive.writestr(name, text)
                archive.writestr(f"{name}c", MAGIC_NUMBER + UNCHECKED + dumps(compile(text, name, "exec", dont_inherit=True)))
    place = Path(target.name)
    place.chmod(0o755)
    place.replace(file)
