"""Measurements, one file each. Importing the package registers them."""

from mlmclm.evaluation.base import EVALUATORS, Evaluator, Subject

__all__ = ["EVALUATORS", "Evaluator", "Subject"]

import mlmclm.evaluation.likelihood  # noqa: E402, F401 - registers its evaluators
