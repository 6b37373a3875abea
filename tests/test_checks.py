"""Messages as a user sees them, for records and for dataclasses of options alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import Field, field_validator

from mlmclm.checks import checked
from mlmclm.contracts import Strict
from mlmclm.errors import UserError


class Options(Strict):
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    batch_size: Annotated[int, Field(ge=1, le=64)] = 8
    share: Annotated[float, Field(lt=1)] = 0.5
    schedule: Literal["linear", "cosine"] = "linear"
    pair: tuple[float, float] = (0.9, 0.98)
    even: int = 2
    text: str = ""
    flag: bool = False

    @field_validator("even")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd")
        return value


@dataclass(frozen=True, kw_only=True)
class Plain:
    rate: float = 0.15
    tasks: tuple[str, ...] = ("a",)

    def __post_init__(self) -> None:
        if self.rate > 1:
            raise UserError(f"plain.rate must be at most 1, not {self.rate}")


def message(kind, table, path="training", **more):
    with pytest.raises(UserError) as caught:
        checked(kind, table, path, **more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"learning_rat": 1}, "unknown key training.learning_rat; did you mean 'learning_rate'?"),
        ({"learning_rate": "1e-3"}, "training.learning_rate must be a number, not '1e-3'"),
        ({"learning_rate": -1}, "training.learning_rate must be above 0, not -1"),
        ({"learning_rate": True}, "training.learning_rate must be a number, not true"),
        ({"learning_rate": float("nan")}, "training.learning_rate must be finite, not nan"),
        ({"batch_size": 1.5}, "training.batch_size must be a whole number, not 1.5"),
        ({"batch_size": 0}, "training.batch_size must be at least 1, not 0"),
        ({"batch_size": 65}, "training.batch_size must be at most 64, not 65"),
        ({"share": 1.0}, "training.share must be below 1, not 1.0"),
        (
            {"schedule": "cosin"},
            "training.schedule must be 'linear' or 'cosine', not 'cosin'; did you mean 'cosine'?",
        ),
        ({"pair": [0.9, "x"]}, "training.pair[1] must be a number, not 'x'"),
        ({"pair": [0.9]}, "training.pair[1] is missing"),
        ({"pair": [1, 2, 3]}, "training.pair must be at most 2 values, not [1, 2, 3]"),
        ({"pair": 0.9}, "training.pair must be a list, not 0.9"),
        ({"even": 3}, "training.even: 3 is odd"),
        ({"text": 3}, "training.text must be text in quotes, not 3"),
        ({"flag": "yes"}, "training.flag must be true or false, not 'yes'"),
        ("linear", "training must be a table, not 'linear'"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_fit(table, expected):
    assert message(Options, table) == expected


def test_a_key_like_no_other_gets_the_list_of_known_ones():
    assert message(Plain, {"xyz": 1}) == "unknown key training.xyz (known: rate, tasks)"


def test_each_problem_has_its_own_line():
    assert message(Options, {"text": 1, "flag": 2}).count("\n") == 1


def test_dataclasses_are_as_strict_as_records_and_keep_their_own_checks():
    assert message(Plain, {"rate": "0.15"}) == "training.rate must be a number, not '0.15'"
    assert message(Plain, {"rat": 1}) == "unknown key training.rat; did you mean 'rate'?"
    assert message(Plain, {"tasks": ["a", 1]}).startswith("training.tasks[1] must be text")
    assert message(Plain, {"rate": 2}) == "plain.rate must be at most 1, not 2.0"


def test_lists_become_tuples_and_whole_numbers_are_numbers():
    assert checked(Plain, {"rate": 1, "tasks": ["x", "y"]}) == Plain(rate=1.0, tasks=("x", "y"))
    assert checked(Options, {"pair": [0, 1]}).pair == (0.0, 1.0)


def test_the_place_is_where_the_value_was_written():
    found = message(Options, {"even": 3}, locate=lambda path: f"arms.a.{path}")
    assert found == "arms.a.training.even: 3 is odd"
    assert message(Plain, {"rate": "x"}, path="") == "rate must be a number, not 'x'"
