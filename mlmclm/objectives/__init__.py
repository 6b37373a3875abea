"""Pretraining objectives, one file each. Importing the package registers them."""

from mlmclm.objectives.base import OBJECTIVES, Objective
from mlmclm.objectives.clm import CausalLM
from mlmclm.objectives.mlm import MaskedLM

__all__ = ["OBJECTIVES", "CausalLM", "MaskedLM", "Objective"]
