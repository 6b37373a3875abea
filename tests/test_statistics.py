"""Means, intervals and tests over seeds, against scipy and closed forms."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from mlmclm.statistics import (
    Estimate,
    estimate,
    estimate_text,
    holm,
    number,
    p_text,
    paired,
    scaled,
)

VALUES = [0.701, 0.694, 0.698, 0.71]


def test_interval_is_that_of_scipy():
    found = estimate(VALUES)
    low, high = stats.t.interval(0.95, 3, stats.tmean(VALUES), stats.sem(VALUES))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.sd == pytest.approx(stats.tstd(VALUES))


def test_two_values_have_the_interval_of_the_cauchy_quantile():
    half_width = math.tan(math.pi * 0.475) / 2  # t with one degree of freedom; sd / sqrt(2) = 1/2
    assert estimate([0.0, 1.0]).half_width == pytest.approx(half_width)


def test_one_value_has_no_interval():
    assert estimate([4.5]) == Estimate(4.5, 1, None, None)
    assert estimate([4.5]).low is None


def test_equal_values_have_an_interval_of_no_width():
    assert estimate([0.1, 0.1, 0.1]) == Estimate(0.1, 3, 0.0, 0.0)


def test_infinite_values_have_an_infinite_mean_and_no_interval():
    assert estimate([math.inf, 1.0]) == Estimate(math.inf, 2, None, None)


def test_mean_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no values"):
        estimate([])


def test_paired_test_is_that_of_scipy_and_takes_common_seeds_only():
    first = {0: 0.70, 1: 0.69, 2: 0.72, 7: 0.1}
    second = {2: 0.66, 1: 0.65, 0: 0.67, 8: 0.9}
    expected = stats.ttest_rel([0.70, 0.69, 0.72], [0.67, 0.65, 0.66])
    found = paired(first, second)
    assert found is not None
    assert found.estimate.n == 3
    assert found.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_a_difference_that_is_the_same_at_every_seed_has_no_test(shift):
    found = paired({0: 1.0 + shift, 1: 2.0 + shift}, {0: 1.0, 1: 2.0})
    assert (found.estimate.mean, found.estimate.half_width, found.p) == (shift, 0.0, None)


def test_one_common_seed_gives_a_difference_and_no_test():
    found = paired({0: 1.0, 1: 2.0}, {0: 3.0})
    assert (found.estimate.mean, found.p) == (-2.0, None)


def test_no_common_seed_gives_nothing():
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_two_infinities_have_no_difference():
    assert paired({0: math.inf, 1: 1.0}, {0: math.inf, 1: 1.0}) is None


def test_holm_multiplies_by_rank_and_stays_in_order():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(4.56789, "4.568"), (132_512.3, "132,500"), (0.00412, "0.004120"), (50.0, "50"), (0.0, "0"),
     (9.99996, "10.00"), (2.5e12, "2.500e+12"), (math.inf, "inf"), (-0.5, "-0.5000")],
)  # fmt: skip
def test_numbers_have_four_significant_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("half_width", "unit", "text"),
    [(0.01234, "nats/token", "4.568 ± 0.012"), (0.0, "s", "4.568 ± 0"), (None, "s", "4.568"),
     (0.00004, "s", "4.568 ± 4e-05"), (0.01234, "share", "456.8 ± 1.2")],
)  # fmt: skip
def test_half_widths_are_no_finer_than_the_mean_unless_they_would_vanish(half_width, unit, text):
    assert estimate_text(Estimate(4.5678, 3, 1.0, half_width), unit) == text


def test_prefixes_and_p_values():
    assert [scaled(4.512e13), scaled(999.0), scaled(1500.0)] == ["45.12 T", "999", "1.500 k"]
    assert [p_text(None), p_text(0.0), p_text(0.0312)] == ["\N{EN DASH}", "< 0.001", "0.031"]
