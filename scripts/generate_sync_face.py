"""Writes src/slinky/slurm/sync.py from the async calls: one implementation, two faces.

python scripts/generate_sync_face.py            write it
python scripts/generate_sync_face.py --check    exit 1 if it is not what would be written
"""

import ast
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.writing import CHECKOUT, write_or_check

PACKAGE = CHECKOUT / "src/slinky/slurm"
TARGET = PACKAGE / "sync.py"

HEAD = '''"""The client for scripts and notebooks: the same calls, waited for. Made from the async ones by scripts/generate_sync_face.py; do not edit.

>>> with SlurmClient("http://head:6820") as slurm:  # doctest: +SKIP
...     print(slurm.jobs.states())
"""
'''

# Class → the module that has it. The client itself comes last: it holds the others.
CLASSES = {
    "Jobs": "calls/jobs.py",
    "Nodes": "calls/nodes.py",
    "Partitions": "calls/cluster.py",
    "Reservations": "calls/cluster.py",
    "Accounting": "calls/accounting.py",
}
CLIENT = [("ClusterCalls", "calls/cluster.py"), ("SlurmClient", "client.py")]
SKIP = {"close", "within"}


def class_node(name: str, module: str) -> tuple[ast.ClassDef, dict[str, str]]:
    tree = ast.parse((PACKAGE / module).read_text())
    imports = {
        alias.asname or alias.name: f"from {node.module} import {alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), imports


def methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    found = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [item for item in found if not item.name.startswith("_") and item.name not in SKIP]


def passed_on(arguments: ast.arguments) -> str:
    words = [argument.arg for argument in arguments.args[1:]] + [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    return ", ".join(words + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else []))


def written(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    returns = ast.unparse(method.returns) if method.returns else "None"
    iterates = returns.startswith("AsyncIterator")
    call = f"self._inner.{method.name}({passed_on(method.args)})"
    body = f"return self._portal.{'iterate' if iterates else 'run'}({call})"
    if returns == "None":
        body = body.removeprefix("return ")
    doc = (ast.get_docstring(method, clean=False) or "").replace("await ", "")
    return f'    def {method.name}({ast.unparse(method.args)}) -> {returns.replace("AsyncIterator", "Iterator")}:\n        """{doc}"""\n        {body}\n'


def names_used(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def generate() -> str:
    imports: dict[str, str] = {}
    parts = []
    for name, module in CLASSES.items():
        node, found = class_node(name, module)
        imports |= found
        head = f'class {name}:\n    """{ast.get_docstring(node)} Waited for."""\n\n    def __init__(self, inner: asynchronous.{name}, portal: Portal) -> None:\n        self._inner = inner\n        self._portal = portal\n'
        parts.append("\n".join([head, *(written(method) for method in methods(node))]).replace(f"asynchronous.{name}", f"{name}Calls"))
        imports[f"{name}Calls"] = f"from slinky.slurm.{module.removesuffix('.py').replace('/', '.')} import {name} as {name}Calls"
    client: list[str] = []
    for name, module in CLIENT:
        node, found = class_node(name, module)
        imports |= found
        client += [written(method) for method in methods(node)]
    constructor = next(item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
    parts.append(CLIENT_HEAD.format(arguments=ast.unparse(constructor.args), passed=passed_on(constructor.args)) + "\n".join(client))
    body = "\n\n".join(parts)
    imports |= {
        "Portal": "from slinky.slurm.portal import Portal",
        "AsyncClient": "from slinky.slurm.client import SlurmClient as AsyncClient",
        "Iterator": "from collections.abc import Iterator",
        "TracebackType": "from types import TracebackType",
        "Self": "from typing import Self",
    }
    used = names_used(body) - CLASSES.keys()
    lines = sorted({line for name, line in imports.items() if name in used})
    return formatted(HEAD + "\n".join(lines) + '\n\n__all__ = ["SlurmClient"]\n\n\n' + body)


CLIENT_HEAD = '''class SlurmClient:
    """A Slurm cluster, through its slurmrestd; each call waits for its answer. The arguments are those of `slinky.slurm.SlurmClient`."""

    def __init__({arguments}) -> None:
        self._use(AsyncClient({passed}), Portal())

    def _use(self, inner: AsyncClient, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal
        self.jobs = Jobs(inner.jobs, portal)
        self.nodes = Nodes(inner.nodes, portal)
        self.partitions = Partitions(inner.partitions, portal)
        self.reservations = Reservations(inner.reservations, portal)
        self.accounting = Accounting(inner.accounting, portal)

    def __repr__(self) -> str:
        return repr(self._inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread behind them; calls that other threads wait for end with an error."""
        self._portal.close(self._inner.close)

    def within(self, seconds: float) -> "SlurmClient":
        """The same client, with another deadline for each call."""
        other = object.__new__(type(self))
        other._use(self._inner.within(seconds), self._portal)
        return other

'''


def formatted(text: str) -> str:
    ruff = Path(sys.executable).parent / "ruff"
    sort = [str(ruff), "check", "--fix", "--quiet", "--select", "I,F401,UP", "--stdin-filename", str(TARGET), "-"]
    text = subprocess.run(sort, input=text, capture_output=True, text=True, check=True, cwd=CHECKOUT).stdout
    format_ = [str(ruff), "format", "--quiet", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(format_, input=text, capture_output=True, text=True, check=True, cwd=CHECKOUT).stdout


if __name__ == "__main__":
    sys.exit(write_or_check({TARGET: generate()}))
