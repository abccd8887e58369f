"""The command line: help that helps, errors that say what would be right."""

import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from slinky.cli import main, slinky
from tests.conftest import Cli


def all_commands(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from all_commands(found, *path, name)


@pytest.mark.parametrize("command", list(all_commands(slinky)), ids=" ".join)
def test_every_command_has_help(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(slinky, [*command, "--help"])
    assert done.exit_code == 0
    assert len(done.stdout) > 80


def test_the_program_shows_its_commands(cli: Cli) -> None:
    done = cli("--help")
    assert (done.returncode, "sandbox" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sandbox", "up", "--with", "kueue"], "--with kueue: unknown; there is cert-manager, keda, jobset, lws, podgroup"),
        (["sandbox", "up", "--kubernetes", "1.20"], "Kubernetes 1.20 is not pinned"),
        (["sandbox", "up", "--node-memory", "much"], "a number with M, G or T, such as 256G"),
        (["sandbox", "up", "--name", "a/b"], "letters, digits and dashes"),
        *(
            (["sandbox", command, "--name", name], "letters, digits and dashes")
            for command in ("down", "status", "env", "bridge")
            for name in ("", ".", "..", "/x", "a/b", "../x")
        ),
        (["sandbox", "up", "--node-memory", "9" * 400 + "G"], "a number with M, G or T"),
        (["sandbox", "status", "--name", "nosuch"], "slinky sandbox up --name nosuch makes it"),
        (["sandbox", "kubectl", "--name", "nosuch", "get", "pods"], "no sandbox 'nosuch'"),
        (["sandbox", "logs", "--name", "nosuch"], "no sandbox 'nosuch'"),
        (
            ["bridge", "admission", "--config", "/nosuch/config.yaml"],
            "slinky: /nosuch/config.yaml cannot be read: No such file or directory",
        ),
        (["bridge", "webhooks", "--delete", "--config", "/dev/null", "--kubeconfig", "/nosuch"], "no kubeconfig: /nosuch does not exist"),
    ],
)
def test_a_mistake_gets_one_sentence_and_no_traceback(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["slinky", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert said in capsys.readouterr().err


def test_a_mistake_ends_the_program_with_1(cli: Cli) -> None:
    done = cli("sandbox", "status", "--name", "nosuch")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)


def test_taking_down_what_is_not_there_is_no_error(cli: Cli) -> None:
    done = cli("sandbox", "down", "--name", "nosuch")
    assert (done.returncode, done.stdout) == (0, "there is no sandbox 'nosuch'\n")
