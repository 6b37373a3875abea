from __future__ import annotations

import pytest
from pydantic import ValidationError

from mlmclm.errors import UserError
from mlmclm.training.options import BudgetOptions, StepCost, TrainingOptions, steps_for

COST = StepCost(tokens=1000, targets=150, flops=2e9, epochs=0.01, seconds=0.5)


@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        ({"steps": 7}, 7),
        ({"tokens": 10_400}, 10),
        ({"targets": 1500}, 10),
        ({"flops": 2e10}, 10),
        ({"epochs": 0.1}, 10),
        ({"seconds": 5.0}, 10),
        ({"tokens": 600}, 1),
    ],
)
def test_every_unit_becomes_the_nearest_number_of_steps(budget, steps):
    assert steps_for(BudgetOptions(**budget), COST) == steps


def test_less_than_half_a_step_is_refused():
    with pytest.raises(UserError, match=r"budget.tokens = 400 is less than one step.*1000 tokens"):
        steps_for(BudgetOptions(tokens=400), COST)


@pytest.mark.parametrize("given", [{}, {"steps": 1, "tokens": 5}])
def test_a_budget_has_exactly_one_unit(given):
    with pytest.raises(ValidationError, match=r"exactly one of"):
        BudgetOptions(**given)


def test_a_batch_must_divide_into_its_micro_batches():
    with pytest.raises(ValidationError, match=r"16 is not a multiple of accumulation 3"):
        TrainingOptions(batch_size=16, accumulation=3)
