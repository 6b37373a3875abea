"""Options of evaluators and objectives in an experiment file: what is out of range is named."""

from __future__ import annotations

import tomllib

import pytest

from mlmclm.errors import UserError
from mlmclm.evaluation import EVALUATORS
from mlmclm.experiment import Experiment

ARM = 'budget.steps = 1\nname = "x"\n[arms.a.objective]\nname = "mlm"\n'
WRONG = [
    ("causal.context", "0", "must be at least 1, not 0"),
    ("causal.stride", "-1", "must be at least 1, not -1"),
    ("masked_token.mask_rate", "15", "must be at most 1, not 15"),
    ("masked_token.mask_rate", "0.0", "must be above 0, not 0.0"),
    ("masked_token.limit", "0", "must be at least 1, not 0"),
    ("pseudo_perplexity.passages", "0", "must be at least 1, not 0"),
    ("pseudo_perplexity.rows", "0", "must be at least 1, not 0"),
    ("probe.penalties", "[]", "must be at least 1 values, not []"),
    ("probe.penalties", "[0.1, 0.0]", "[1] must be above 0, not 0.0"),
    ("probe.pooling", '"maen"', ": no pooling is called 'maen'; did you mean 'mean'?"),
    ("probe.training_limit", "1", "must be at least 2, not 1"),
    ("probe.tasks", "[]", "must be at least 1 values, not []"),
    ("fine_tuning.max_tokens", "1", "must be at least 2, not 1"),
    ("fine_tuning.epochs", "0", "must be at least 1, not 0"),
    ("fine_tuning.batch_size", "0", "must be at least 1, not 0"),
    ("fine_tuning.seeds", "0", "must be at least 1, not 0"),
    ("fine_tuning.learning_rates", "[]", "must be at least 1 values, not []"),
    ("fine_tuning.learning_rates", "[1e-3, -1.0]", "[1] must be above 0, not -1.0"),
    ("left_to_right.repeats", "0", "must be at least 1, not 0"),
    ("left_to_right.lengths", "[4, 0]", "[1] must be at least 1, not 0"),
    ("mask_predict.iterations", "0", "must be at least 1, not 0"),
]


def message(text: str) -> str:
    with pytest.raises(UserError) as found:
        Experiment.from_mapping(tomllib.loads(text), "x.toml")
    return str(found.value)


@pytest.mark.parametrize("table", ["evaluation", "arms.a.evaluation"])
@pytest.mark.parametrize(("key", "value", "expected"), WRONG)
def test_what_is_out_of_range_is_named_where_it_was_written(table, key, value, expected):
    name, option = key.split(".")
    text = f"{ARM}[{table}.{name}]\n{option} = {value}\n"
    space = "" if expected[0] in ":[" else " "
    assert message(text) == f"x.toml: {table}.{key}{space}{expected}" + (
        " (known: first, last, mean)" if option == "pooling" else ""
    )


def test_every_evaluator_is_tried():
    assert {key.split(".")[0] for key, _, _ in WRONG} == set(EVALUATORS.names())


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("mask_rate", "15", "mask_rate must be at most 1, not 15"),
        ("mask_rate", "0", "mask_rate must be above 0, not 0"),
        ("mask_share", "-0.1", "mask_share must be at least 0, not -0.1"),
    ],
)
def test_an_objective_names_what_is_out_of_range(option, value, expected):
    found = message(f"{ARM}{option} = {value}\n")
    assert found == f"x.toml: arms.a.objective.{expected}"


def test_shares_that_do_not_fit_together_are_named_by_their_table():
    found = message(f"{ARM}random_share = 0.3\n")
    expected = "mask_share and random_share must add up to at most 1, not 1.1"
    assert found == f"x.toml: arms.a.objective: {expected}"
