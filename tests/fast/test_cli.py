"""The command line: help that helps, errors that say what would be right."""

import pytest

from tests.conftest import Cli


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["sandbox"],
        ["demo"],
        ["translate"],
        ["bridge"],
        *(["bridge", c] for c in ["run", "admission", "webhooks", "settings", "shadow-report", "shadow-end"]),
        *(["sandbox", c] for c in ["up", "down", "list", "status", "logs", "env", "kubectl", "slurm", "shell", "restart", "bridge"]),
    ],
)
def test_every_command_has_help(cli: Cli, command: list[str]) -> None:
    done = cli(*command, "--help")
    assert done.returncode == 0
    assert len(done.stdout) > 80


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sandbox", "up", "--with", "kueue"], "--with kueue: unknown; there is jobset, lws, podgroup"),
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
def test_a_mistake_gets_one_sentence_and_no_traceback(cli: Cli, arguments: list[str], said: str) -> None:
    done = cli(*arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_taking_down_what_is_not_there_is_no_error(cli: Cli) -> None:
    done = cli("sandbox", "down", "--name", "nosuch")
    assert (done.returncode, done.stdout) == (0, "there is no sandbox 'nosuch'\n")
