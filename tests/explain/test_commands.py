"""The commands as they are called, where nobody answers: words, exit codes, the plugin of kubectl's."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slinky.cli import slinky
from slinky.cli.plugin import OFFERED, kubectl_slurm
from tests.conftest import CHECKOUT

CONFIG = "managedNamespaces: [team]\nslurmRestApi: http://127.0.0.1:9\nslurm: {tokenFile: /nonexistent/token}\n"


@pytest.fixture
def nobody(tmp_path: Path) -> list[str]:
    """A configuration and a kubeconfig behind which nobody is."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "kubeconfig").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\nusers: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    return ["--config", str(tmp_path / "config.yaml"), "--kubeconfig", str(tmp_path / "kubeconfig")]


def run(*words: str) -> Result:
    return CliRunner().invoke(slinky, list(words))


@pytest.mark.parametrize("words", [("pod", "train-0"), ("job", "7"), ("node", "w1")])
def test_explain_says_which_sides_do_not_answer(nobody: list[str], words: tuple[str, ...]) -> None:
    done = run("explain", *words, *nobody, "-o", "json")
    assert done.exit_code == 1, done.output
    codes = {each["code"] for each in json.loads(done.stdout)["findings"]}
    assert "slurm-token-unreadable" in codes
    assert codes <= {"slurm-token-unreadable", "kubernetes-unreachable"}


def test_doctor_ends_with_1_and_says_what_could_not_be_looked_at(nobody: list[str]) -> None:
    done = run("doctor", *nobody)
    assert done.exit_code == 1
    assert "ERROR    kubernetes-unreachable" in done.stdout and "ERROR    slurm-token-unreadable" in done.stdout
    assert "Webhooks: not looked at in full (kube.webhooks could not be read)" in done.stdout
    assert "fine" not in done.stdout.replace("The bridge's configuration: fine", "").replace("The Slurm token: fine", "")


def test_a_configuration_that_is_wrong_is_a_finding(nobody: list[str], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("partitoin: x\n")
    done = run("doctor", *nobody, "-o", "json")
    assert "partitoin" in next(each["seen"] for each in json.loads(done.stdout)["findings"] if each["code"] == "config-unreadable")


def test_whatif_is_told_what_it_does_not_understand(nobody: list[str]) -> None:
    done = run("explain", "--whatif", "8 bananas", *nobody)
    assert done.exit_code == 2 and "8 gpu 4h" in done.stderr
    done = run("explain", "--whatif", "8 gpu", "--sbatch", "", *nobody)
    assert done.exit_code == 1 and "slurm-token-unreadable" in done.stderr
    assert run("explain", "--whatif", "8 gpu", "pod", "x").exit_code == 2


def test_top_shows_that_nobody_is_there(nobody: list[str]) -> None:
    done = run("top", "--once", *nobody)
    assert done.exit_code == 0
    assert "kubernetes-unreachable" in done.stdout and "slurm-token-unreadable" in done.stdout
    assert "jobs: not known" in done.stdout


def test_the_plugin_is_installed_under_the_name_that_kubectl_looks_for() -> None:
    done = subprocess.run([CHECKOUT / ".venv/bin/kubectl-slurm", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: kubectl slurm ")
    assert all(f"  {name} " in done.stdout for name in OFFERED)
    assert "kubectl slurm explain [OPTIONS]" in CliRunner().invoke(kubectl_slurm, ["explain", "-h"], prog_name="kubectl slurm").output


def test_one_look_at_a_slurm_that_does_not_answer_says_that_it_is_down(tmp_path: Path) -> None:
    config = tmp_path / "exporter.yaml"
    config.write_text("slurmRestApi: http://127.0.0.1:9\n")
    done = run("exporter", "once", "--config", str(config))
    assert done.exit_code == 1
    assert "\nslurm_up 0.0\n" in done.stdout
    assert "Slurm at http://127.0.0.1:9 does not answer" in done.stderr
