"""A linear probe: logistic regression on frozen features (Alain and Bengio 2016, arXiv:1610.01644).

What a linear layer can read off the representation as it is; the trunk is not trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field
from sklearn.preprocessing import StandardScaler

from mlmclm.contracts import Positive
from mlmclm.evaluation.base import EVALUATORS, Subject
from mlmclm.evaluation.classification.baselines import Outcome, best_linear
from mlmclm.evaluation.classification.features import POOLINGS, pooled
from mlmclm.evaluation.classification.route import Material, Route
from mlmclm.models.token_model import TokenModel


@EVALUATORS.register("probe")
@dataclass(frozen=True, kw_only=True)
class LinearProbe(Route):
    """Accuracy of a linear classifier on frozen features."""

    unpretrained: ClassVar[str] = "untrained, frozen"

    penalties: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
    """Inverse penalties C that are tried on validation."""

    @property
    def method(self) -> str:
        """Name the route and its pooling."""
        return f"linear probe, {self.pooling} pooling"

    def outcome(
        self, model: TokenModel, material: Material, subject: Subject
    ) -> tuple[Outcome, dict[str, Any]]:
        """Compute all features once, scale them by the training split, and fit."""
        pooling = POOLINGS.get(self.pooling)
        raw = {
            name: pooled(model, encoded, pooling).numpy()
            for name, encoded in material.encoded.items()
        }
        scaler = StandardScaler().fit(raw["train"])
        features = {name: scaler.transform(each) for name, each in raw.items()}
        labels = {name: split.labels for name, split in material.splits.items()}
        found = best_linear(features, labels, self.penalties)
        return found, {"C": found.chosen}
