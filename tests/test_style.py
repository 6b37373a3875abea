"""What ruff and mypy do not check: length of functions, and what is imported for `--help`."""

import ast
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mlmclm

PACKAGE = Path(mlmclm.__file__).parent
TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
HEAVY = {"torch", "transformers", "datasets", "tokenizers", "sklearn", "scipy", "matplotlib"}


def functions() -> dict[str, int]:
    """Return the length of each function in lines, with its docstring."""
    return {
        f"{name}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, Function)
    }


def test_no_function_is_longer_than_sixty_lines_and_half_are_at_most_ten():
    lengths = functions()
    assert {name: length for name, length in lengths.items() if length > 60} == {}
    assert statistics.median(lengths.values()) <= 10


def public(node: ast.AST, prefix: str) -> list[str]:
    """Return the public functions and classes below a node that have no docstring."""
    found = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef) and not child.name.startswith("_"):
            name = f"{prefix} {child.name}"
            found += [name] if ast.get_docstring(child) is None else []
            found += public(child, name) if isinstance(child, ast.ClassDef) else []
    return found


def test_every_module_and_every_public_function_and_class_is_documented():
    modules = [name for name, tree in TREES.items() if ast.get_docstring(tree) is None]
    assert modules + [each for name, tree in TREES.items() for each in public(tree, name)] == []


def catches_all(node: ast.ExceptHandler) -> bool:
    names = {leaf.id for leaf in ast.walk(node.type or node) if isinstance(leaf, ast.Name)}
    return node.type is None or bool(names & {"Exception", "BaseException"})


def test_no_error_is_caught_without_being_named():
    handlers = [
        f"{name}:{node.lineno}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and catches_all(node)
    ]
    assert handlers == []


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["compare", "--help"]])
def test_help_and_version_import_nothing_heavy(arguments):
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['mlmclm', *{arguments!r}]\n"
        "try: runpy.run_module('mlmclm', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"print('heavy:', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.stdout.decode().splitlines()[-1:] == ["heavy: []"], done.stderr.decode()


def test_help_answers_at_once():
    command = [sys.executable, "-m", "mlmclm", "--help"]
    times = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "TERM": "dumb"})
        times.append(time.perf_counter() - started)
    assert min(times) < 1.5  # a quiet machine takes less than 0.5; this one may be busy
