"""Means, intervals and paired tests over seeds.

A run is one draw of its seed, so `n` is the number of seeds, never the number of test examples.
Intervals are Student's t (normal errors assumed; at n = 3 they are wide, as they should be).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

LEVEL = 0.95
"""Of all intervals; a difference counts as significant at ``1 - LEVEL``."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with what is known about its error."""

    mean: float
    n: int
    sd: float | None = None
    """Sample standard deviation (n - 1); None where there is none (n < 2, or infinite values)."""
    half_width: float | None = None
    """Of the 95 % interval of the mean; None where ``sd`` is."""

    @property
    def low(self) -> float | None:
        """Lower end of the interval."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """Upper end of the interval."""
        return None if self.half_width is None else self.mean + self.half_width


@dataclass(frozen=True)
class Difference:
    """First minus second, over the seeds that both have."""

    estimate: Estimate
    p: float | None
    """Two-sided, of the paired t-test; None where no test exists (n < 2, infinite values, or the
    same difference at every seed, whose error three or five equal draws do not tell)."""


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean, sample standard deviation and t-interval.

    Raises:
        ValueError: if there are no values.
    """
    if not values:
        raise ValueError("an estimate over no values does not exist")
    n = len(values)
    mean = _mean(values)
    if n == 1 or not all(map(math.isfinite, values)):
        return Estimate(mean, n)
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half_width = float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * sd / math.sqrt(n)
    return Estimate(mean, n, sd, half_width)


def _mean(values: Sequence[float]) -> float:
    if not all(map(math.isfinite, values)):
        return sum(values)
    return values[0] if len(set(values)) == 1 else math.fsum(values) / len(values)


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """Return the difference of two arms, paired by seed; None where they share no seed.

    Args:
        first: seed to value.
        second: seed to value.
    """
    seeds = sorted(first.keys() & second.keys())
    values = [first[seed] - second[seed] for seed in seeds]
    if not values or any(map(math.isnan, values)):
        return None
    found = estimate(values)
    return Difference(found, _p_of(found))


def _p_of(found: Estimate) -> float | None:
    if not found.sd:
        return None
    t = found.mean / (found.sd / math.sqrt(found.n))
    return float(2 * stats.t.sf(abs(t), found.n - 1))


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number, in the order given (Holm 1979).

    The smallest of m is multiplied by m, the next by m - 1, and so on; never above 1, never
    smaller than one before it.
    """
    corrected = [0.0] * len(ps)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda index: ps[index])):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = highest
    return corrected


# As text


def number(value: float) -> str:
    """Return four significant digits, with thousands separators; whole numbers as they are.

    >>> number(4.56789), number(8192.0), number(132512.3), number(float("inf"))
    ('4.568', '8,192', '132,500', 'inf')
    """
    if not math.isfinite(value):
        return str(value)
    if value and not 1e-5 <= abs(value) < 1e9:
        return f"{value:.3e}"
    if value == int(value):
        return f"{value:,.0f}"
    return f"{float(f'{value:.3e}'):,.{_decimals(value, 4)}f}"


def _decimals(value: float, digits: int) -> int:
    """Return how many places after the point show ``digits`` significant digits."""
    exponent = int(f"{value:.{digits - 1}e}".split("e")[1])
    return max(0, digits - 1 - exponent)


def _width(half_width: float, value: float) -> str:
    """Return a half-width in two digits, no finer than the value unless it would vanish."""
    if half_width == 0:
        return "0"
    if not 1e-5 <= abs(value) < 1e9:
        return f"{half_width:.1e}"
    places = min(_decimals(half_width, 2), _decimals(value, 4))
    if float(f"{half_width:.{places}f}") == 0:
        return f"{half_width:.1g}"
    return f"{float(f'{half_width:.1e}'):,.{places}f}"


def count(value: float) -> str:
    """Return a whole number with thousands separators."""
    return f"{value:,.0f}"


def scaled(value: float) -> str:
    """Return four significant digits with a metric prefix.

    >>> scaled(1.23456e13)
    '12.35 T'
    """
    for power, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 10**power:
            return f"{number(value / 10**power)} {prefix}"
    return number(value)


def estimate_text(found: Estimate, unit: str) -> str:
    """Return mean ± half of the interval; shares in per cent with one decimal."""
    if unit == "share":
        width = "" if found.half_width is None else f" ± {100 * found.half_width:.1f}"
        return f"{100 * found.mean:.1f}{width}"
    width = "" if found.half_width is None else f" ± {_width(found.half_width, found.mean)}"
    return number(found.mean) + width


def p_text(p: float | None) -> str:
    """Return a p-value in three decimals."""
    if p is None:
        return "\N{EN DASH}"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
