"""The entry points of the clusters' images: which words the daemons are started with. The daemons are played by programs that say their words."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

FILES = CHECKOUT / "images/entrypoints"
HARDWARE = "NodeName=w CPUs=16 Boards=1 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=64000"
PLAYED = f"""#!/bin/sh
[ "$1" != -C ] || {{ echo '{HARDWARE}'; echo UpTime=1; exit; }}
printf '%s\\n' "${{0##*/}}" "$@"
"""


@pytest.fixture
def words(tmp_path: Path) -> object:
    """A function: what a daemon was called with by the entry point of that name."""
    for name in ("slurmd", "slurmctld", "slurmdbd", "slurmrestd"):
        (tmp_path / name).write_text(PLAYED)
        (tmp_path / name).chmod(0o755)

    def run(entry_point: str, *arguments: str, **environment: str) -> list[str]:
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **environment}
        command = ["sh", str(FILES / entry_point), *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()

    return run


SLURMD = ("-Z", "--conf-server", "c-controller.slurm:6817", "--conf", "Features=a,b Gres=gpu:1")
START = ["slurmd", "--systemd", "-Z", "--conf-server", "c-controller.slurm:6817", "--conf"]


@pytest.mark.parametrize(
    ("environment", "conf"),
    [
        ({}, ""),
        ({"POD_CPUS": "0", "POD_MEMORY": "0", "POD_TOPOLOGY": ""}, ""),
        ({"POD_CPUS": "4"}, " CoreSpecCount=6"),
        ({"POD_CPUS": "5"}, " CoreSpecCount=5"),
        ({"POD_CPUS": "16"}, ""),
        ({"POD_CPUS": "99", "POD_MEMORY": "99999"}, ""),
        ({"POD_MEMORY": "4096"}, " MemSpecLimit=59904"),
        ({"POD_TOPOLOGY": "topo-switch:s1"}, " Topology=topo-switch:s1"),
        ({"SLINKY_TOPOLOGY": "topo-switch:s1", "POD_CPUS": "2"}, " CoreSpecCount=7 Topology=topo-switch:s1"),
    ],
)
def test_slurmd_is_told_what_the_pod_may_not_use(words, environment: dict[str, str], conf: str) -> None:  # type: ignore[no-untyped-def]
    assert words("slurmd", *SLURMD, **environment) == [*START, f"Features=a,b Gres=gpu:1{conf}"]


@pytest.mark.parametrize("written", ["--conf=Features=a CoreSpecCount=1 MemSpecLimit=5 Topology=t:s", "--conf"])
def test_what_the_conf_says_itself_stays(words, written: str) -> None:  # type: ignore[no-untyped-def]
    said = "Features=a CoreSpecCount=1 MemSpecLimit=5 Topology=t:s"
    given = (written, said) if written == "--conf" else (written,)
    assert words("slurmd", "-Z", *given, POD_CPUS="2", POD_MEMORY="1000", POD_TOPOLOGY="t:other") == [
        "slurmd",
        "--systemd",
        "-Z",
        "--conf",
        said,
    ]


@pytest.mark.parametrize("empty", ["Topology=", "Topology='\"$SLINKY_TOPOLOGY\"'"])
def test_an_empty_topology_does_not_swallow_the_word_after_it(words, empty: str) -> None:  # type: ignore[no-untyped-def]
    assert words("slurmd", "-Z", "--conf", f"Features=a {empty} Weight=2")[-1] == "Features=a Weight=2"
    assert words("slurmd", "-Z", "--conf", f"Features=a {empty}", SLINKY_TOPOLOGY="t:s")[-1] == "Features=a Topology=t:s"


def test_an_option_and_its_value_may_come_as_one_word(words) -> None:  # type: ignore[no-untyped-def]
    assert words("slurmd", "-Z", "--conf-server c:6817", "--conf 'Features=a'") == [
        "slurmd",
        "--systemd",
        "-Z",
        "--conf-server",
        "c:6817",
        "--conf",
        "Features=a",
    ]


def test_slurmd_without_a_conf_gets_none(words) -> None:  # type: ignore[no-untyped-def]
    assert words("slurmd", "-Z") == ["slurmd", "--systemd", "-Z"]


def test_slurmctld_finds_the_folder_of_its_state(words, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"ClusterName=x\nStateSaveLocation={tmp_path}/state/x\n")
    assert words("slurmctld", "-v", SLURM_CONF=str(conf), RUNTIME_DIRECTORY=str(tmp_path / "run")) == ["slurmctld", "--systemd", "-v"]
    assert (tmp_path / "state/x").is_dir()


def test_slurmctld_says_which_folder_it_may_not_write_and_whose_it_is(tmp_path: Path) -> None:
    """As user 401, on a volume that belongs to root: in the log, and where the kubelet finds a container's last words."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    state, last_words = tmp_path / "state", tmp_path / "termination-log"
    state.mkdir(mode=0o755)
    last_words.touch()
    last_words.chmod(0o666)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"StateSaveLocation={state}\n")
    script = tmp_path / "slurmctld-entry"
    script.write_text((FILES / "slurmctld").read_text().replace('exec "$here/notified"', "echo started; exit 0 #"))
    command = ["setpriv", "--reuid=401", "--regid=401", "--clear-groups", "sh", str(script)]
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": str(conf), "TERMINATION_LOG": str(last_words), "RUNTIME_DIRECTORY": "/tmp"}
    refused = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=False)
    assert refused.returncode == 1
    said = f"no access to the state folder {state}: it belongs to 0:0 with mode 755, and slurmctld runs as 401:401."
    assert said in last_words.read_text() and said in refused.stderr
    os.chown(state, 401, 401)
    (state / "job_state").touch(mode=0o600)
    refused = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=False)
    assert f"no access to the state file {state}/job_state: it belongs to 0:0 with mode 600" in last_words.read_text()
    os.chown(state / "job_state", 401, 401)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.strip() == "started"


def test_slurmrestd_gets_its_words_as_they_are(words) -> None:  # type: ignore[no-untyped-def]
    assert words("slurmrestd", "-s", "openapi/slurmctld", "0.0.0.0:6820") == ["slurmrestd", "-s", "openapi/slurmctld", "0.0.0.0:6820"]


FORKS = """#!/usr/bin/python3 -I
import os, signal, socket, sys, time
def say(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.sendto(text, os.environ["NOTIFY_SOCKET"])
if not os.fork():
    say(b"READY=1\\nMAINPID=%d" % os.getpid())
    print(os.getpid(), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    time.sleep(60)
time.sleep(0.3)
"""


def test_a_daemons_parent_follows_it_into_its_next_process(tmp_path: Path) -> None:
    """The first one ends, and the parent stays; what ends the parent reaches the second, whose code is the parent's."""
    daemon = tmp_path / "daemon"
    daemon.write_text(FORKS)
    daemon.chmod(0o755)
    process = subprocess.Popen([FILES / "notified", str(daemon)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    second = int(process.stdout.readline())
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.6)
    assert Path(f"/proc/{second}").exists()
    process.terminate()
    assert process.wait(20) == 7
    process.stdout.close()


CRASHES = """#!/bin/sh
echo x >> {times}
[ "$(wc -l < {times})" -gt 2 ] || kill -SEGV $$
exit 5
"""


@pytest.mark.parametrize(("again", "code", "starts"), [("3", 5, 3), ("1", -11 & 0xFF, 2)])
def test_a_daemon_that_crashed_is_started_anew_a_few_times(tmp_path: Path, again: str, code: int, starts: int) -> None:
    daemon, times = tmp_path / "daemon", tmp_path / "times"
    daemon.write_text(CRASHES.format(times=times))
    daemon.chmod(0o755)
    done = subprocess.run([FILES / "notified", "--again", again, str(daemon)], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == code
    assert len(times.read_text().split()) == starts
    assert "it is started anew" in done.stderr


DEBIANS = """@include common-auth
account    required     pam_nologin.so
@include common-account
session    required     pam_limits.so
"""


def admitted(file: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["sh", str(FILES / "admit-jobs"), str(file)], capture_output=True, text=True, timeout=20, check=False)


def test_pam_slurm_adopt_decides_whatever_common_account_says(tmp_path: Path) -> None:
    """In a substack a sufficient module ends that part only: pam_slurm_adopt is asked all the same."""
    file = tmp_path / "sshd"
    file.write_text(DEBIANS)
    for _ in range(2):
        assert admitted(file).returncode == 0
    accounts = [line.split() for line in file.read_text().splitlines() if line.startswith("account")]
    assert [words[1:3] for words in accounts] == [
        ["required", "pam_nologin.so"],
        ["substack", "common-account"],
        ["required", "pam_slurm_adopt.so"],
    ]
    assert "@include common-account" not in file.read_text()


def test_sshd_does_not_start_where_pam_slurm_adopt_has_no_place(tmp_path: Path) -> None:
    file = tmp_path / "sshd"
    file.write_text("# pam_slurm_adopt.so is not here\naccount include password-auth\n")
    done = admitted(file)
    assert done.returncode == 1
    assert f"sshd does not start: {file} has no line '@include common-account'" in done.stderr


def test_every_script_is_sound_for_a_plain_shell() -> None:
    for script in FILES.iterdir():
        if script.suffix != ".c" and script.name != "notified":
            subprocess.run(["sh", "-n", str(script)], check=True, timeout=20)
            assert os.access(script, os.X_OK)
