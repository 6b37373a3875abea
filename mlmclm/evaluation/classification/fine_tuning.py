"""Fine-tuning: all weights and a new linear head are trained on the task (Devlin et al. 2019, 4.1).

The loop is written out here: a fit takes seconds, there are dozens of them, and the checkpoints,
trackers and logs that Trainer would add to each have nothing to do.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from mlmclm import seeds
from mlmclm.contracts import Count, Positive
from mlmclm.evaluation.base import EVALUATORS, Subject
from mlmclm.evaluation.classification.baselines import Outcome, accuracy
from mlmclm.evaluation.classification.features import (
    POOLINGS,
    Encoded,
    Pooling,
    batches_of,
    by_length,
)
from mlmclm.evaluation.classification.route import Material, Route
from mlmclm.models.token_model import TokenModel

WEIGHT_DECAY = 0.01
WARMUP = 0.1
CLIP = 1.0


class Classifier(nn.Module):
    """A trunk, pooling and a linear layer onto the classes."""

    def __init__(self, model: TokenModel, pooling: Pooling, classes: int, seed: int) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        with seeds.global_seed(seed, "head"):
            self.head = nn.Linear(model.width, classes).to(model.device)

    def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        """Return (batch, classes) logits of (batch, time) tokens."""
        return self.head(self.pooling(self.model.hidden(tokens, real), real))  # type: ignore[no-any-return]

    def batch(self, encoded: Encoded, places: list[int]) -> Tensor:
        """Return the logits of some texts."""
        tokens, real = encoded.batch(places, self.model.vocabulary.pad)
        return self(tokens.to(self.model.device), real.to(self.model.device))  # type: ignore[no-any-return]

    @torch.inference_mode()
    def predict(self, encoded: Encoded) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the class of every text, in order, dropout off."""
        self.eval()
        found = torch.empty(len(encoded.ids), dtype=torch.long)
        for places in by_length(encoded, 64):
            found[places] = self.batch(encoded, places).argmax(1).cpu()
        return found.numpy()


def _groups(module: nn.Module) -> list[dict[str, Any]]:
    """Return the weights in two groups: norms and biases do not decay."""
    weights = [each for each in module.parameters() if each.requires_grad]
    return [
        {"params": [each for each in weights if each.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [each for each in weights if each.ndim <= 1], "weight_decay": 0.0},
    ]


def share_of_peak(step: int, steps: int) -> float:
    """Return the learning rate of a step as a share of its peak: linear up, then linear down.

    Args:
        step: counted from 0; already the first one learns.
        steps: of the whole fit.
    """
    warmup = max(1, round(WARMUP * steps))
    return min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))


@EVALUATORS.register("fine_tuning")
@dataclass(frozen=True, kw_only=True)
class FineTuning(Route):
    """Accuracy after training all weights on the task."""

    unpretrained: ClassVar[str] = "from scratch"

    learning_rates: Annotated[tuple[Positive, ...], Field(min_length=1)] = (3e-3, 6e-3)
    """Peaks that are tried on validation, the same for every arm."""
    epochs: Count = 3
    """Passes over the training sentences."""
    batch_size: Count = 32
    """Sentences per step."""
    seeds: Count = 1
    """Fine-tuning seeds per run; the value is their mean, each one stands in the details."""

    @property
    def method(self) -> str:
        """Name the route, its pooling and what is tuned."""
        tuned = f"best of {len(self.learning_rates)} learning rates"
        repeats = f", mean of {self.seeds} fine-tuning seeds" if self.seeds > 1 else ""
        return f"fine-tuning, {self.pooling} pooling, {self.epochs} epochs, {tuned}{repeats}"

    def outcome(
        self, model: TokenModel, material: Material, subject: Subject
    ) -> tuple[Outcome, dict[str, Any]]:
        """Fine-tune a copy for each rate and seed; test the rate that validation prefers."""
        found = [
            self._one(model, material, seeds.derive(subject.seed, "fine-tuning", number))
            for number in range(self.seeds)
        ]
        each = [one.accuracy for one in found]
        rates = [one.chosen for one in found]
        mean = Outcome(
            fmean(each),
            fmean(one.validation for one in found),
            rates[0],
            all(one.constant for one in found),
        )
        return mean, {"accuracies": each, "learning_rates": rates}

    def _one(self, model: TokenModel, material: Material, seed: int) -> Outcome:
        tuned = []
        for rate in self.learning_rates:
            classifier = self._fit(model, material, rate, seed)
            predicted = classifier.predict(material.encoded["validation"])
            right = accuracy(predicted, material.splits["validation"].labels)
            tuned.append((right, rate, classifier))
        validation, chosen, classifier = max(tuned, key=lambda each: each[0])
        predicted = classifier.predict(material.encoded["test"])
        right = accuracy(predicted, material.splits["test"].labels)
        return Outcome(right, validation, chosen, len(set(predicted.tolist())) == 1)

    def _steps(self, encoded: Encoded, seed: int) -> Iterator[list[int]]:
        for epoch in range(self.epochs):
            yield from batches_of(encoded, self.batch_size, seeds.generator(seed, "batches", epoch))

    def _fit(self, model: TokenModel, material: Material, rate: float, seed: int) -> Classifier:
        pooling = POOLINGS.get(self.pooling)
        classifier = Classifier(copy.deepcopy(model), pooling, material.classes, seed).train()
        encoded = material.encoded["train"]
        labels = torch.tensor(material.splits["train"].labels, device=model.device)
        steps = list(self._steps(encoded, seed))
        optimizer = torch.optim.AdamW(_groups(classifier), rate, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: share_of_peak(step, len(steps))
        )
        with seeds.global_seed(seed, "dropout"):
            for places in steps:
                logits = classifier.batch(encoded, places)
                loss = nn.functional.cross_entropy(logits, labels[places])
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(classifier.parameters(), CLIP)
                optimizer.step()
                schedule.step()
        return classifier
