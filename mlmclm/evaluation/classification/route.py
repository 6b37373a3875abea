"""What all routes from a pretrained model to a classifier share: tasks, splits and baselines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from mlmclm.contracts import Measurement, Role
from mlmclm.corpora.labelled import LabelledSplit, load_task
from mlmclm.errors import UserError, unknown
from mlmclm.evaluation.base import Evaluator, Subject
from mlmclm.evaluation.classification import baselines
from mlmclm.evaluation.classification.features import (
    POOLINGS,
    Encoded,
    encode,
    longest_of,
    part_of,
)
from mlmclm.models.token_model import TokenModel
from mlmclm.provenance import content_hash

WORD_PENALTIES = (1.0, 10.0, 100.0, 1000.0)
"""Inverse penalties tried for TF-IDF."""


SeveralOrNone = Annotated[int, Field(ge=2)] | None


def _known_pooling(name: str) -> str:
    if name not in POOLINGS.names():
        raise ValueError(str(unknown("pooling", name, POOLINGS.names())))
    return name


@dataclass(frozen=True)
class Material:
    """One task as a route sees it."""

    classes: int
    splits: Mapping[str, LabelledSplit]
    encoded: Mapping[str, Encoded]

    @property
    def truncated(self) -> int:
        """Texts of all splits that were cut."""
        return sum(each.truncated for each in self.encoded.values())


@dataclass(frozen=True, kw_only=True)
class Route(Evaluator):
    """Classification of sentences: trained on train, tuned on validation, measured on test once."""

    group: ClassVar[str] = "classification"
    unpretrained: ClassVar[str]
    """What the same route is called without pretraining."""

    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("mr", "clinc150")
    """Names of tasks, ``NAME=FOLDER`` or hub data sets."""
    pooling: Annotated[str, AfterValidator(_known_pooling)] = "mean"
    """Which state stands for the text: first, last (no padding) or mean."""
    training_limit: SeveralOrNone = 1000
    """Training sentences, the same for every run; all of them where there are fewer."""
    max_tokens: SeveralOrNone = None
    """Longer texts are cut and counted; the training block where it is not given."""

    def check(self, subject: Subject) -> None:
        """Read all tasks once, and see that no two would stand under one name in a table."""
        specs: dict[str, str] = {}
        for spec in self.tasks:
            name = load_task(spec).name
            if name in specs:
                raise UserError(f"two tasks are called {name!r}: {specs[name]} and {spec}")
            specs[name] = spec

    @property
    def inputs_hash(self) -> str:
        """Hash of the tasks: a folder may hold other sentences than last time."""
        return content_hash({spec: load_task(spec).hash for spec in self.tasks})

    def refusal(self, subject: Subject) -> str | None:
        """Every trunk has hidden states, so every run can be measured."""
        return None

    @property
    @abstractmethod
    def method(self) -> str:
        """The protocol in words, without the number of training sentences."""

    @abstractmethod
    def outcome(
        self, model: TokenModel, material: Material, subject: Subject
    ) -> tuple[baselines.Outcome, dict[str, Any]]:
        """Return how well the model does, and what belongs to the number."""

    def measure(self, subject: Subject) -> list[Measurement]:
        """Measure each task: the run, the same weights untrained, TF-IDF and the majority class."""
        return [found for task in self.tasks for found in self._task(subject, task)]

    def _material(self, subject: Subject, spec: str) -> Material:
        task = load_task(spec)
        splits = dict(task.splits)
        splits["train"] = part_of(task.splits["train"], self.training_limit, task.name)
        longest = longest_of(subject, self.max_tokens)
        encoded = {
            name: encode(subject.tokenizer, split.texts, longest) for name, split in splits.items()
        }
        return Material(len(task.labels), splits, encoded)

    def _task(self, subject: Subject, spec: str) -> list[Measurement]:
        task, material = load_task(spec), self._material(subject, spec)
        common = Measurement(
            metric="accuracy",
            method=(
                f"{self.method}, {len(material.splits['train']):,} training sentences, texts cut "
                f"at {longest_of(subject, self.max_tokens)} tokens"
            ),
            unit="share",
            better="higher",
            value=0.0,
            count=len(material.splits["test"]),
            data=f"{task.name}/test",
            details={"task_hash": task.hash},
        )
        return [
            self._of(subject.model, material, subject, common),
            self._of(
                subject.untrained(), material, subject, common, "untrained", self.unpretrained
            ),
            *self._floors(common, spec),
        ]

    def _of(
        self,
        model: TokenModel,
        material: Material,
        subject: Subject,
        common: Measurement,
        role: Role = "model",
        baseline: str = "",
    ) -> Measurement:
        outcome, details = self.outcome(model, material, subject)
        details = {
            **common.details,
            **details,
            "validation_accuracy": outcome.validation,
            "constant_output": outcome.constant,
            "truncated_texts": material.truncated,
            "training_sentences": len(material.splits["train"]),
        }
        return replace(
            common, value=outcome.accuracy, role=role, baseline=baseline, details=details
        )

    def _floors(self, common: Measurement, spec: str) -> list[Measurement]:
        words = baselines.tf_idf(spec, self.training_limit, WORD_PENALTIES)
        return [
            replace(
                common,
                value=words.accuracy,
                role="baseline",
                baseline="TF-IDF",
                details={
                    **common.details,
                    "C": words.chosen,
                    "validation_accuracy": words.validation,
                    "constant_output": words.constant,
                },
            ),
            replace(
                common,
                value=baselines.majority(spec, self.training_limit),
                role="baseline",
                baseline="majority class",
            ),
        ]
