"""The pages say what is: files that they quote, charts, values and options that they name, and what a manifest becomes."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from slinky.cli import slinky
from slinky.cli.translate import translate
from tests.charts.helm import Helm, named
from tests.conftest import CHECKOUT
from tests.guides.pages import PAGES, QUICKSTART, Block, blocks, commands, mismatch, quoted_file, steps

GUIDES = CHECKOUT / "examples/guides"
FILES = sorted([*GUIDES.glob("*.yaml"), *(CHECKOUT / "examples/quickstart").glob("*.yaml")])
WORKLOADS = {  # what is translated, by the values of which bridge
    "pytorch-jobset": "",
    "lws-inference": "",
    "mpi": "",
    "gpu-sharing": "gpu-sharing-bridge",
    "hybrid-nodes": "hybrid-nodes-bridge",
    "bare-metal-slurm": "bare-metal-slurm-bridge",
}
GOLDEN = Path(__file__).parent / "golden"

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def shell(page: Path) -> Iterator[tuple[Block, list[list[str]]]]:
    yield from ((block, list(commands(block.text))) for block in blocks(page) if block.language == "sh")


@each_page
def test_what_is_quoted_is_what_stands_in_the_file(page: Path) -> None:
    for block in blocks(page):
        if block.language == "yaml":
            path = quoted_file(block)
            assert path, f"{block.place}: no file of examples/ is linked to before it"
            assert block.text == path.read_text(), f"{block.place} is not {path.relative_to(CHECKOUT)}"


def test_every_file_is_quoted() -> None:
    quoted = {quoted_file(block) for page in PAGES for block in blocks(page) if block.language == "yaml"}
    assert set(FILES) - quoted == set()


def test_every_guide_is_in_the_list_and_says_what_there_will_be_and_what_to_do_if_it_waits() -> None:
    index = (CHECKOUT / "docs/guides/index.md").read_text()
    for page in PAGES:
        if page not in (QUICKSTART, CHECKOUT / "docs/guides/index.md"):
            text = page.read_text()
            assert f"]({page.name})" in index
            assert "**At the end**" in text, page.name
            assert re.search(r"^## If (it|something) waits$", text, re.MULTILINE), page.name


@each_page
def test_files_and_folders_that_commands_name_are_there(page: Path) -> None:
    for block, found in shell(page):
        for words in found:
            for word in words:
                name = word.rpartition("=")[2]
                if re.match(r"(examples|charts|images)/", name):
                    assert (CHECKOUT / name).exists(), f"{block.place}: {name}"
            if "--target" in words:
                target = words[words.index("--target") + 1]
                stages = re.findall(r" AS (\w+)$", (CHECKOUT / "images/Containerfile").read_text(), re.MULTILINE)
                assert target in stages or target == "$image", block.place
            if words[0] == "for" and words[1] == "image":
                assert set(words[3:]) <= set(re.findall(r" AS (\w+)$", (CHECKOUT / "images/Containerfile").read_text(), re.MULTILINE))


def options_of(*command: str) -> str:
    done = CliRunner().invoke(slinky, [*command, "--help"])
    assert done.exit_code == 0, f"slinky {' '.join(command)}: {done.output}"
    return done.output


def test_commands_of_ours_know_their_options() -> None:
    """In blocks and in the text."""
    asked: set[tuple[str, ...]] = set()
    for page in PAGES:
        text = page.read_text()
        inline = [words for part in re.findall(r"`((?:slinky|kubectl slurm) [^`]+)`", text) for words in commands(part)]
        for words in [*(words for _, found in shell(page) for words in found), *inline]:
            if words[:2] == ["kubectl", "slurm"]:
                asked.add(tuple(words[2:]))
            elif words[0] == "slinky":
                asked.add(tuple(words[1:]))
    assert len(asked) >= 10
    helps: dict[tuple[str, ...], str] = {}
    for line in asked:
        command = line[:2] if line[0] in ("explain", "sandbox", "bridge") and line[1:] and not line[1].startswith("-") else line[:1]
        said = helps.setdefault(command, options_of(*command))
        for word in line:
            if re.match(r"--?[a-z]", word):
                assert re.search(rf"(?<![\w-]){re.escape(word.partition('=')[0])}(?![\w-])", said), f"slinky {' '.join(line)}: {word}"


def test_charts_and_values_that_commands_name_can_be_rendered(helm: Helm) -> None:
    rendered = 0
    for page in PAGES:
        for block, found in shell(page):
            for number, words in enumerate(found):
                if words[0] != "helm" or words[1] not in ("install", "upgrade"):
                    continue
                plain = [word for word in words[2:] if not word.startswith("-")]
                assert len(plain) == 2, f"{block.place}: {words}"
                options = [word.replace("$REGISTRY", "registry") for word in words if word.startswith(("--set", "--values", "--namespace"))]
                told = ""
                if "--values=-" in words:
                    sed = found[number - 1]
                    assert sed[0] == "sed", block.place
                    told = (CHECKOUT / sed[2]).read_text().replace("REGISTRY", "registry")
                options = [word.replace("--values=examples", f"--values={CHECKOUT}/examples") for word in options]
                command = [str(helm.program), "template", plain[0], str(CHECKOUT / plain[1]), *options]
                done = subprocess.run(command, input=told, capture_output=True, text=True, check=False, timeout=120)
                assert done.returncode == 0, f"{block.place}: {done.stderr}"
                assert "warning" not in done.stderr, f"{block.place}: {done.stderr}"
                rendered += 1
    assert rendered >= 6


def config_of(helm: Helm, values: str, folder: Path) -> list[str]:
    """The bridge's configuration file, as the chart writes it with these values."""
    if not values:
        return []
    documents = helm.template("slurm-bridge", yaml.safe_load((GUIDES / f"{values}.yaml").read_text()))
    path = folder / "config.yaml"
    path.write_text(named(documents, "ConfigMap", "slurm-bridge-config")["data"]["config.yaml"])
    return ["--config", str(path)]


def manifest(name: str) -> str:
    return (GUIDES / f"{name}.yaml").read_text().replace("JOBID", "4711")  # as the page replaces it


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_guides_manifest_becomes_this(name: str, helm: Helm, tmp_path: Path) -> None:
    """`UPDATE_GOLDEN=1 pytest tests/guides` writes the answers anew: read the diff."""
    config = config_of(helm, WORKLOADS[name], tmp_path)
    done = CliRunner().invoke(translate, ["-f", "-", *config], input=manifest(name))
    assert done.exit_code == 0, done.output
    answer = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        answer.write_text(done.output)
    assert done.output == answer.read_text()


def test_all_workloads_are_translated() -> None:
    others = {*filter(None, WORKLOADS.values()), "kind"}
    assert {path.stem for path in GUIDES.glob("*.yaml")} == {*WORKLOADS, *others}


@each_page
def test_what_translate_prints_is_as_the_page_says(page: Path) -> None:
    for step in steps(page):
        words = list(commands(step.block.text))
        if step.expected and words[-1][:2] == ["slinky", "translate"]:
            done = CliRunner().invoke(translate, [word.replace("examples/", f"{CHECKOUT}/examples/") for word in words[-1][2:]])
            assert not (said := mismatch(step.expected, done.output)), f"{step.block.place} {said}"
