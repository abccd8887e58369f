"""The sandbox as its user meets it: commands, environment, logs, status."""

import json
import os
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from slinky.sandbox.handle import Sandbox
from tests.conftest import Cli

pytestmark = pytest.mark.sandbox


@pytest.fixture
def shell(cli: Cli, sandbox: Sandbox) -> dict[str, str]:
    """A shell's environment after `eval "$(slinky sandbox env)"`."""
    exports = cli("sandbox", "env", "--name", sandbox.record.name).stdout
    assert all(line.startswith("export ") for line in exports.splitlines())
    return dict(os.environ) | dict(shlex.split(line)[1].split("=", 1) for line in exports.splitlines())


def run(command: str, env: dict[str, str], cwd: str = "/", seconds: float = 60) -> str:
    done = subprocess.run(["bash", "-euc", command], env=env, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def says_who_leads(top: str) -> bool:
    """Other tests of this process may run a bridge on the shared sandbox."""
    return "bridge: no leader" in top or "bridge: led by" in top


def test_a_shell_has_kubectl_helm_and_the_slurm_commands(shell: dict[str, str], sandbox: Sandbox) -> None:
    assert run("kubectl get nodes --output=name | wc -l", shell).strip() == str(sandbox.record.shape.nodes)
    assert run("helm version --short", shell).startswith("v4.")
    assert "UP" in run("scontrol ping", shell)
    assert run("sinfo --version", shell).split()[1] >= "25.11"
    assert "ClusterName=sandbox" in Path(shell["SLURM_CONF"]).read_text()


def test_a_shell_has_slinky_and_its_kubectl_plugin(shell: dict[str, str]) -> None:
    assert run("slinky --version", shell).startswith("slinky")
    assert says_who_leads(run("slinky top --once", shell))
    assert says_who_leads(run("kubectl slurm top --once", shell))


def test_slurmrestd_answers_with_the_exported_address_and_token(shell: dict[str, str]) -> None:
    token = Path(shell["SLINKY_SLURM_TOKEN_FILE"]).read_text()
    request = urllib.request.Request(f"{shell['SLINKY_SLURM_URL']}/slurm/v0.0.45/ping/", headers={"X-SLURM-USER-TOKEN": token})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert json.load(answer)["pings"][0]["responding"]
    assert Path(shell["SLINKY_SLURM_TOKEN_FILE"]).stat().st_mode & 0o077 == 0


def test_the_exported_configuration_is_that_of_the_sandboxs_bridge(shell: dict[str, str]) -> None:
    settings = yaml.safe_load(Path(shell["SLINKY_BRIDGE_CONFIG"]).read_text())
    assert settings["slurmRestApi"] == shell["SLINKY_SLURM_URL"]
    once = run(f"{sys.executable} -m slinky top --once", shell)
    assert says_who_leads(once)


def test_a_sandbox_of_an_older_release_gets_the_configuration_when_it_is_exported(cli: Cli, sandbox: Sandbox) -> None:
    """If the variable names no file, explain, doctor and top fail."""
    sandbox.tools_config.unlink()
    assert "SLINKY_BRIDGE_CONFIG" not in sandbox.exports()
    exports = cli("sandbox", "env", "--name", sandbox.record.name).stdout
    assert f"export SLINKY_BRIDGE_CONFIG={shlex.quote(str(sandbox.tools_config))}" in exports
    shell = dict(os.environ) | dict(shlex.split(line)[1].split("=", 1) for line in exports.splitlines())
    assert says_who_leads(run(f"{sys.executable} -m slinky top --once", shell))


def test_up_works_in_a_shell_that_has_the_exported_variables(shell: dict[str, str], sandbox: Sandbox) -> None:
    """The sandbox's own commands come first in its PATH. `up` must not use them."""
    shape = sandbox.record.shape
    name = f"{sandbox.record.name}-again"
    words = f"{sys.executable} -m slinky sandbox"
    try:
        assert "is up" in run(f"{words} up --name {name} --nodes 1", shell, seconds=300)
        assert "bridge: no leader" in run(
            f"unset SLINKY_BRIDGE_CONFIG; eval $({words} env --name {name}); {sys.executable} -m slinky top --once", shell
        )
    finally:
        run(f"{words} down --name {name}", shell)
    assert sandbox.record.shape == shape


def test_one_sandbox_is_in_the_path_however_often_it_is_exported(shell: dict[str, str], sandbox: Sandbox) -> None:
    own = str(sandbox.folder / "bin")
    again = run(f"{sys.executable} -m slinky sandbox env --name {sandbox.record.name}", shell)
    path = next(shlex.split(line)[1] for line in again.splitlines() if line.startswith("export PATH="))
    assert path.count(own) == 1


def test_slurm_commands_find_the_files_of_the_host(shell: dict[str, str], tmp_path: Path) -> None:
    """`sbatch job.sh` reads the script where the user stands; here nothing could run it, but it is looked at."""
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH --time=nonsense\n")
    done = subprocess.run(["sbatch", "job.sh"], env=shell, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "Invalid --time specification" in done.stderr


def test_a_user_is_who_she_says(cli: Cli, sandbox: Sandbox) -> None:
    name = ["--name", sandbox.record.name]
    assert cli("sandbox", "slurm", *name, "--as", "alice", "id", "--user", "--name").stdout.strip() == "alice"
    refused = cli("sandbox", "slurm", *name, "--as", "alice", "scontrol", "reconfigure")
    assert refused.returncode == 1
    assert "Invalid user id" in refused.stderr


def test_the_people_of_slurm_are_nobody_to_kubernetes(cli: Cli, sandbox: Sandbox) -> None:
    denied = cli("sandbox", "slurm", "--name", sandbox.record.name, "--as", "alice", "head", "-1", "/etc/kubernetes/admin.kubeconfig")
    assert "Permission denied" in denied.stderr
    assert (
        cli("sandbox", "slurm", "--name", sandbox.record.name, "--as", "alice", "sh", "-c", "echo $HOME").stdout.strip()
        == "/var/home/alice"
    )


def test_what_does_not_exist_is_named(cli: Cli, sandbox: Sandbox) -> None:
    name = ["--name", sandbox.record.name]
    assert "there is no command sqeue in the sandbox" in cli("sandbox", "slurm", *name, "sqeue").stderr
    assert "'eve' is not one of 'root', 'alice'" in cli("sandbox", "slurm", *name, "--as", "eve", "squeue").stderr
    assert "has no machine 'moon'; there is head" in cli("sandbox", "shell", *name, "--machine", "moon").stderr


def test_options_after_the_command_are_the_commands_own(cli: Cli, sandbox: Sandbox) -> None:
    told = cli("sandbox", "kubectl", "--name", sandbox.record.name, "get", "node", "kwok-00", "-o", "name", "--help=false")
    assert told.stdout.strip() == "node/kwok-00"


def test_status_tells_of_every_part(cli: Cli, sandbox: Sandbox) -> None:
    told = cli("sandbox", "status", "--name", sandbox.record.name, "--output", "json")
    assert told.returncode == 0
    parts = json.loads(told.stdout)["parts"]
    assert {"etcd", "kube-apiserver", "kube-scheduler", "kwok", "mariadb", "slurmdbd", "slurmctld", "slurmrestd"} <= set(parts)
    assert all(part["running"] for part in parts.values())
    assert "running" in cli("sandbox", "status", "--name", sandbox.record.name).stdout


async def test_a_part_that_died_is_seen_and_can_be_started_again(cli: Cli, sandbox: Sandbox) -> None:
    await sandbox.stop("kube-scheduler")
    told = cli("sandbox", "status", "--name", sandbox.record.name)
    assert told.returncode == 1
    assert "ended" in told.stdout
    assert cli("sandbox", "restart", "--name", sandbox.record.name, "kube-scheduler").returncode == 0
    assert cli("sandbox", "status", "--name", sandbox.record.name).returncode == 0


def test_logs(cli: Cli, sandbox: Sandbox) -> None:
    name = ["--name", sandbox.record.name]
    assert "slurmctld version" in cli("sandbox", "logs", *name, "--lines", "100000", "slurmctld").stdout
    assert "==> " in cli("sandbox", "logs", *name).stdout
    refused = cli("sandbox", "logs", *name, "slurmctl")
    assert refused.returncode == 1
    assert "has no part 'slurmctl'; there is" in refused.stderr


def test_list(cli: Cli, sandbox: Sandbox) -> None:
    rows = {row["name"]: row for row in json.loads(cli("sandbox", "list", "--output", "json").stdout)}
    assert rows[sandbox.record.name]["state"] == "up"
    assert rows[sandbox.record.name]["with"] == "jobset,lws,podgroup"


def test_secrets_are_not_for_everyone(sandbox: Sandbox) -> None:
    """The sandbox's folder opens for root only, and no part is given a secret by its command line."""
    assert sandbox.folder.stat().st_mode & 0o077 == 0
    token = sandbox.token_file.read_text()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert token.encode() not in path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
