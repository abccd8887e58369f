"""A Slurm cluster in pods, as its people see it: kubectl, Slurm's commands on the login node, and waiting for what is to come true."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from slinky.sandbox.handle import Sandbox
from tests.conftest import CHECKOUT

__all__ = ["EXAMPLES", "Cluster", "side_by_side"]

EXAMPLES = CHECKOUT / "examples/operator"
GROUP = "slinky.slurm.net"
PATIENCE = 120.0
TRIES, UNANSWERED = 3, "Socket timed out on send/recv"


class Cluster:
    """That of examples/operator/cluster.yaml, in namespace `slurm`."""

    namespace = "slurm"

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    # Kubernetes

    def kubectl(self, *arguments: str, written: str = "", check: bool = True, seconds: float = 120) -> str:
        command = [str(self.sandbox.folder / "bin/kubectl"), "--namespace", self.namespace, *arguments]
        done = subprocess.run(command, input=written, capture_output=True, text=True, timeout=seconds, check=False)
        assert not check or done.returncode == 0, f"{' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout

    def refused(self, *arguments: str, written: str = "") -> str:
        """What is said when it is; it has to be."""
        command = [str(self.sandbox.folder / "bin/kubectl"), "--namespace", self.namespace, *arguments]
        done = subprocess.run(command, input=written, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode, f"{' '.join(arguments)} was not refused: {done.stdout}"
        return done.stderr

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Empty where there is none."""
        found = self.kubectl("get", kind, name, "--output=json", "--ignore-not-found")
        return json.loads(found) if found.strip() else {}

    def patch(self, kind: str, name: str, changes: dict[str, Any]) -> None:
        self.kubectl("patch", kind, name, "--type=merge", f"--patch={json.dumps(changes)}")

    def apply(self, *files: Path) -> None:
        self.kubectl("apply", *(f"--filename={file}" for file in files))

    def condition(self, kind: str, name: str, type_: str) -> tuple[str, str]:
        """Its status and message."""
        for condition in self.get(kind, name).get("status", {}).get("conditions", []):
            if condition["type"] == type_:
                return condition["status"], condition.get("message", "")
        return "", ""

    def workers(self, nodeset: str) -> dict[str, dict[str, Any]]:
        """Its pods that are not on their way out, by name."""
        selector = f"app.kubernetes.io/name=slurmd,app.kubernetes.io/instance={nodeset}"
        found = json.loads(self.kubectl("get", "pods", f"--selector={selector}", "--output=json"))["items"]
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def events(self, name: str) -> str:
        return self.kubectl("events", f"--for={name}", "--no-headers")

    # Slurm

    def login(self, *command: str, user: str = "", check: bool = True) -> str:
        """On the login node, as root or as somebody; asked again where slurmctld did not answer, as when it reads its files anew."""
        words = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--", *command] if user else list(command)
        for again in reversed(range(TRIES)):
            try:
                return self.kubectl("exec", "deploy/slurm-login", "--", "env", "--chdir=/tmp", *words, check=check)
            except AssertionError as error:
                if not again or UNANSWERED not in str(error):
                    raise
        raise AssertionError("no try was allowed")

    def on(self, pod: str, *command: str) -> str:
        return self.kubectl("exec", pod, "--", *command)

    def submit(self, script: str, *options: str, user: str = "") -> int:
        return int(self.login("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}", user=user))

    def job(self, number: int) -> dict[str, str]:
        """As slurmctld says it: JobState, NodeList, Reason, Restarts …"""
        return dict(re.findall(r"(\w+)=(\S*)", self.login("scontrol", "--oneliner", "show", "job", str(number))))

    def states(self) -> dict[str, str]:
        """Of the nodes: `idle`, `drained` …, with `*` where one does not answer."""
        return dict(line.split() for line in self.login("sinfo", "--Node", "--noheader", "--format=%N %T").splitlines())

    def partitions(self) -> set[str]:
        return set(self.login("sinfo", "--noheader", "--format=%R").split())

    def configured(self, key: str) -> str:
        found = re.search(rf"^{key}\s*= (.*)$", self.login("scontrol", "show", "config"), re.MULTILINE | re.IGNORECASE)
        return found[1].strip() if found else ""

    # Waiting

    def until(self, what: str, probe: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Waits until it is so; what a server refuses meanwhile means not yet."""
        deadline, wrong = time.monotonic() + seconds, ""
        for _ in _often():
            try:
                if probe():
                    return
            except (AssertionError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
                wrong = str(error)[:500]
            assert time.monotonic() < deadline, f"{what}: not so after {seconds:g} s ({wrong})\n{self.situation()}"

    def until_job(self, number: int, *states: str, seconds: float = PATIENCE) -> dict[str, str]:
        self.until(f"job {number} was {' or '.join(states)}", lambda: self.job(number)["JobState"] in states, seconds)
        return self.job(number)

    def until_idle(self, *names: str, seconds: float = PATIENCE) -> None:
        self.until(f"{', '.join(names)} were idle", lambda: all(self.states().get(name) == "idle" for name in names), seconds)

    def situation(self) -> str:
        """For whoever reads why a test failed."""
        pods = self.kubectl("get", "pods", "--output=wide", check=False)
        kinds = self.kubectl("get", "controllers,accountings,restapis,nodesets,loginsets", check=False)
        return f"{pods}\n{kinds}\n{self.login('sinfo', '--Node', '--long', check=False)}\n{self.login('squeue', check=False)}"


def side_by_side(cluster: Cluster, *scenarios: Callable[[Cluster], None]) -> None:
    """All of them, to their ends; the first that fails is told."""
    with ThreadPoolExecutor(len(scenarios)) as threads:
        for done in [threads.submit(scenario, cluster) for scenario in scenarios]:
            done.result()


def _often() -> Iterator[None]:
    while True:
        yield
        time.sleep(0.3)
