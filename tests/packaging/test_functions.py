"""No function of ours is longer than a screen."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("dpaudit", "attacks", "mitigations", "extensions", "studies", "benchmarks")
MOST = 60


def long_functions(source):
    """Names of functions with more than 60 lines beside their docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0]
            docstring = (
                0 if ast.get_docstring(node) is None else first.end_lineno - first.lineno + 1
            )
            if node.end_lineno - node.lineno + 1 - docstring > MOST:
                yield node.name


@pytest.mark.parametrize("room", ROOMS)
def test_no_function_is_longer_than_a_screen(room):
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    assert not [(f, n) for f in files for n in long_functions(f.read_text(encoding="utf-8"))]


def test_a_long_one_is_found():
    body = '    """Two\n    lines."""\n' + "    x = 1\n" * MOST
    assert list(long_functions(f"def f():\n{body}")) == ["f"]
    assert not list(long_functions(f"def f():\n{body.removesuffix('    x = 1' + chr(10))}"))
