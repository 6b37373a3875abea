"""How fast text is written. Importing it registers the measurements."""

from mlmclm.evaluation.generation.speed import LeftToRightSpeed, MaskPredictSpeed

__all__ = ["LeftToRightSpeed", "MaskPredictSpeed"]
