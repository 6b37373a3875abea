"""The engine: the stock Hugging Face Trainer on an objective module.

`mlmclm.training.engine.pretrain` trains one run; `mlmclm.training.options` says what can be set.
"""
