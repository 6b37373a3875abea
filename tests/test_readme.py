"""The README shows what the committed rows say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlmclm import comparison, tables
from mlmclm.report import as_markdown

ROOT = Path(__file__).parent.parent
RESULTS = sorted((ROOT / "experiments" / "results").glob("*/rows.jsonl"))


def table_of(folder: Path) -> str:
    rows, _, command = comparison.load(folder)
    return as_markdown(tables.comparison(rows, command))


def test_the_readme_shows_the_table_of_the_committed_rows():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- results -->\n(.*)<!-- end of results -->", readme, re.DOTALL)
    assert found is not None
    expected = re.sub(r"(?m)^#", "##", table_of(ROOT / "experiments" / "results" / "tiny"))
    assert found.group(1).strip() == expected.strip()


@pytest.mark.parametrize("rows", RESULTS, ids=lambda path: path.parent.name)
def test_committed_tables_are_those_of_the_committed_rows(rows):
    assert (rows.parent / "table.md").read_text(encoding="utf-8") == table_of(rows.parent)


@pytest.mark.parametrize("rows", RESULTS, ids=lambda path: path.parent.name)
def test_committed_results_belong_to_an_experiment_and_a_clean_commit(rows):
    found, _, _ = comparison.load(rows.parent)
    assert {row.experiment for row in found} == {rows.parent.name}
    for row in found:
        assert re.fullmatch(r"[0-9a-f]{40}", row.provenance.commit)
