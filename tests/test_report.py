"""Renderers parse back to the numbers that went in, and the page needs nothing beside itself."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from html.parser import HTMLParser

import pytest
from made_up import curves, everything, row, runs
from rich.console import Console

from mlmclm.report import (
    answer,
    as_csv,
    as_json,
    as_latex,
    as_markdown,
    as_rich,
    latex_safe,
    question,
    write_report,
)
from mlmclm.statistics import estimate
from mlmclm.tables import MINUS, MISSING, comparison

COMMAND = "mlmclm compare experiments/tiny.toml"


@pytest.fixture(scope="module")
def found():
    return comparison(everything(), COMMAND)


def test_a_narrow_terminal_cuts_neither_names_nor_numbers(found):
    file = io.StringIO()
    Console(width=50, file=file, color_system=None).print(as_rich(found))
    assert "…" not in file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "tiny"
    write_report(folder, everything(), curves(), COMMAND)
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text("utf-8")


def test_csv_parses_back_to_full_precision(found):
    lines = list(csv.DictReader(io.StringIO(as_csv(found))))
    (line,) = (
        line
        for line in lines
        if (line["metric"], line["unit"], line["column"]) == ("perplexity", "1/word", "clm")
    )
    expected = estimate([math.exp(1.19 * each) for each in (4.612, 4.598, 4.631)])
    assert float(line["value"]) == expected.mean
    assert (float(line["low"]), float(line["high"])) == (expected.low, expected.high)
    assert (line["n"], line["method"]) == ("3", "left to right, context 128, stride 64")


def test_json_parses_back_to_full_precision_with_null_for_missing(found):
    tables = [table for part in json.loads(as_json(found))["sections"] for table in part["tables"]]
    lines = {(line["metric"], line["unit"]): line for table in tables for line in table["lines"]}
    cells = lines["masked-token loss", "nats/target"]["cells"]
    assert cells["clm"] is None
    assert cells["mlm"]["value"] == estimate([6.312, 6.287, 6.335]).mean
    assert cells["mlm"]["flags"] == ["does not beat context-free"]


def test_infinity_is_text_in_json_and_a_float_in_csv():
    found = comparison(runs("clm", (math.inf,) * 3, metric="perplexity", unit="1/word"))
    assert '"value": "Infinity"' in as_json(found)
    lines = csv.DictReader(io.StringIO(as_csv(found)))
    assert math.inf in [float(line["value"]) for line in lines if line["metric"] == "perplexity"]
    assert "inf" in as_markdown(found)


def test_markdown_tables_are_well_formed_even_with_pipes_in_names():
    rows = everything() + runs("a|b", (0.5, 0.6, 0.7), metric="a_metric*", method="m|n", unit="u")
    blocks = re.split(r"\n\n", as_markdown(comparison(rows)))
    tables = [block.splitlines() for block in blocks if block.startswith("|")]
    assert len(tables) > 6
    for lines in tables:
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        widths = {len(line) for line in lines}
        assert len(cells) == len(widths) == 1
        assert re.fullmatch(r"[|\-: ]+", lines[1])


def test_markdown_sets_only_the_significantly_best_in_bold(found):
    text = as_markdown(found)
    assert "**73.9 ± 0.9**" in text
    assert "**91.3" not in text


def test_latex_escapes_its_own_characters(found):
    assert latex_safe("50% of a_b & c#1 {x} ~ ^ \\ $") == (
        r"50\% of a\_b \& c\#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$"
    )
    text = as_latex(found)
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert not re.search(r"(?<!\\)[%#_]", body)
    assert not re.search(f"[±{MINUS}{MISSING}⚠↓↑·]", body)
    assert text.count("\\toprule") == text.count("\\bottomrule") == text.count("\\end{table}")
    assert "\\textbf{73.9 $\\pm$ 0.9}" in text


def test_latex_lines_have_as_many_cells_as_columns(found):
    for match in re.finditer(r"tabular}{([lr]+)}(.*?)\\end", as_latex(found), re.DOTALL):
        lines = [line for line in match[2].splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(match[1]) - 1}


def test_a_terminal_of_110_columns_shows_every_number_whole(found):
    console = Console(width=110, file=io.StringIO(), color_system=None)
    console.print(as_rich(found))
    text = console.file.getvalue()
    for whole in ("4.614 ± 0.041", "6.311 ± 0.060 ⚠", "clm from scratch", "0.004300 ± 0.00032"):
        assert whole in text
    assert max(map(len, text.splitlines())) <= 110


class Resources(HTMLParser):
    """Collects what a browser would fetch or run, and checks that tags close."""

    void = frozenset({"meta", "img", "br", "link", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.alts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open += [tag] if tag not in self.void else []
        self.fetched += [value for name, value in attrs if name in ("src", "href", "srcset")]
        self.alts += [value for name, value in attrs if name == "alt"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_loads_nothing_and_runs_nothing(page):
    seen = Resources()
    seen.feed(page)
    assert seen.open == []
    assert not {"script", "link", "iframe", "object"} & set(seen.tags)
    assert len(seen.fetched) == 3
    assert all(each.startswith("data:image/png;base64,") for each in seen.fetched)
    assert all(len(alt) > 40 for alt in seen.alts)
    assert "http" not in page
    assert not re.search(r"@import|url\(", page)


def test_the_page_has_every_number_of_the_tables(page, found):
    for section in found.sections:
        for table in section.tables:
            for line in table.lines:
                assert all(cell.text.replace("<", "&lt;") in page for cell in line.cells)
    assert COMMAND in page
    assert "prefers-color-scheme: dark" in page


def test_names_cannot_inject_markup(tmp_path):
    rows = [row(arm="<script>alert(1)</script>", experiment="<b>x</b>")]
    *_, page = write_report(tmp_path, rows, [])
    text = page.read_text("utf-8")
    assert "<script" not in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text


def test_files_are_those_promised_and_no_draft_is_left(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        "accuracy.png", "generation-time.png", "learning-curves.png", "report.html",
        "table.csv", "table.json", "table.md", "table.tex",
    ]  # fmt: skip


def test_the_same_rows_give_the_same_files(folder, tmp_path):
    for path in write_report(tmp_path, everything(), curves(), COMMAND):
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "taken").write_text("", encoding="utf-8")
    with pytest.raises(OSError, match="taken"):
        write_report(tmp_path / "taken" / "results", [row()], [])


def test_answer_counts_wins_and_repeats_the_flags(found):
    first, *flags = answer(found, everything())
    assert "2 arms, 3 seeds." in first
    assert "Classification: of 6 comparisons" in first
    assert "mlm is significantly better in 2" in first
    assert "2 show no significant difference" in first
    assert "Likelihood: no two arms share a measure" in first
    assert "Generating 128 tokens took" in first
    assert flags == [
        "⚠ mlm: does not beat context-free in masked-token loss (nats/target); "
        "masked-token perplexity (1/target).",
        "⚠ mlm: does not beat TF-IDF in clinc150/test by fine-tuning.",
        "⚠ clm: does not beat TF-IDF in clinc150/test; mr/test by fine-tuning.",
        "⚠ clm: does not beat TF-IDF (1 of 3 runs) in subj/test by fine-tuning.",
        "⚠ mlm: does not beat TF-IDF in clinc150/test; mr/test; subj/test by linear probe.",
        "⚠ clm: does not beat TF-IDF in clinc150/test; mr/test; subj/test by linear probe.",
    ]


def test_question_names_what_the_arms_differ_in():
    assert question(everything()).endswith("alike but for their objective?")
    rows = [row("a", objective="mlm"), row("b", objective="clm", trunk="gpt2-mini")]
    assert question(rows).endswith("alike but for their objective and trunk?")


def test_one_seed_is_answered_without_a_winner():
    rows = [row("a", value=1.0), row("b", value=9.0)]
    (text,) = answer(comparison(rows), rows)
    assert "none with seeds enough" in text
    assert "better" not in text
