"""The images' recipes, as the sandbox reads them: what a builder would understand, this understands, or says that it does not."""

import re
from pathlib import Path

import pytest

from slinky.sandbox.errors import BuildError, UsageError
from slinky.sandbox.images import DAEMONS
from slinky.sandbox.recipes import RECIPES, Kitchen, read_recipes
from tests.conftest import CHECKOUT

LOCKED = re.compile(r'^name = "(?P<name>[^"]+)"\nversion = "(?P<version>[^"]+)"', re.MULTILINE)


def kitchen(root: Path = Path("root"), checkout: Path = CHECKOUT) -> Kitchen:
    return Kitchen(root, checkout)


def test_every_image_has_a_stage_and_an_entry_point_that_is_there() -> None:
    stages = kitchen().stages
    for name in (*DAEMONS, "slinky", "slapd"):
        entry = stages[name].entrypoint[-1]
        folder = {"slapd": "src/slinky/sandbox/files/images", "slinky": "images"}.get(name, "images/entrypoints")
        file = CHECKOUT / folder / Path(entry).name
        assert file.stat().st_mode & 0o111, file
    assert stages["slinky"].user == "65532:65532"
    assert stages["slinky"].environment["PYTHONPATH"] == "/opt/slinky/source"


def test_a_stage_has_what_its_parent_says() -> None:
    stages = read_recipes(
        [
            "ARG X=y\nFROM ${X} AS a\nENV A=1 B='two words'\nUSER 1\nRUN one \\\n  two\nFROM a AS b\nENV A=2\n",
            'FROM b AS c\nENTRYPOINT ["/c", "x"]\n',
        ]
    )
    assert stages["a"].deeds == (("RUN", "one    two"),)
    assert stages["b"].deeds == ()
    assert stages["b"].environment == {"A": "2", "B": "two words"}
    assert (stages["c"].parent, stages["c"].user, stages["c"].entrypoint) == ("b", "1", ("/c", "x"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM a AS b\nADD x y\n", "stage b of a recipe says ADD, which the sandbox does not understand"),
        ("FROM a\n", "FROM PARENT AS NAME"),
        ("RUN x\n", "has to begin with FROM"),
    ],
)
def test_what_is_not_understood_is_said(text: str, said: str) -> None:
    with pytest.raises(BuildError, match=said):
        read_recipes([text])


def test_a_stage_is_made_anew_when_what_it_is_made_of_changes_and_those_below_are_not(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "src/slinky/sandbox/files/images").mkdir(parents=True)
    (tmp_path / RECIPES[0]).write_text(
        "FROM x AS base\nCOPY low /low\nFROM base AS top\nCOPY folder /folder\nFROM base AS other\nRUN true\n"
    )
    (tmp_path / RECIPES[1]).write_text("")
    (tmp_path / "low").write_text("low")
    (tmp_path / "folder/__pycache__").mkdir(parents=True)
    (tmp_path / "folder/file").write_text("file")

    def keys() -> dict[str, str]:
        found = kitchen(checkout=tmp_path)
        return {name: found.key(name) for name in found.stages}

    before = keys()
    (tmp_path / "folder/__pycache__/x.pyc").write_text("of no meaning")
    assert keys() == before
    (tmp_path / "folder/file").chmod(0o755)
    assert {name for name, key in keys().items() if key != before[name]} == {"top"}
    (tmp_path / "low").write_text("lower")
    assert {name for name, key in keys().items() if key != before[name]} == {"base", "top", "other"}


def test_without_a_checkout_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run it from a checkout"):
        kitchen(checkout=tmp_path)


def test_a_copy_lies_over_what_is_there_with_its_mode(tmp_path: Path) -> None:
    root, upper = tmp_path / "root", tmp_path / "upper"
    (root / "tmp").mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    upper.mkdir()
    kitchen()._copy("images/build/base /tmp/build", upper, [root])
    kitchen()._copy("images/entrypoints /usr/libexec/slinky", upper, [root])
    assert (upper / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert (upper / "tmp/build").read_bytes() == (CHECKOUT / "images/build/base").read_bytes()
    assert (upper / "usr/libexec/slinky/slurmd").stat().st_mode & 0o111


def test_our_image_has_what_the_lock_file_says() -> None:
    """Made by `uv export --locked --no-dev --extra fast --no-emit-project --no-annotate`."""
    locked = {found["name"]: found["version"] for found in LOCKED.finditer((CHECKOUT / "uv.lock").read_text())}
    wanted = dict(
        line.split()[0].split("==") for line in (CHECKOUT / "images/requirements.txt").read_text().splitlines() if re.match(r"[a-z]", line)
    )
    assert {name: locked[name] for name in wanted} == wanted
    project = (CHECKOUT / "pyproject.toml").read_text()
    for name in re.findall(r'^    "([a-z-]+)>=', project.partition("[dependency-groups]")[0], re.MULTILINE):
        assert name in wanted
