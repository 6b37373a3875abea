"""From rows to tables, purely: what is compared, what must not be, and what chance could explain.

Arms and baselines are columns. A line is one metric, on one data set, by one method, in one unit,
so that two methods never share a line: a masked loss cannot stand beside a causal one. A number is
bold only if it beats every other arm of its line in a paired test over seeds, corrected for the
number of tests in the whole comparison (Holm 1979).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeVar

from mlmclm.contracts import Row
from mlmclm.errors import UserError
from mlmclm.results import CurvePoint
from mlmclm.statistics import (
    LEVEL,
    Difference,
    Estimate,
    count,
    estimate,
    estimate_text,
    holm,
    number,
    p_text,
    paired,
    scaled,
)

GROUPS = {
    "validation loss": "training",
    "negative log-likelihood": "likelihood",
    "perplexity": "likelihood",
    "masked-token loss": "likelihood",
    "masked-token perplexity": "likelihood",
    "masked-token accuracy": "likelihood",
    "pseudo-perplexity": "likelihood",
    "accuracy": "classification",
    "time to first token": "generation",
    "time per token, median": "generation",
    "time per token, p90": "generation",
    "time between tokens, median": "generation",
    "time between tokens, p90": "generation",
    "throughput": "generation",
    "generation time": "generation",
    "forward passes": "generation",
    "peak memory": "generation",
}
"""Metric to section, in the order of display; what is not here stands under ``other``."""

SECTIONS = ("training", "likelihood", "classification", "generation", "other")

BASELINES = ("majority class", "TF-IDF", "uniform", "unigram", "bigram", "context-free")
"""Order of the shared baselines; others follow by name."""

UNITS = ("nats/token", "nats/word", "bits/byte", "1/token", "1/word")
"""Order of the units of one metric."""

TEXT_LEVEL = frozenset(
    {
        ("negative log-likelihood", "nats/word"),
        ("negative log-likelihood", "bits/byte"),
        ("perplexity", "1/word"),
    }
)
"""Metric and unit of what the tokenizer does not touch: the chain rule over the whole text. (The
lines of a pseudo-perplexity are chosen by their number of tokens.)"""

MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
WARNING = "⚠"

_MASKED = (
    "Masked-token numbers are taken on hidden tokens that are seen from both sides. They are no "
    "likelihood of the text and no perplexity, are never ranked against one, and exist only for "
    "an objective that fills masks."
)
_LEFT_TO_RIGHT = (
    "Left to right, every token is predicted from what stands before it (the chain rule): a "
    "likelihood of the text, which exists only for a model that cannot see ahead."
)
WHY_MISSING = {
    "masked-token loss": _MASKED,
    "masked-token perplexity": _MASKED,
    "masked-token accuracy": _MASKED,
    "negative log-likelihood": _LEFT_TO_RIGHT,
    "perplexity": _LEFT_TO_RIGHT,
    "pseudo-perplexity": "Pseudo-perplexity hides one token at a time and sums; the product is no "
    "probability of the text (Torroba Hennigen & Kim 2023), so it ranks masked models only.",
}
"""Metric to the reason why an arm may have no such number."""

Key = tuple[str, str, str, str]
"""Metric, data, method, unit (`Row.column`)."""


@dataclass(frozen=True)
class Column:
    """An arm, the untrained model of an arm, or a baseline that all arms share."""

    arm: str = ""
    """Empty for a shared baseline."""
    role: str = "model"
    baseline: str = ""

    @property
    def label(self) -> str:
        """Return the heading."""
        return " ".join(part for part in (self.arm, self.baseline) if part)


@dataclass(frozen=True)
class Cell:
    """One number or word: as shown, and in full."""

    text: str
    value: float | str | None = None
    """Full precision; None where the cell is empty."""
    estimate: Estimate | None = None
    """With interval, where ``value`` is a mean over seeds."""
    best: bool = False
    """Significantly better than every other arm of the line."""
    flags: tuple[str, ...] = ()
    """What must be known before the number is believed."""


@dataclass(frozen=True)
class Line:
    """One measure, with a cell for each column."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    key: Key = ("", "", "", "")
    better: str = ""
    """``lower``, ``higher``, or empty where neither is."""


@dataclass(frozen=True)
class Table:
    """Lines under common headings."""

    title: str
    label_columns: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        """All headings from left to right."""
        return self.label_columns + tuple(column.label for column in self.columns)


WIDEST = 6
"""Columns with a number that a table is shown with; a wider one is turned on its side."""


def readable(table: Table) -> Table:
    """Return the table as it is shown: many arms stand below one another.

    What is the same for all of them is a note then.
    """
    if len(table.columns) <= max(WIDEST, len(table.lines)):
        return table
    alike = [line for line in table.lines if len({cell.text for cell in line.cells}) == 1]
    kept = [line for line in table.lines if line not in alike]
    words = "; ".join(f"{' '.join(line.labels)} {line.cells[0].text}" for line in alike)
    notes = (f"The same in all: {words}.",) if alike else ()
    return Table(
        table.title,
        ("arm",),
        tuple(Column(" ".join(line.labels), "quantity") for line in kept),
        tuple(
            Line((column.label,), tuple(line.cells[index] for line in kept))
            for index, column in enumerate(table.columns)
        ),
        (*table.notes, *notes),
    )


@dataclass(frozen=True)
class Section:
    """Tables that are read together."""

    title: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contrast:
    """Two arms on one line."""

    key: Key
    first: str
    second: str
    difference: Difference
    better: str
    p: float | None = None
    """Holm-corrected over all lines and pairs of the comparison; None where there is no test."""

    @property
    def pair(self) -> str:
        """Return what is taken from what."""
        return f"{self.first} {MINUS} {self.second}"

    @property
    def winner(self) -> str | None:
        """The arm that is significantly better, or None."""
        if self.p is None or self.p >= 1 - LEVEL:
            return None
        lower = self.first if self.difference.estimate.mean < 0 else self.second
        higher = self.second if lower == self.first else self.first
        return lower if self.better == "lower" else higher


@dataclass(frozen=True)
class Comparison:
    """All that one set of rows has to say."""

    experiment: str
    arms: tuple[str, ...]
    sections: tuple[Section, ...]
    contrasts: tuple[Contrast, ...]
    provenance: tuple[str, ...] = field(default=())


Grid = dict[Key, dict[Column, list[Row]]]


def unit_text(unit: str) -> str:
    """Return a unit as it stands in a label."""
    return "%" if unit == "share" else unit


def natural(text: str) -> list[tuple[int, str]]:
    """Return a sorting key under which ``64`` comes before ``128``."""
    return [(int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", text)]


def full_label(key: Key) -> str:
    """Return a line's name where nothing around it says more."""
    metric, data, method, unit = key
    return ", ".join(part for part in (f"{metric} ({unit_text(unit)})", data, method) if part)


# ------------------------------------------------------------------------------ what the rows say


def comparison(rows: Sequence[Row], command: str | None = None) -> Comparison:
    """Turn rows into tables.

    Args:
        rows: of one experiment, each measurement of each run once (`results.latest`).
        command: what reproduces the rows, if known.

    Raises:
        UserError: if there are no rows.
    """
    if not rows:
        raise UserError("there are no rows to show; `mlmclm compare` or `evaluate` makes some")
    rows, _ = separated(rows)
    arms = tuple(dict.fromkeys(row.arm for row in rows))
    grid = _grid(rows)
    contrasts = _contrasts(grid, arms)
    groups = (_group_section(name, grid, arms, contrasts) for name in SECTIONS[1:])
    sections = [_training_section(rows, arms), *(each for each in groups if each.tables)]
    return Comparison(
        experiment=", ".join(dict.fromkeys(row.experiment for row in rows)),
        arms=arms,
        sections=tuple(sections),
        contrasts=contrasts,
        provenance=_provenance(rows, command),
    )


def group_of(metric: str) -> str:
    """Return the section that a metric stands in."""
    return GROUPS.get(metric, "other")


def separated(
    rows: Sequence[Row], curves: Sequence[CurvePoint] = ()
) -> tuple[list[Row], list[CurvePoint]]:
    """Give what counts different tokens, or read different data, methods that say so.

    The method is what keeps numbers apart, so nothing can set them side by side after this.
    Likelihood per word and per byte stands above the tokenizer, but not above the text.

    Returns:
        Rows and curves, otherwise as they were; what is separated already is left as it is.
    """
    seen: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        for kind, found in _inputs(row).items():
            seen.setdefault((kind, row.data), set()).add(found)

    def addition(row: Row) -> str:
        return "".join(
            f", {kind} {found[:6]}"
            for kind, found in _inputs(row).items()
            if len(seen[kind, row.data]) > 1
            and not (kind == "tokenizer" and (row.metric, row.unit) in TEXT_LEVEL)
        )

    additions = {
        (row.arm, row.run): addition(row) for row in rows if group_of(row.metric) == "training"
    }
    return (
        [_with(row, addition(row)) for row in rows],
        [_with(point, additions.get((point.arm, point.run), "")) for point in curves],
    )


Record = TypeVar("Record", Row, CurvePoint)


def _with(record: Record, more: str) -> Record:
    method = record.method.removesuffix(more) + more
    return record.model_copy(update={"method": method}) if more else record


def _inputs(row: Row) -> dict[str, str]:
    """Return hashes of what a number was taken on, by kind."""
    if group_of(row.metric) in ("training", "likelihood"):
        return {"text": row.provenance.data_hash, "tokenizer": row.provenance.tokenizer_hash}
    task = row.details.get("task_hash")
    return {"sentences": task} if isinstance(task, str) else {}


def _grid(rows: Iterable[Row]) -> Grid:
    grid: Grid = {}
    for row in rows:
        shared = row.role == "baseline"
        column = Column("" if shared else row.arm, row.role, row.baseline)
        grid.setdefault(row.column, {}).setdefault(column, []).append(row)
    order = list(GROUPS)
    return dict(sorted(grid.items(), key=lambda item: _line_order(item[0], item[1], order)))


def _line_order(
    key: Key, columns: dict[Column, list[Row]], order: list[str]
) -> tuple[int, str, int, list[tuple[int, str]], list[tuple[int, str]], int, str]:
    """Sort by metric, then by length of what was generated: equal lengths are neighbours."""
    metric, data, method, unit = key
    rank = order.index(metric) if metric in order else len(order)
    length = next(iter(columns.values()))[0].details.get("new_tokens")
    length = length if isinstance(length, int) else 0
    coarse = UNITS.index(unit) if unit in UNITS else len(UNITS)
    return (rank, metric, length, natural(method), natural(data), coarse, unit)


def by_seed(rows: Iterable[Row]) -> dict[int, float]:
    """Return the value of each seed: the mean, where one seed was measured more than once."""
    values: dict[int, list[float]] = {}
    for row in rows:
        values.setdefault(row.seed, []).append(row.value)
    return {seed: estimate(each).mean for seed, each in values.items()}


def estimate_of(rows: Sequence[Row]) -> Estimate:
    """Return the mean over seeds; a baseline that is the same in all runs counts as exact."""
    values = list(by_seed(rows).values())
    if all(row.role == "baseline" and _same(row.value, rows[0].value) for row in rows):
        values = [rows[0].value] * len(values)
    return estimate(values)


def _same(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-9)


def _contrasts(grid: Grid, arms: Sequence[str]) -> tuple[Contrast, ...]:
    found = []
    for key, columns in grid.items():
        if group_of(key[0]) == "training":  # shown with what was spent, not compared
            continue
        for first, second in combinations([arm for arm in arms if Column(arm) in columns], 2):
            mine, theirs = columns[Column(first)], columns[Column(second)]
            difference = paired(by_seed(mine), by_seed(theirs))
            if difference is not None:
                found.append(Contrast(key, first, second, difference, mine[0].better))
    return _corrected(found)


def _corrected(contrasts: list[Contrast]) -> tuple[Contrast, ...]:
    raw = [each.difference.p for each in contrasts if each.difference.p is not None]
    corrected = iter(holm(raw))
    return tuple(
        each if each.difference.p is None else replace(each, p=next(corrected))
        for each in contrasts
    )


# ----------------------------------------------------------------------------------------- sections


def _group_section(
    name: str, grid: Grid, arms: Sequence[str], contrasts: Sequence[Contrast]
) -> Section:
    lines = {key: columns for key, columns in grid.items() if group_of(key[0]) == name}
    mine = [each for each in contrasts if each.key in lines]
    seeds = _common_n(lines)
    tables = [
        _measure_table(name, part, arms, mine, seeds) for part in _split(name, lines).values()
    ]
    if mine:
        tested = sum(each.p is not None for each in contrasts)
        tables.append(_difference_table(mine, tested))
    notes = [*_n_notes(seeds, lines), *_missing_notes(lines, arms)]
    notes += _decoder_notes(lines)
    if name == "likelihood":
        notes.append(_comparability(lines, arms))
    return Section(name.capitalize(), tuple(tables), tuple(notes))


def _split(name: str, lines: Grid) -> dict[tuple[str, ...], Grid]:
    """Part lines into tables: by protocol, except for generation, which is read by metric."""
    parts: dict[tuple[str, ...], Grid] = {}
    for key, columns in lines.items():
        metric, data, method, unit = key
        heading = {"classification": (metric, unit, method), "generation": ()}
        part = heading.get(name, (method, data))
        parts.setdefault(part, {})[key] = columns
    return parts


def _common_n(lines: Grid) -> int | None:
    """Return the number of seeds if it is the same for all arms on all lines, else None."""
    found = {
        len(by_seed(rows))
        for columns in lines.values()
        for column, rows in columns.items()
        if column.role != "baseline"
    }
    return found.pop() if len(found) == 1 else None


def _measure_table(
    name: str, lines: Grid, arms: Sequence[str], contrasts: Sequence[Contrast], seeds: int | None
) -> Table:
    columns = _columns(lines, arms)
    labels, title = _labels(name, lines)
    built = [
        Line(
            labels=labels[key],
            cells=tuple(_cell(key, column, found, contrasts, seeds) for column in columns),
            key=key,
            better=next(iter(found.values()))[0].better,
        )
        for key, found in lines.items()
    ]
    heading = ("measure", "method", "data")[: len(built[0].labels)]
    if name == "classification":
        heading = ("task",)
    return Table(title, heading, columns, tuple(built), _flag_notes(columns, built))


def _columns(lines: Grid, arms: Sequence[str]) -> tuple[Column, ...]:
    """All arms, then their untrained models, then the baselines that these lines have."""
    present = {column for columns in lines.values() for column in columns}
    untrained = sorted(
        (column for column in present if column.role == "untrained"),
        key=lambda column: (arms.index(column.arm), column.baseline),
    )
    return (*(Column(arm) for arm in arms), *untrained, *_shared(present))


def _shared(columns: Iterable[Column]) -> list[Column]:
    """Return the baselines that all arms share, in the order that they are shown in."""
    return sorted(
        (column for column in columns if column.role == "baseline"),
        key=lambda column: (
            BASELINES.index(column.baseline) if column.baseline in BASELINES else len(BASELINES),
            column.baseline,
        ),
    )


def _labels(name: str, lines: Grid) -> tuple[dict[Key, tuple[str, ...]], str]:
    """Return the labels of each line, and the title that holds what they have in common."""
    arrows = {
        key: "↓" if next(iter(columns.values()))[0].better == "lower" else "↑"
        for key, columns in lines.items()
    }
    metric, data, method, unit = next(iter(lines))
    if name == "classification":
        arrow = arrows[metric, data, method, unit]
        title = f"{metric.capitalize()} ({unit_text(unit)}) {arrow}: {method}"
        return {key: (key[1],) for key in lines}, title
    varies = [index for index in (2, 1) if len({key[index] for key in lines}) > 1]
    fixed = [(metric, data, method, unit)[index] for index in (2, 1) if index not in varies]
    labels = {
        key: (f"{key[0]} ({unit_text(key[3])}) {arrow}", *(key[index] for index in varies))
        for key, arrow in arrows.items()
    }
    return labels, " · ".join(part for part in fixed if part)


def _cell(
    key: Key,
    column: Column,
    found: dict[Column, list[Row]],
    contrasts: Sequence[Contrast],
    seeds: int | None,
) -> Cell:
    if column not in found:
        return Cell(MISSING)
    rows = found[column]
    mean = estimate_of(rows)
    flags = _flags(key, column, found)
    exact = column.role == "baseline" and mean.half_width == 0
    text = estimate_text(replace(mean, half_width=None) if exact else mean, key[3])
    if mean.n != seeds and not exact:
        text += f" (n = {mean.n})"
    if flags:
        text += f" {WARNING}"
    best = column.role == "model" and _is_best(key, column.arm, found, contrasts)
    return Cell(text, mean.mean, mean, best, flags)


def _is_best(
    key: Key, arm: str, found: dict[Column, list[Row]], contrasts: Sequence[Contrast]
) -> bool:
    """Whether the arm is significantly better than every other arm of the line."""
    others = sum(column.role == "model" for column in found) - 1
    wins = sum(each.key == key and each.winner == arm for each in contrasts)
    return others > 0 and wins == others


def _flags(key: Key, column: Column, found: dict[Column, list[Row]]) -> tuple[str, ...]:
    rows = found[column]
    flags = []
    if column.role == "model":
        for floor in _floors(key, column, found):
            failed = _not_better(rows, found[floor])
            if failed:
                name = floor.baseline if floor.role == "baseline" else f"its own {floor.baseline}"
                flags.append(f"does not beat {name}{_share(failed, len(rows))}")
    constant = sum(row.details.get("constant_output") is True for row in rows)
    if constant:
        flags.append(f"constant output{_share(constant, len(rows))}")
    return tuple(flags)


def _share(part: int, runs: int) -> str:
    return "" if part == runs else f" ({part} of {runs} runs)"


def _floors(key: Key, column: Column, found: dict[Column, list[Row]]) -> Iterator[Column]:
    """Yield what a run must beat: the shared baselines, and its own untrained model."""
    if group_of(key[0]) not in ("likelihood", "classification"):
        return
    yield from _shared(found)
    yield from (each for each in found if each.role == "untrained" and each.arm == column.arm)


def _not_better(rows: Sequence[Row], floor: Sequence[Row]) -> int:
    """Return how many runs are not better than the floor of their seed."""
    by = by_seed(floor)
    lower = rows[0].better == "lower"
    pairs = [(row.value, by[row.seed]) for row in rows if row.seed in by]
    return sum(not (mine < other if lower else mine > other) for mine, other in pairs)


def _difference_table(contrasts: Sequence[Contrast], tested: int) -> Table:
    pairs = list(dict.fromkeys(each.pair for each in contrasts))
    several = len(pairs) > 1
    lines = []
    for each in contrasts:
        labels = (full_label(each.key), *([each.pair] if several else []))
        lines.append(Line(labels, _difference_cells(each), each.key, each.better))
    first = "difference" if several else pairs[0]
    headings = (f"{first} [95 % interval]", "p (Holm)", "reading")
    return Table(
        "Differences, paired by seed",
        ("measure", "arms") if several else ("measure",),
        tuple(Column(heading, "difference") for heading in headings),
        tuple(lines),
        (f"p: two-sided paired t-test over seeds, Holm-corrected over all {tested} tests of this "
         "comparison. Bold in the tables above: significant at 5 % against every other arm.",),
    )  # fmt: skip


def _difference_cells(contrast: Contrast) -> tuple[Cell, ...]:
    found, unit = contrast.difference.estimate, contrast.key[3]
    bare = replace(found, half_width=None)
    ends = [replace(bare, mean=end) for end in (found.low, found.high) if end is not None]
    interval = ", ".join(_signed(end, unit) for end in ends)
    if contrast.p is None:
        reading = "the same at every seed: no test" if found.sd == 0 else f"no test (n = {found.n})"
    elif contrast.winner is None:
        reading = "no significant difference"
    else:
        reading = f"{contrast.winner} better"
    return (
        Cell(_signed(bare, unit) + (f" [{interval}]" if ends else ""), found.mean, found),
        Cell(p_text(contrast.p), contrast.p),
        Cell(reading, reading),
    )


def _signed(found: Estimate, unit: str) -> str:
    text = estimate_text(found, unit).replace("-", MINUS, 1 if found.mean < 0 else 0)
    return text if found.mean <= 0 else f"+{text}"


# ------------------------------------------------------------------------------------------- notes


def _n_notes(seeds: int | None, lines: Grid) -> Iterator[str]:
    if seeds == 1:
        yield "n = 1: one seed, so there is no interval and no test."
    elif seeds is not None:
        yield f"Mean ± half of the 95 % interval over seeds (Student's t), n = {seeds}."
    elif lines:
        yield "Mean ± half of the 95 % interval over seeds (Student's t), n as given in each cell."


def _missing_notes(lines: Grid, arms: Sequence[str]) -> Iterator[str]:
    holes = [key for key, found in lines.items() if any(Column(arm) not in found for arm in arms)]
    if holes:
        yield f"{MISSING}: that arm has no such number."
    yield from dict.fromkeys(WHY_MISSING[key[0]] for key in holes if key[0] in WHY_MISSING)


def _decoder_notes(lines: Grid) -> Iterator[str]:
    """Say by which decoder each arm wrote: times at one length stand side by side all the same."""
    found = {
        f"{column.label}: {row.details['decoder']}"
        for columns in lines.values()
        for column, rows in columns.items()
        for row in rows
        if "decoder" in row.details
    }
    if found:
        yield (
            f"Written by {'; '.join(sorted(found))}. Equal length is not equal quality, which is "
            "not measured here."
        )


def _comparability(lines: Grid, arms: Sequence[str]) -> str:
    """Say which likelihood lines rank the arms, and that all others do not."""
    ranked = [key for key, found in lines.items() if sum(Column(arm) in found for arm in arms) > 1]
    warning = "Numbers on different lines must not be compared, a masked loss least of all with a "
    warning += "causal one. "
    if len(arms) == 1:
        return warning + "Each is to be read against the baselines of its own line."
    if not ranked:
        return warning + (
            "No line here holds two arms, so likelihood ranks none of them: read each against the "
            "baselines of its own line."
        )
    return warning + "Lines that rank arms: " + "; ".join(map(full_label, ranked)) + "."


def _flag_notes(columns: Sequence[Column], lines: Iterable[Line]) -> tuple[str, ...]:
    """Collect equal flags into one note each, with the lines that they are on."""
    found: dict[str, list[str]] = {}
    for line in lines:
        for column, cell in zip(columns, line.cells, strict=True):
            for flag in cell.flags:
                where = found.setdefault(f"{WARNING} {column.label}: {flag}", [])
                where.append(line.labels[0].rstrip(" ↓↑"))
    return tuple(f"{flag} in {'; '.join(dict.fromkeys(where))}" for flag, where in found.items())


# ---------------------------------------------------------------------------- training, provenance


def _training_section(rows: Sequence[Row], arms: Sequence[str]) -> Section:
    columns = tuple(Column(arm) for arm in arms)
    trained_last = sorted(rows, key=lambda row: group_of(row.metric) == "training")
    runs = {
        arm: list({row.run: row for row in trained_last if row.arm == arm}.values()) for arm in arms
    }
    lines = [
        *(_words_line(name, [runs[arm] for arm in arms]) for name in ("objective", "trunk")),
        *(_budget_line(name, [runs[arm] for arm in arms]) for name in _BUDGET),
        *(_words_line(name, [runs[arm] for arm in arms]) for name in ("dtype", "kernel")),
        *_final_losses(rows, arms),
    ]
    seeds = {len({row.seed for row in runs[arm]}) for arm in arms}
    n = seeds.pop() if len(seeds) == 1 else None
    notes = (*_n_notes(n, {}), _matched([runs[arm] for arm in arms]))
    table = Table("", ("pretraining",), columns, tuple(lines))
    return Section("Training", (table,), tuple(note for note in notes if note))


_BUDGET: dict[str, tuple[Callable[[Row], float | None], Callable[[float], str]]] = {
    "parameters": (lambda row: row.parameters, count),
    "steps": (lambda row: row.budget.steps, count),
    "tokens": (lambda row: row.budget.tokens, count),
    "targets": (lambda row: row.budget.targets, count),
    "FLOPs": (lambda row: row.budget.flops, scaled),
    "seconds": (lambda row: row.budget.seconds, number),
    "tokens/s": (
        lambda row: row.budget.tokens / row.budget.seconds if row.budget.seconds else None,
        number,
    ),
}
"""Quantity to how a run has it, and how it is written."""

_MEASURED = ("seconds", "tokens/s")
"""Quantities that differ from run to run by nature, and so are shown with an interval."""


def _words_line(name: str, arms: Sequence[Sequence[Row]]) -> Line:
    cells = []
    for runs in arms:
        words = dict.fromkeys(str(getattr(row, name, None) or getattr(row.provenance, name, ""))
                              for row in runs)  # fmt: skip
        cells.append(Cell(", ".join(words), ", ".join(words)))
    return Line((name,), tuple(cells), (name, "", "", ""))


def _budget_line(name: str, arms: Sequence[Sequence[Row]]) -> Line:
    of_run, written = _BUDGET[name]
    cells = []
    for runs in arms:
        values = [value for row in runs if (value := of_run(row)) is not None]
        cells.append(_budget_cell(values, name, written))
    return Line((name,), tuple(cells), (name, "", "", ""))


def _budget_cell(values: Sequence[float], name: str, written: Callable[[float], str]) -> Cell:
    if not values:
        return Cell(MISSING)
    found = estimate(values)
    text = estimate_text(found, "") if name in _MEASURED else written(found.mean)
    return Cell(text, found.mean, found)


def _final_losses(rows: Sequence[Row], arms: Sequence[str]) -> Iterator[Line]:
    """Yield one line per kind of loss."""
    found: dict[Key, dict[str, dict[int, float]]] = {}
    for row in rows:
        if row.metric == "validation loss" and row.role == "model":
            found.setdefault(row.column, {}).setdefault(row.arm, {})[row.seed] = row.value
    for key, values in found.items():
        cells = tuple(
            _estimate_cell(list(values[arm].values())) if arm in values else Cell(MISSING)
            for arm in arms
        )
        yield Line((f"final validation loss: {key[2]} ({key[3]})",), cells, key, "lower")


def _estimate_cell(values: Sequence[float]) -> Cell:
    found = estimate(values)
    return Cell(estimate_text(found, ""), found.mean, found)


def _matched(arms: Sequence[Sequence[Row]]) -> str:
    """Say what the arms have in common, to one per cent, and what they have not."""
    if len(arms) == 1:
        return ""
    equal: list[str] = []
    unequal: list[str] = []
    for name, (of_run, _) in _BUDGET.items():
        means = [estimate([of_run(row) or 0.0 for row in runs]).mean for runs in arms]
        (equal if max(means) <= 1.01 * min(means) else unequal).append(name)
    parts = (("Equal in all arms (to 1 %)", equal), ("different", unequal))
    return "; ".join(f"{text}: {', '.join(names)}" for text, names in parts if names) + "."


SAME_FOR_TIMES = (
    "platform",
    "device",
    "threads",
    "training dtype",
    "evaluation dtype",
)
"""Facts in which rows must agree if their seconds are compared."""


def _provenance(rows: Sequence[Row], command: str | None) -> tuple[str, ...]:
    of = [row.provenance for row in rows]
    training = [row.provenance for row in rows if group_of(row.metric) == "training"]
    measuring = [row.provenance for row in rows if group_of(row.metric) != "training"]
    versions = [
        ", ".join(f"{name} {version}" for name, version in sorted(each.versions.items()))
        for each in of
    ]
    facts = (
        ("commit", [each.commit for each in of]),
        ("versions", versions),
        ("platform", [each.platform for each in of]),
        ("device", [each.device for each in of]),
        ("threads", [str(each.threads) for each in of]),
        ("training dtype", [each.dtype for each in training]),
        ("training kernel", [each.kernel for each in training]),
        ("evaluation dtype", [each.dtype for each in measuring]),
        ("evaluation kernel", [each.kernel for each in measuring]),
        ("data", [each.data_hash[:12] for each in of]),
        ("tokenizer", [each.tokenizer_hash[:12] for each in of]),
        ("seeds", [str(seed) for seed in sorted({row.seed for row in rows})]),
        ("measured", _dates([each.created for each in of])),
    )
    line = "; ".join(f"{name} {', '.join(dict.fromkeys(each))}" for name, each in facts if each)
    mixed = [name for name, each in facts if name in SAME_FOR_TIMES and len(set(each)) > 1]
    lines = [f"Provenance: {line}."]
    if mixed:
        lines.append(f"{WARNING} Rows differ in {', '.join(mixed)}: their times do not compare.")
    return (*lines, f"Reproduce: {command}") if command else tuple(lines)


def _dates(created: Sequence[str]) -> list[str]:
    days = sorted({moment[:10] for moment in created})
    return [days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"]
