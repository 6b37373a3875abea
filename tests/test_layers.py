"""Modules import only from layers below them, and nobody asks an objective for its name."""

import ast
from pathlib import Path

import pytest

import mlmclm
from mlmclm.objectives import OBJECTIVES

PACKAGE = Path(mlmclm.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [
    ["errors", "contracts", "files"],
    ["registry", "seeds", "timing", "provenance", "toml", "checks", "hub"],
    ["attention"],
    ["tokenization", "corpora", "models"],
    ["objectives", "decoding"],
    ["training", "evaluation"],
    ["experiment", "results", "statistics", "tables", "plots", "report"],
    ["run"],
    ["comparison", "forecast", "catalogue"],
    ["cli"],
    ["__main__"],
]
LAYER = {part: number for number, parts in enumerate(LAYERS, start=1) for part in parts}

NEIGHBOURS = {
    ("contracts", "errors"),
    ("checks", "toml"),
    ("tokenization", "corpora"),
    ("corpora", "tokenization"),  # packing needs tokens, a tokenizer is trained on a corpus
    ("tables", "results"),
    ("tables", "statistics"),
    ("plots", "results"),
    ("plots", "statistics"),
    ("plots", "tables"),
    ("report", "results"),
    ("report", "statistics"),
    ("report", "tables"),
    ("report", "plots"),
}
"""Who may import whom within a layer."""


def part_of(module: str) -> str:
    """Return the file or folder right below the package that a dotted name lies in."""
    return module.split(".")[1] if "." in module else "__init__"


def imports(tree: ast.AST) -> set[str]:
    """Return the parts of the package that a module imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            submodules = [f"mlmclm.{alias.name}" for alias in node.names]
            found.update(submodules if node.module == "mlmclm" else [node.module])
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    inside = {name for name in found if name.split(".")[0] == "mlmclm"}
    return {part_of(name) for name in inside} - {"__init__", "__version__"}


def allowed(importer: str, imported: str) -> bool:
    """Tell whether one part may import another."""
    same = importer == imported or (importer, imported) in NEIGHBOURS
    return same or LAYER[imported] < LAYER[importer]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_module_imports_only_from_layers_below_it(path):
    inner = path.relative_to(PACKAGE).with_suffix("")
    importer = inner.parts[0]
    assert importer in {*LAYER, "__init__"}, f"{importer} has no place in LAYERS"
    wrong = [each for each in imports(parse(path)) if not allowed(importer, each)]
    assert not wrong, f"{inner} (layer {LAYER[importer]}) imports {wrong}"


def test_imports_are_found_wherever_and_however_they_are_written():
    code = "import mlmclm.run as r\ndef f():\n  from mlmclm import cli, seeds\n  import torch"
    assert imports(ast.parse(code)) == {"run", "cli", "seeds"}
    assert not allowed("models", "objectives")
    assert not allowed("models", "corpora")
    assert not allowed("statistics", "tables")
    assert allowed("evaluation", "objectives")


def names_compared(tree: ast.AST, names: set[str]) -> list[int]:
    """Return the lines where something is compared with, or matched against, one of the names."""
    places: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue):
            places.append(node)
    return [
        place.lineno
        for place in places
        for leaf in ast.walk(place)
        if isinstance(leaf, ast.Constant) and leaf.value in names
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nobody_asks_an_objective_for_its_name(path):
    lines = names_compared(parse(path), set(OBJECTIVES.names()))
    own = path.relative_to(PACKAGE).parts[0] == "objectives"
    assert own or not lines, f"{path}: lines {lines}"


def test_comparing_with_a_name_is_seen_in_all_its_forms():
    name = OBJECTIVES.names()[0]
    for code in (
        f"x == '{name}'",
        f"x not in ('{name}', 'y')",
        f"match x:\n  case '{name}': pass",
        f"'{name}' in x",
    ):
        assert names_compared(ast.parse(code), {name}), code
    assert not names_compared(ast.parse(f"f('{name}')"), {name})
