"""What a representation is good for: sentences to classes. Importing it registers the routes."""

from mlmclm.evaluation.classification.fine_tuning import FineTuning
from mlmclm.evaluation.classification.probe import LinearProbe

__all__ = ["FineTuning", "LinearProbe"]
