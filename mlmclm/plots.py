"""Figures of a comparison as PNG: learning curves, accuracy, generation time.

Two kinds of loss never share an axis. Colours are those of Okabe & Ito (2008), which readers with
any common colour blindness can tell apart; markers differ too. No global state of matplotlib is
used.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from textwrap import fill

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from mlmclm.contracts import Row
from mlmclm.results import CurvePoint
from mlmclm.statistics import Estimate, estimate, number, scaled
from mlmclm.tables import Cell, Column, Key, Line, Table, estimate_of, natural

DPI = 150
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#555555"
DASHES: tuple[tuple[float, Sequence[float]], ...] = (
    (0, (6, 2)),
    (0, (2, 2)),
    (0, (6, 2, 1, 2)),
    (0, (1, 3)),
)
MOST_INSIDE = 5
"""Names that a legend may have inside a panel of curves."""
PER_TOKEN = frozenset({"nats/target", "nats/token"})
"""Units in which a training loss and a measured likelihood may share an axis."""


@dataclass(frozen=True)
class Plot:
    """A figure, and the same in words and numbers."""

    name: str
    """File name without its ending."""
    title: str
    alt: str
    """What a reader who cannot see it must know."""
    png: bytes
    table: Table
    """The numbers that are drawn."""


@dataclass(frozen=True)
class _Series:
    label: str
    arm: str
    points: dict[float, tuple[float, float, float]]
    """x to (middle, lowest, highest)."""


def all_plots(rows: Sequence[Row], curves: Sequence[CurvePoint]) -> list[Plot]:
    """Return every figure that there are numbers for."""
    arms = list(dict.fromkeys([*(row.arm for row in rows), *(point.arm for point in curves)]))
    drawn = (
        learning_curves(rows, curves, arms),
        accuracy(rows, arms),
        generation_time(rows, arms),
    )
    return [plot for plot in drawn if plot is not None]


# ---------------------------------------------------------------------------------- learning curves


def learning_curves(
    rows: Sequence[Row], curves: Sequence[CurvePoint], arms: Sequence[str]
) -> Plot | None:
    """Draw validation loss against tokens, one panel for each kind of loss; None without curves.

    Two kinds differ in metric, method, unit or text. Lines are means over seeds, bands reach from
    the lowest to the highest seed, and dashed lines are what counting achieves by the same metric,
    where rows of the panel's arms say so.
    """
    if not curves:
        return None
    kinds = list(dict.fromkeys(point.column for point in curves))
    figure, panels = _figure(len(kinds))
    drawn = {}
    for panel, kind in zip(panels, kinds, strict=True):
        drawn[kind] = _curve_series((point for point in curves if point.column == kind), arms)
        mine = {each.arm for each in drawn[kind]}
        _draw_curves(panel, kind, drawn[kind], arms)
        _draw_floors(panel, [row for row in rows if row.arm in mine], kind)
        panel.set_title(fill(_panel_title(kind, kinds), 48), fontsize=10)
    if max(map(len, drawn.values())) <= MOST_INSIDE:
        for panel in panels:
            panel.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0.93))
    else:
        _legend_below(figure, panels, across=2)
    ends = [_end_of(kind, series) for kind in kinds for series in drawn[kind]]
    alt = f"Validation loss against training tokens, one panel per kind of loss. {' '.join(ends)}"
    return Plot("learning-curves", "Learning curves", alt, _png(figure), _curve_table(drawn))


def _panel_title(kind: Key, kinds: Iterable[Key]) -> str:
    """Return the metric, and as much more as tells it from other panels of the same metric."""
    same = [other for other in kinds if other[0] == kind[0]]
    differs = [index for index in (2, 1, 3) if len({other[index] for other in same}) > 1]
    return ", ".join([kind[0], *(kind[index] for index in differs)])


def _curve_series(points: Iterable[CurvePoint], arms: Sequence[str]) -> list[_Series]:
    """Join the points of equal step of all seeds of an arm; x is the mean number of tokens."""
    steps: dict[str, dict[int, list[CurvePoint]]] = {}
    for point in points:
        steps.setdefault(point.arm, {}).setdefault(point.step, []).append(point)
    series = []
    for arm in sorted(steps, key=list(arms).index):
        most = max(map(len, steps[arm].values()))
        whole = {step: each for step, each in sorted(steps[arm].items()) if len(each) == most}
        joined = {
            estimate([point.tokens for point in each]).mean: _spread([p.loss for p in each])
            for each in whole.values()
        }
        series.append(_Series(arm, arm, joined))
    return series


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return estimate(values).mean, min(values), max(values)


def _draw_curves(panel: Axes, kind: Key, series: Sequence[_Series], arms: Sequence[str]) -> None:
    for each in series:
        colour, marker = _look(each.arm, arms)
        tokens = list(each.points)
        middle, low, high = zip(*each.points.values(), strict=True)
        panel.fill_between(tokens, low, high, color=colour, alpha=0.2, linewidth=0)
        panel.plot(tokens, middle, color=colour, marker=marker, markersize=3.5, label=each.label)
    panel.set_xlabel("training tokens")
    panel.set_ylabel(f"validation loss, {kind[3]}")
    panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.xaxis.set_major_formatter(EngFormatter(sep=" "))


def _draw_floors(panel: Axes, rows: Sequence[Row], kind: Key) -> None:
    """Draw the shared baselines of the same metric, named at the right end of their lines."""
    floors = _floors(rows, kind)
    if floors:
        where = "; ".join(dict.fromkeys(f"{method}, {data}" for _, method, data in floors))
        panel.set_xlabel("training tokens\n" + fill(f"dashed: counting, {where}", 64), fontsize=9)
    for index, ((name, *_), value) in enumerate(sorted(floors.items(), key=lambda x: x[1])):
        panel.axhline(value, color=GREY, linewidth=1, linestyle=DASHES[index % len(DASHES)])
        panel.annotate(
            f"{name}\n{number(value)}",
            (1.0, value),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            verticalalignment="center",
            fontsize=7,
            color=GREY,
        )


def _floors(rows: Sequence[Row], kind: Key) -> dict[tuple[str, str, str], float]:
    """Return the value of each baseline, method and data."""
    metric, _, _, unit = kind
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        units_fit = row.unit == unit or {row.unit, unit} <= PER_TOKEN
        if row.role == "baseline" and row.metric == metric and units_fit:
            found.setdefault((row.baseline, row.method, row.data), []).append(row)
    values = {key: estimate_of(each).mean for key, each in found.items()}
    return {key: value for key, value in values.items() if math.isfinite(value)}


def _end_of(kind: Key, series: _Series) -> str:
    tokens, (loss, _, _) = list(series.points.items())[-1]
    return f"{series.label}: {kind[0]} {number(loss)} {kind[3]} after {scaled(tokens)} tokens."


def _curve_table(drawn: dict[Key, list[_Series]]) -> Table:
    """Return the drawn numbers: one line per point, one column per arm and kind of loss."""
    columns = {
        (kind, each.label): Column(f"{each.label}, {_panel_title(kind, drawn)} ({kind[3]})")
        for kind, series in drawn.items()
        for each in series
    }
    values = {(kind, each.label): each.points for kind, series in drawn.items() for each in series}
    return _point_table("training tokens", columns.values(), list(values.values()))


# ----------------------------------------------------------------------------------------- accuracy


def accuracy(rows: Sequence[Row], arms: Sequence[str]) -> Plot | None:
    """Draw test accuracy per task with 95 % intervals over seeds, one panel for each method.

    Full markers are pretrained arms, hollow ones the same models from scratch; short lines are the
    baselines that need no language model. None without accuracies.
    """
    mine = [row for row in rows if row.metric == "accuracy" and row.unit == "share"]
    if not mine:
        return None
    methods = sorted({row.method for row in mine})
    tasks = sorted({row.data for row in mine}, key=natural)
    columns = _accuracy_columns(mine, arms)
    figure, panels = _figure(len(methods), share_y=True)
    lines = []
    for panel, method in zip(panels, methods, strict=True):
        found = _accuracies([row for row in mine if row.method == method])
        _draw_accuracies(panel, found, tasks, columns, arms)
        panel.set_title(fill(method, 48), fontsize=10)
        lines += [_accuracy_line(method, task, columns, found) for task in tasks]
    panels[0].set_ylabel("test accuracy, %")
    _legend_below(figure, panels)
    alt = (
        f"Accuracy in per cent with 95 % intervals over seeds, on {', '.join(tasks)}, "
        f"by {'; '.join(methods)}. The numbers are in the table that follows."
    )
    table = Table("Accuracy (%)", ("task", "method"), tuple(columns), tuple(lines))
    return Plot("accuracy", "Classification accuracy", alt, _png(figure), table)


def _accuracy_columns(rows: Sequence[Row], arms: Sequence[str]) -> list[Column]:
    roles = ("model", "untrained", "baseline")
    present = dict.fromkeys(_column(row) for row in rows)
    ranked = {arm: index for index, arm in enumerate(arms)}
    return sorted(present, key=lambda each: (roles.index(each.role), ranked.get(each.arm, 0)))


def _column(row: Row) -> Column:
    return Column("" if row.role == "baseline" else row.arm, row.role, row.baseline)


def _accuracies(rows: Sequence[Row]) -> dict[tuple[str, Column], Estimate]:
    parts: dict[tuple[str, Column], list[Row]] = {}
    for row in rows:
        parts.setdefault((row.data, _column(row)), []).append(row)
    return {key: estimate_of(each) for key, each in parts.items()}


def _draw_accuracies(
    panel: Axes,
    found: dict[tuple[str, Column], Estimate],
    tasks: Sequence[str],
    columns: Sequence[Column],
    arms: Sequence[str],
) -> None:
    dodged = [column for column in columns if column.role != "baseline"]
    shared = [column for column in columns if column.role == "baseline"]
    for place, task in enumerate(tasks):
        for index, column in enumerate(dodged):
            x = place + 0.6 * ((index + 0.5) / len(dodged) - 0.5)
            if (task, column) in found:
                _draw_point(panel, x, found[task, column], column, _look(column.arm, arms))
        for index, column in enumerate(shared):
            if (task, column) in found:
                panel.hlines(
                    100 * found[task, column].mean, place - 0.4, place + 0.4, color=GREY,
                    linewidth=1.2, linestyles=DASHES[index % len(DASHES)], label=column.label,
                )  # fmt: skip
    panel.set_xticks(range(len(tasks)), tasks)
    panel.set_xlim(-0.5, len(tasks) - 0.5)
    panel.set_ylim(0, 100)


def _draw_point(
    panel: Axes, x: float, found: Estimate, column: Column, look: tuple[str, str]
) -> None:
    colour, marker = look
    error = None if found.half_width is None else [100 * found.half_width]
    panel.errorbar(
        [x], [100 * found.mean], error, color=colour, marker=marker, markersize=5, capsize=3,
        linestyle="none", linewidth=1.2, label=column.label,
        markerfacecolor=colour if column.role == "model" else "white",
    )  # fmt: skip


def _accuracy_line(
    method: str,
    task: str,
    columns: Sequence[Column],
    found: dict[tuple[str, Column], Estimate],
) -> Line:
    cells = []
    for column in columns:
        mean = found.get((task, column))
        cells.append(
            _missing() if mean is None else Cell(f"{100 * mean.mean:.1f}", mean.mean, mean)
        )
    return Line((task, method), tuple(cells))


# ---------------------------------------------------------------------------------- generation time


def generation_time(rows: Sequence[Row], arms: Sequence[str]) -> Plot | None:
    """Draw seconds against new tokens, both logarithmic; the median and range over seeds.

    Uses rows of metric ``generation time`` whose details have ``new_tokens``. None without any.
    """
    mine = [row for row in rows if row.metric == "generation time" and row.role == "model"]
    mine = [row for row in mine if _length(row) is not None and row.value > 0]
    if not mine:
        return None
    series = _speed_series(mine, arms)
    figure, (panel,) = _figure(1)
    for index, each in enumerate(series):
        _draw_speed(panel, each, index, arms)
    _log_axes(panel, sorted({length for each in series for length in each.points}))
    panel.legend(frameon=False, fontsize=8)
    ends = [_slowest(each) for each in series]
    alt = f"Seconds to generate against number of new tokens, log-log. {' '.join(ends)}"
    columns = [Column(f"{each.label} (s)") for each in series]
    table = _point_table("new tokens", columns, [each.points for each in series])
    return Plot("generation-time", "Generation time", alt, _png(figure), table)


def _length(row: Row) -> int | None:
    length = row.details.get("new_tokens")
    return length if isinstance(length, int) and length > 0 else None


def _speed_series(rows: Sequence[Row], arms: Sequence[str]) -> list[_Series]:
    """One series per arm and way of decoding, which is the method without its length."""
    found: dict[tuple[str, str], dict[float, list[float]]] = {}
    for row in rows:
        length = _length(row) or 0
        rest = re.sub(rf",?\s*\b(new {length}|{length} new tokens)\b", "", row.method).strip(" ,;")
        decoder = "; ".join(filter(None, (row.details.get("decoder"), rest)))
        lengths = found.setdefault((row.arm, decoder), {})
        lengths.setdefault(length, []).append(row.value)
    return [
        _Series(
            f"{arm}: {decoder}" if decoder else arm,
            arm,
            {length: (median(v), min(v), max(v)) for length, v in sorted(lengths.items())},
        )
        for (arm, decoder), lengths in sorted(
            found.items(), key=lambda item: (list(arms).index(item[0][0]), natural(item[0][1]))
        )
    ]


def _draw_speed(panel: Axes, series: _Series, index: int, arms: Sequence[str]) -> None:
    colour, _ = _look(series.arm, arms)
    middle, low, high = (list(each) for each in zip(*series.points.values(), strict=True))
    errors = [
        [mid - end for mid, end in zip(middle, low, strict=True)],
        [end - mid for mid, end in zip(middle, high, strict=True)],
    ]
    panel.errorbar(
        list(series.points), middle, errors, color=colour, marker=MARKERS[index % len(MARKERS)],
        markersize=5, capsize=3, linewidth=1.2, label=series.label,
    )  # fmt: skip


def _log_axes(panel: Axes, lengths: Sequence[float]) -> None:
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(lengths, [number(length) for length in lengths])
    panel.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("new tokens")
    panel.set_ylabel("generation time, s")
    panel.set_title("median and range over seeds", fontsize=10)


def _slowest(series: _Series) -> str:
    length, (seconds, _, _) = list(series.points.items())[-1]
    return f"{series.label}: {number(seconds)} s for {number(length)} tokens."


# ------------------------------------------------------------------------------------------- shared


def _figure(panels: int, share_y: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a white figure with up to three panels a row, all plain."""
    across = min(panels, 3)
    down = math.ceil(panels / across)
    wide = 6.4 if across == 1 else 4.4 * across
    figure = Figure(figsize=(wide, 3.6 * down), dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(down, across, squeeze=False, sharey=share_y).flatten().tolist()
    for panel in axes[panels:]:
        panel.set_visible(False)
    for panel in axes[:panels]:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(True, axis="y", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
    return figure, axes[:panels]


def _look(arm: str, arms: Sequence[str]) -> tuple[str, str]:
    """Return colour and marker; a pair comes back after 49 arms."""
    index = list(arms).index(arm)
    shifted = index + index // len(COLOURS)
    return COLOURS[index % len(COLOURS)], MARKERS[shifted % len(MARKERS)]


def _legend_below(figure: Figure, panels: Iterable[Axes], across: int = 6) -> None:
    """Name everything once, whatever panel it is in, so many names in a row at most."""
    named: dict[str, Artist] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        named.update(zip(labels, handles, strict=True))
    across = min(len(named), across)
    beyond = math.ceil(len(named) / across) - 2  # rows that the usual height has no room for
    figure.set_figheight(figure.get_figheight() + 0.19 * max(0, beyond))
    figure.legend(
        list(named.values()),
        list(named),
        loc="outside lower center",
        ncols=across,
        frameon=False,
        fontsize=8,
    )


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=DPI)
    return stream.getvalue()


def _missing() -> Cell:
    return Cell("\N{EN DASH}")


def _point_table(
    heading: str,
    columns: Iterable[Column],
    series: Sequence[dict[float, tuple[float, float, float]]],
) -> Table:
    """Return one line per x, with the middle (lowest to highest) of each series."""
    lines = []
    for x in sorted({x for points in series for x in points}):
        cells = tuple(_range_cell(points.get(x)) for points in series)
        lines.append(Line((number(x),), cells))
    return Table("Middle (lowest to highest seed)", (heading,), tuple(columns), tuple(lines))


def _range_cell(found: tuple[float, float, float] | None) -> Cell:
    if found is None:
        return _missing()
    middle, low, high = found
    return Cell(f"{number(middle)} ({number(low)} to {number(high)})", middle)
