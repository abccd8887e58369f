"""What the demo's story does, with the commands that a user has, and what pods and jobs wrote themselves.

Comes in: a sandbox, the folder with the story's files. Goes out: each file shown and applied or submitted, what a command said; from a node's own disk the words that a container or a job wrote, with the time that the kernel has been up. What must stay
true: a command that fails is an error that names it, and each has a deadline.
"""

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path

from slinky.cli.demo.show import Show
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.realnodes import node_name

__all__ = ["Deeds", "Words", "expect"]

COMMAND_SECONDS = 60.0


class Deeds:
    def __init__(self, show: Show, sandbox: Sandbox, folder: Path, namespace: str) -> None:
        self._show, self._sandbox, self._folder, self._namespace = show, sandbox, folder, namespace

    async def show(self, *files: str, edits: Mapping[str, str] | None = None) -> None:
        """What will be applied or submitted."""
        for file in files:
            self._show.manifest(self._folder / file, self._edited(file, edits or {}))
        await self._show.breathe()

    async def apply(self, file: str, edits: Mapping[str, str] | None = None) -> None:
        """With words of the file replaced by others."""
        edits = edits or {}
        shown = f"examples/demo/{file}"
        if edits:
            edit = shlex.quote(";".join(f"s/{word}/{other}/" for word, other in edits.items()))
            self._show.command(f"sed {edit} {shown} | kubectl apply -n {self._namespace} -f -")
        else:
            self._show.command(f"kubectl apply -n {self._namespace} -f {shown}")
        await self.kubectl("apply", "--namespace", self._namespace, "--filename=-", given=self._edited(file, edits))

    async def sbatch(self, file: str, *options: str) -> int:
        """Its id."""
        told = await self.head("sbatch", "--parsable", *options, str(self._folder / file))
        number = told.strip().partition(";")[0]
        expect(number.isdigit(), f"sbatch tells the job's id for {file}", told.strip())
        self._show.command(shlex.join(["sbatch", *options, f"examples/demo/{file}"]), f"Submitted batch job {number}")
        return int(number)

    def _edited(self, file: str, edits: Mapping[str, str]) -> str:
        text = (self._folder / file).read_text()
        for word, other in edits.items():
            text = text.replace(word, other)
        return text

    async def head(self, *command: str) -> str:
        """A command of Slurm's."""
        async with asyncio.timeout(COMMAND_SECONDS):
            return await self._sandbox.link.run("head", *command)

    async def kubectl(self, *words: str, given: str = "") -> str:
        command = [str(self._sandbox.folder / "bin/kubectl"), *words]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                out, wrong = await process.communicate(given.encode())
        except TimeoutError:
            process.kill()
            raise SandboxError(f"kubectl {shlex.join(words)} did not end within {COMMAND_SECONDS:g} s") from None
        if process.returncode:
            raise SandboxError(f"kubectl {shlex.join(words)} ended with {process.returncode}: {wrong.decode().strip()}")
        return out.decode()


class Words:
    """What was written into /var/tmp of the real nodes; a line of `words` is `UPTIME WHO WORD`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def file(self, node: str, name: str) -> str:
        """Empty where it is not there."""
        path = self._sandbox.folder / node / "var/tmp" / name
        return path.read_text().strip() if path.exists() else ""

    def prologs(self) -> str:
        """What the prologs on all nodes said."""
        return "\n".join(self.file(node_name(index), "prolog.log") for index in range(self._sandbox.record.shape.real_nodes))

    def at(self, node: str, who: str, word: str) -> float | None:
        """When it was first said."""
        return next((float(up) for up, name, said in self._lines(node) if (name, said) == (who, word)), None)

    def who(self, node: str, word: str) -> list[str]:
        return [name for _, name, said in self._lines(node) if said == word]

    def _lines(self, node: str) -> list[list[str]]:
        return [words for line in self.file(node, "words").splitlines() if len(words := line.split()) == 3]


def expect(true: bool, what: str, instead: str) -> None:
    if not true:
        raise SandboxError(f"the demo expected that {what}; but: {instead}")
