"""Measurements, one file each. Importing the package registers them."""

from mlmclm.evaluation import classification, generation, likelihood
from mlmclm.evaluation.base import EVALUATORS, Evaluator, Subject

__all__ = ["EVALUATORS", "Evaluator", "Subject", "classification", "generation", "likelihood"]
