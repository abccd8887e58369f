"""A configuration file, read.

Comes in: a YAML file and the type it should be. Goes out: that, or a `SettingsError` that names the file, the key and what would be right.
"""

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from slinky.settings.sections import Section, SettingsError

__all__ = ["load"]

T = TypeVar("T", bound=Section)


def load(path: Path, kind: type[T], *, documented: str) -> T:
    """`documented`: where the keys are listed. Raises SettingsError."""
    try:
        text = path.read_text()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    try:
        said: Any = yaml.safe_load(text)
        return msgspec.convert(said or {}, kind)
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is not YAML: {error}") from error
    except msgspec.ValidationError as error:
        raise SettingsError(f"{path}: {_in_words(str(error), documented)}") from error


def _in_words(error: str, documented: str) -> str:
    """msgspec's message, with the path of the key first."""
    problem, _, place = error.partition(" - at `$")
    where = place.rstrip("`").lstrip(".")
    if problem.startswith("Object contains unknown field"):
        return f"{where + '.' if where else ''}{problem.split('`')[1]} is not a setting ({documented} lists them)"
    return f"{where}: {problem}" if where else problem
