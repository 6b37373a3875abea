"""Tables as Markdown, CSV, LaTeX, JSON and for a terminal; and the whole report in a folder.

The HTML page needs nothing beside itself: no script, no font, no network; plots are data URIs.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from mlmclm.contracts import Row
from mlmclm.files import write_whole
from mlmclm.plots import Plot, all_plots
from mlmclm.results import CurvePoint
from mlmclm.statistics import number
from mlmclm.tables import (
    MINUS,
    MISSING,
    WARNING,
    Cell,
    Column,
    Comparison,
    Line,
    Section,
    Table,
    comparison,
    estimate_of,
    group_of,
    readable,
    separated,
)


def shown_labels(table: Table) -> list[tuple[str, ...]]:
    """Return the labels of each line, the first left out where it repeats the line above."""
    shown: list[tuple[str, ...]] = []
    above = ""
    for line in table.lines:
        first, *rest = line.labels
        shown.append(("" if rest and first == above else first, *rest))
        above = first
    return shown


def as_markdown(found: Comparison) -> str:
    """Return headings, aligned pipe tables, notes and provenance."""
    parts = [f"# {found.experiment}"]
    for section in found.sections:
        parts.append(f"## {section.title}")
        for table in map(readable, section.tables):
            parts += [f"**{_pipe_safe(table.title)}**"] if table.title else []
            parts += [_pipe_table(table), *_bullets(table.notes)]
        parts += _bullets(section.notes)
    return "\n\n".join([*parts, *_bullets(found.provenance)]) + "\n"


def _bullets(notes: Sequence[str]) -> list[str]:
    return ["\n".join(f"- {_pipe_safe(note)}" for note in notes)] if notes else []


def _pipe_safe(text: str) -> str:
    return re.sub(r"([|*_<`])", r"\\\1", text)


def _pipe_table(table: Table) -> str:
    body = [
        [*map(_pipe_safe, labels), *(_pipe_cell(cell) for cell in line.cells)]
        for labels, line in zip(shown_labels(table), table.lines, strict=True)
    ]
    head = [_pipe_safe(heading) for heading in table.headings]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    left = len(table.label_columns)
    rule = [
        "-" * width if index < left else "-" * (width - 1) + ":"
        for index, width in enumerate(widths)
    ]
    lines = [_pipe_line(line, widths, left) for line in (head, rule, *body)]
    return "\n".join(lines)


def _pipe_cell(cell: Cell) -> str:
    text = _pipe_safe(cell.text)
    return f"**{text}**" if cell.best else text


def _pipe_line(cells: Sequence[str], widths: Sequence[int], left: int) -> str:
    padded = [
        cell.ljust(width) if index < left else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"


def records(found: Comparison) -> Iterator[dict[str, Any]]:
    """Yield one flat record per cell that is not empty, in full precision."""
    for section in found.sections:
        for table in section.tables:
            for line in table.lines:
                for column, cell in zip(table.columns, line.cells, strict=True):
                    if cell.value is not None:
                        yield _record(section, table, line, column, cell)


def _record(
    section: Section, table: Table, line: Line, column: Column, cell: Cell
) -> dict[str, Any]:
    metric, data, method, unit = line.key
    found = cell.estimate
    return {
        "section": section.title,
        "table": table.title,
        "metric": metric,
        "data": data,
        "method": method,
        "unit": unit,
        "better": line.better,
        "line": " | ".join(line.labels),
        "column": column.label,
        "role": column.role,
        "value": cell.value,
        "sd": found and found.sd,
        "low": found and found.low,
        "high": found and found.high,
        "n": found and found.n,
        "best": cell.best,
        "flags": "; ".join(cell.flags),
    }


def as_csv(found: Comparison) -> str:
    """Return one line per number, in full precision, with its whole key."""
    stream = io.StringIO()
    lines = list(records(found))
    writer = csv.DictWriter(stream, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return stream.getvalue()


def as_json(found: Comparison) -> str:
    """Return the tables as JSON: full precision, null for an empty cell, ``"Infinity"`` for inf."""
    sections = [
        {
            "title": section.title,
            "notes": section.notes,
            "tables": [_json_table(table) for table in section.tables],
        }
        for section in found.sections
    ]
    whole = {
        "experiment": found.experiment,
        "arms": found.arms,
        "sections": sections,
        "provenance": found.provenance,
    }
    return json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _json_table(table: Table) -> dict[str, Any]:
    lines = [
        {
            **dict(zip(("metric", "data", "method", "unit"), line.key, strict=True)),
            "better": line.better,
            "labels": line.labels,
            "cells": {
                column.label: _json_cell(cell)
                for column, cell in zip(table.columns, line.cells, strict=True)
            },
        }
        for line in table.lines
    ]
    return {"title": table.title, "notes": table.notes, "lines": lines}


def _json_cell(cell: Cell) -> dict[str, Any] | None:
    if cell.value is None:
        return None
    written: dict[str, Any] = {"value": _json_number(cell.value), "text": cell.text}
    if cell.estimate is not None:
        for name in ("sd", "low", "high", "n"):
            written[name] = getattr(cell.estimate, name)
    return written | {"best": cell.best, "flags": cell.flags}


def _json_number(value: float | str) -> float | str:
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "±": r"$\pm$", MINUS: r"$-$", MISSING: "--", "⚠": r"$\dagger$", "↓": r"$\downarrow$",
    "↑": r"$\uparrow$", "·": r"$\cdot$", "≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\to$",
}  # fmt: skip


def latex_safe(text: str) -> str:
    """Return text with LaTeX's own characters escaped and our symbols in maths."""
    return "".join(_LATEX.get(character, character) for character in text)


def as_latex(found: Comparison) -> str:
    """Return booktabs tables to ``\\input``; needs ``\\usepackage{booktabs}``."""
    parts = ["% needs \\usepackage{booktabs}"]
    for section in found.sections:
        for index, table in enumerate(map(readable, section.tables)):
            last = index == len(section.tables) - 1
            parts.append(_latex_table(section, table, section.notes if last else ()))
    return "\n\n".join([*parts, *(f"% {line}" for line in found.provenance)]) + "\n"


def _latex_table(section: Section, table: Table, more_notes: Sequence[str]) -> str:
    left = len(table.label_columns)
    caption = f"{section.title}: {table.title}" if table.title else section.title
    body = [
        [*map(latex_safe, labels), *(_latex_cell(cell) for cell in line.cells)]
        for labels, line in zip(shown_labels(table), table.lines, strict=True)
    ]
    head = [latex_safe(heading) for heading in table.headings]
    notes = [f"\\par\\footnotesize {latex_safe(note)}" for note in (*table.notes, *more_notes)]
    return "\n".join(
        [
            "\\begin{table}[htbp]",
            "\\centering",
            f"\\caption{{{latex_safe(caption)}}}",
            f"\\begin{{tabular}}{{{'l' * left}{'r' * len(table.columns)}}}",
            "\\toprule",
            " & ".join(head) + r" \\",
            "\\midrule",
            *(" & ".join(line) + r" \\" for line in body),
            "\\bottomrule",
            "\\end{tabular}",
            *notes,
            "\\end{table}",
        ]
    )


def _latex_cell(cell: Cell) -> str:
    text = latex_safe(cell.text)
    return f"\\textbf{{{text}}}" if cell.best else text


def as_rich(found: Comparison) -> RenderableType:
    """Return what a terminal shows: for ``Console.print``."""
    parts: list[RenderableType] = []
    for section in found.sections:
        parts.append(Text(f"\n{section.title}", style="bold underline"))
        for table in map(readable, section.tables):
            title = [Text(f" {table.title}", style="bold")] if table.title else []
            notes = (Padding(Text(note), (0, 1)) for note in table.notes)
            parts += [*title, _rich_table(table), *notes, Text()]
        parts += [Padding(Text(note, style="dim"), (0, 1)) for note in section.notes]
    return Group(*parts, Text(), *(Text(line, style="dim") for line in found.provenance))


def _rich_table(table: Table) -> RichTable:
    rich = RichTable(box=SIMPLE_HEAD, show_edge=False)
    left = len(table.label_columns)
    for index, heading in enumerate(table.headings):
        rich.add_column(Text(heading), justify="left" if index < left else "right", overflow="fold")
    for labels, line in zip(shown_labels(table), table.lines, strict=True):
        cells = (Text(cell.text, style=_style(cell)) for cell in line.cells)
        rich.add_row(*map(Text, labels), *cells)
    return rich


def _style(cell: Cell) -> str:
    return "bold" if cell.best else "yellow" if cell.flags else ""


# The whole report


def write_report(
    folder: Path, rows: Sequence[Row], curves: Sequence[CurvePoint], command: str | None = None
) -> list[Path]:
    """Write tables, plots and the page that holds them all; each file whole or not at all.

    Args:
        folder: made where it is missing.
        rows: see `tables.comparison`.
        curves: learning curves; there is no plot of them where there are none.
        command: what reproduces the rows, if known.

    Returns:
        The files: table.md, table.csv, table.tex, table.json, the PNGs, and report.html last.

    Raises:
        UserError: if the rows cannot stand in one table.
        OSError: if the folder cannot be written to; it names the file.
    """
    rows, curves = separated(rows, curves)
    found = comparison(rows, command)
    plots = all_plots(rows, curves)
    contents = {
        "table.md": as_markdown(found).encode(),
        "table.csv": as_csv(found).encode(),
        "table.tex": as_latex(found).encode(),
        "table.json": as_json(found).encode(),
        **{f"{plot.name}.png": plot.png for plot in plots},
        "report.html": as_html(found, rows, plots, command).encode(),
    }
    for name, content in contents.items():
        write_whole(folder / name, content)
    return [folder / name for name in contents]


def as_html(
    found: Comparison, rows: Sequence[Row], plots: Sequence[Plot], command: str | None
) -> str:
    """Return one page without scripts or outside resources."""
    environment = Environment(
        loader=PackageLoader("mlmclm"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        found=found,
        question=question(rows),
        answer=answer(found, rows),
        plots=plots,
        pictures={plot.name: base64.b64encode(plot.png).decode() for plot in plots},
        command=command,
        readable=readable,
        shown_labels=shown_labels,
        warning=WARNING,
    )


def question(rows: Sequence[Row]) -> str:
    """Return what the rows can answer, with all that the arms differ in."""
    arms = list(dict.fromkeys(row.arm for row in rows))
    if len(arms) == 1:
        return f"What can {arms[0]} do, and does it beat what needs no training?"
    varied = [
        name
        for name in ("objective", "trunk", "parameters")
        if len({frozenset(getattr(row, name) for row in rows if row.arm == arm) for arm in arms})
        > 1
    ]
    alike = _listed(varied or ["name"])
    return f"What changes between {_listed(arms)}, which are alike but for their {alike}?"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def answer(found: Comparison, rows: Sequence[Row]) -> list[str]:
    """Return sentences: who is significantly better at what, how fast, and what to distrust."""
    seeds = len({row.seed for row in rows})
    sentences = [f"{len(found.arms)} arms, {seeds} seeds." if seeds > 1 else "One seed: no tests."]
    sentences += [_verdict(found, section) for section in found.sections[1:]]
    sentences += _speed(rows)
    flagged = dict.fromkeys(
        f"{note}{_route(table)}."
        for section in found.sections
        for table in section.tables
        for note in table.notes
        if note.startswith(WARNING)
    )
    return [" ".join(filter(None, sentences)), *flagged]


def _route(table: Table) -> str:
    """Return which of the tables that share their lines' names a note is from."""
    metric, _, method, _ = table.lines[0].key
    return f" by {method.partition(',')[0]}" if group_of(metric) == "classification" else ""


def _verdict(found: Comparison, section: Section) -> str:
    mine = [each for each in found.contrasts if group_of(each.key[0]) == section.title.lower()]
    if len(found.arms) == 1:
        return ""
    if not mine:
        return f"{section.title}: no two arms share a measure, so it ranks none."
    if all(each.p is None for each in mine):
        return f"{section.title}: {len(mine)} comparisons, none with seeds enough for a test."
    wins = Counter(each.winner for each in mine if each.winner is not None)
    parts = [f"{arm} is significantly better in {won}" for arm, won in wins.most_common()]
    if len(mine) > wins.total():
        parts.append(f"{len(mine) - wins.total()} show no significant difference")
    return f"{section.title}: of {len(mine)} comparisons, {_listed(parts)}."


def _speed(rows: Sequence[Row]) -> list[str]:
    """Say how long the longest generation took, which two ways of decoding have no test for."""
    timed = [row for row in rows if row.metric == "generation time" and row.role == "model"]
    lengths = [length for row in timed if isinstance(length := row.details.get("new_tokens"), int)]
    if not lengths:
        return []
    longest = [row for row in timed if row.details.get("new_tokens") == max(lengths)]
    ways = dict.fromkeys((row.arm, row.method) for row in longest)
    parts = []
    for arm, method in ways:
        mean = estimate_of([row for row in longest if (row.arm, row.method) == (arm, method)]).mean
        parts.append(f"{number(mean)} s ({arm}: {method})")
    return [f"Generating {max(lengths)} tokens took {_listed(parts)}."]
