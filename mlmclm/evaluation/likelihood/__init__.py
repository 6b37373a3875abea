"""How well a model predicts text, one estimator a file. Importing the package registers them.

Three estimators, three sets of columns. Only ``causal`` is a likelihood of the text; the two for
masked models are not, and none of the three may be ranked against another.
"""

from mlmclm.evaluation.likelihood.causal import CausalLikelihood
from mlmclm.evaluation.likelihood.masked_token import MaskedTokenLoss
from mlmclm.evaluation.likelihood.pseudo_perplexity import PseudoPerplexity

__all__ = ["CausalLikelihood", "MaskedTokenLoss", "PseudoPerplexity"]
