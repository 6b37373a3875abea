"""What can be set about training, and how a budget in any unit becomes a number of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from mlmclm.contracts import Count, Positive, Share, Strict
from mlmclm.errors import UserError

Moment = Annotated[float, Field(ge=0, lt=1)]


class TrainingOptions(Strict):
    """One recipe: optimizer, schedule, batch, regularisation, and how the machine is used."""

    batch_size: Count = 16
    """Blocks per step, over all devices and micro-batches."""
    accumulation: Count = 1
    """Micro-batches that a step is cut into; changes memory, not the result."""
    learning_rate: Positive = 1e-3
    """Peak, reached after warm-up."""
    warmup_share: Share = 0.05
    """Part of all steps in which the rate grows from 0."""
    schedule: Literal["linear", "cosine"] = "linear"
    """How the rate falls to 0 after warm-up."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """AdamW's decoupled decay; never on norms and biases."""
    betas: tuple[Moment, Moment] = (0.9, 0.999)
    """AdamW's moments."""
    clip: Positive = 1.0
    """Largest norm of a gradient."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Wherever the family of the trunk has dropout. Not given: none in a preset, what a config of
    the user says in that."""
    initializer_range: Positive | None = None
    """Standard deviation of the initial weights. Not given: 0.02 in a preset, what a config of the
    user says in that."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """``auto`` times a matrix product in both and takes the faster."""
    kernel: Literal["auto", "eager", "sdpa"] = "auto"
    """Attention implementation; ``auto`` times a training step with each."""
    evaluations: Count = 10
    """Points of the learning curve on the validation split."""
    validation_blocks: Count = 128
    """Validation blocks per point of the curve."""
    final_blocks: Count | None = None
    """Validation blocks for the last number; the whole split where it is not given."""
    checkpoints: Count = 4
    """How often a run is saved on its way; the last two are kept until it ends."""

    @model_validator(mode="after")
    def _divides(self) -> TrainingOptions:
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of accumulation "
                f"{self.accumulation}"
            )
        return self


class BudgetOptions(Strict):
    """How long to train: exactly one unit is given, and that unit is what arms are matched in."""

    steps: Count | None = None
    epochs: Positive | None = None
    tokens: Count | None = None
    targets: Count | None = None
    flops: Positive | None = None
    seconds: Positive | None = None

    @model_validator(mode="after")
    def _one_unit(self) -> BudgetOptions:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            raise ValueError(
                "a budget is given in exactly one of steps, epochs, tokens, targets, flops, "
                f"seconds, not {'in ' + ' and '.join(given) if given else 'in none'}"
            )
        return self

    @property
    def unit(self) -> str:
        """Name of the unit that the budget is given in."""
        return next(name for name, value in self if value is not None)

    @property
    def amount(self) -> float:
        """How much of the unit."""
        return float(getattr(self, self.unit))


@dataclass(frozen=True)
class StepCost:
    """What one optimizer step takes, on average."""

    tokens: float
    targets: float
    flops: float
    epochs: float
    seconds: float | None = None
    """Measured on this machine; needed for a budget in seconds only."""


def steps_for(budget: BudgetOptions, cost: StepCost) -> int:
    """Return the number of steps nearest to a budget, at least 1.

    Raises:
        UserError: if the budget is smaller than half a step.
    """
    if budget.steps is not None:
        return budget.steps
    each: float | None = getattr(cost, budget.unit)
    if each is None:
        raise ValueError("a budget in seconds needs the measured seconds of a step")
    if budget.amount < each / 2:
        raise UserError(
            f"budget.{budget.unit} = {budget.amount:g} is less than one step, "
            f"which takes {each:g} {budget.unit}"
        )
    return max(1, round(budget.amount / each))
