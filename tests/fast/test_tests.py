"""Tests that could not fail: a story within a test that nobody lets run."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent


def untold(tree: ast.Module) -> Iterator[str]:
    for test in ast.walk(tree):
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_"):
            used = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
            for inner in test.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name not in used and not inner.decorator_list:
                    yield f"{test.name}: nothing calls its {inner.name}()"


def test_what_a_test_defines_it_also_calls() -> None:
    assert list(untold(ast.parse("def test_a():\n    async def story(): assert False\n")))
    assert [f"{path}: {found}" for path in TESTS.rglob("*.py") for found in untold(ast.parse(path.read_text()))] == []
