"""What an evaluator is: a frozen dataclass of options that turns a trained model into numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mlmclm.contracts import Measurement
from mlmclm.corpora import Corpus
from mlmclm.models.token_model import TokenModel
from mlmclm.registry import Registry
from mlmclm.tokenization import TextTokenizer


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A trained model with all that is needed to measure it."""

    model: TokenModel
    """In evaluation mode; its weights may still be those that the run starts from."""
    untrained: Callable[[], TokenModel]
    """Makes the same architecture with the weights that the run started from."""
    tokenizer: TextTokenizer
    corpus: Corpus
    """What it was pretrained on."""
    block: int
    """Tokens in a training block: the longest context that the model was trained with."""
    seed: int
    folder: Path
    """The run; evaluators may save what belongs to their numbers (a mask set) below it."""


@dataclass(frozen=True, kw_only=True)
class Evaluator(ABC):
    """One kind of measurement. Its fields are its options in an experiment file."""

    group: ClassVar[str]
    """``likelihood``, ``classification`` or ``generation``: what ``--metric`` can also name."""
    kernel: ClassVar[str | None] = None
    """Attention implementation that it switches to; None where it keeps that of training."""

    @property
    def inputs_hash(self) -> str:
        """Hash of what it reads beside the run and its text: other inputs, other numbers."""
        return ""

    def check(self, subject: Subject) -> None:  # noqa: B027 - some have nothing that can be wrong
        """Look for what the options name, and whether it fits, before anything is trained.

        Args:
            subject: the run before its first step, which `refusal` has nothing against.

        Raises:
            UserError: if it is not there or does not fit.
        """

    @abstractmethod
    def refusal(self, subject: Subject) -> str | None:
        """Return why this measurement does not exist for the subject, or None where it does."""

    @abstractmethod
    def measure(self, subject: Subject) -> list[Measurement]:
        """Measure the subject, and the baselines that its numbers must be read beside."""


EVALUATORS: Registry[type[Evaluator]] = Registry("metric")
