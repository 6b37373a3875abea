"""Sizes and families by name, any Hugging Face config, and the network that belongs to them.

The rotary family is the controlled comparison: ``EuroBertConfig`` where everything is visible and
``LlamaConfig`` where only the left is. Both have the same tensors by name and shape, so the same
seed gives both the same initial weights. ``bert-*`` and ``gpt2-*`` are the classic pair at the same
depth and width. Sizes carry the names of the published BERT miniatures (Turc et al. 2019,
arXiv:1908.08962).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    BertConfig,
    EuroBertConfig,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
)
from transformers.utils.logging import disable_progress_bar

from mlmclm.attention import Visibility
from mlmclm.contracts import Vocabulary
from mlmclm.errors import UserError, unknown
from mlmclm.hub import asked_once
from mlmclm.models.token_model import TokenModel
from mlmclm.models.trial import fault_of
from mlmclm.seeds import global_seed

POSITIONS = 512
"""Longest input of a preset, as in BERT."""


@dataclass(frozen=True)
class Size:
    """Depth and width; heads are 64 wide."""

    layers: int
    width: int

    @property
    def heads(self) -> int:
        """Number of attention heads."""
        return self.width // 64

    @property
    def gated(self) -> int:
        """Width inside a gated feed-forward layer: 8/3 of the width, to the next multiple of 16.

        A gated layer has three matrices where a plain one of 4 widths has two: same weights.
        """
        return -(-self.width * 8 // 3 // 16) * 16


SIZES = {
    "tiny": Size(2, 128),
    "mini": Size(4, 256),
    "small": Size(4, 512),
    "medium": Size(8, 512),
    "base": Size(12, 768),
}


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """What a recipe may set on any config."""

    dropout: float | None = None
    """Everywhere that the family has dropout; the rotary family has it on attention only. None: 0
    in a preset, what the config says in any other."""
    initializer_range: float | None = None
    """Standard deviation of the initial weights. None: 0.02 in a preset, what the config says in
    any other."""
    kernel: str = "sdpa"
    """Attention implementation of transformers: ``sdpa`` or ``eager``."""


def _ids(vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary.size,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.end,
        "eos_token_id": vocabulary.end,
        "mask_token_id": vocabulary.mask,
    }


def _rotary(size: Size, visibility: Visibility, vocabulary: Vocabulary) -> PreTrainedConfig:
    family = EuroBertConfig if visibility is Visibility.FULL else LlamaConfig
    return family(
        **_ids(vocabulary),
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        intermediate_size=size.gated,
        max_position_embeddings=POSITIONS,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )


def _bert(size: Size, visibility: Visibility, vocabulary: Vocabulary) -> PreTrainedConfig:
    return BertConfig(
        **_ids(vocabulary),
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.width,
        max_position_embeddings=POSITIONS,
        is_decoder=visibility is Visibility.CAUSAL,
    )


def _gpt2(size: Size, visibility: Visibility, vocabulary: Vocabulary) -> PreTrainedConfig:
    return GPT2Config(
        **_ids(vocabulary),
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        n_positions=POSITIONS,
        activation_function="gelu_pytorch_tanh",  # gelu_new in one kernel instead of eight
    )


FAMILIES: dict[str, Callable[[Size, Visibility, Vocabulary], PreTrainedConfig]] = {
    "": _rotary,
    "bert-": _bert,
    "gpt2-": _gpt2,
}
IMPOSSIBLE = (AssertionError, AttributeError, ImportError, LookupError, RuntimeError, TypeError,
              ValueError, ZeroDivisionError)  # fmt: skip
"""What transformers raises where a config does not fit together."""
PRESETS = {
    prefix + name: (family, size)
    for prefix, family in FAMILIES.items()
    for name, size in SIZES.items()
}
NO_DROPOUT = ("classif", "cls", "summary", "qa", "pooler", "layer", "path")
"""In the name of what drops, but not in the trunk, or not single numbers."""


def _local(path: Path, vocabulary: Vocabulary) -> PreTrainedConfig:
    try:
        config = AutoConfig.from_pretrained(path)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} is not a Hugging Face config: {error}") from error
    if config.vocab_size < vocabulary.size:
        raise UserError(
            f"{path} has vocab_size {config.vocab_size}, but the tokenizer has {vocabulary.size} "
            "tokens: raise vocab_size or use a smaller tokenizer"
        )
    return cast(PreTrainedConfig, config)


def _from_hub(name: str, vocabulary: Vocabulary) -> PreTrainedConfig:
    with asked_once() as silence:
        try:
            config = AutoConfig.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise UserError(
                f"no config for the model {name!r} could be had from the Hugging Face hub "
                f"({silence or str(error).splitlines()[0]}); offline there are: "
                f"{', '.join(PRESETS)}, or the path of a config.json"
            ) from error
    config.vocab_size = vocabulary.size
    return cast(PreTrainedConfig, config)


def dropouts(config: PreTrainedConfig) -> list[str]:
    """Return the names of all dropout rates of the trunk: every family has its own."""
    return [
        name
        for name, value in config.to_dict().items()
        if "drop" in name
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and not any(part in name for part in NO_DROPOUT)
    ]


def make_config(
    model: str, visibility: Visibility, vocabulary: Vocabulary, knobs: Knobs
) -> PreTrainedConfig:
    """Return the config that a preset, a ``config.json`` (or its folder) or a hub id stands for.

    Raises:
        UserError: for an unknown name, an unreadable config or one too small for the tokenizer.
    """
    if model in PRESETS:
        family, size = PRESETS[model]
        config = family(size, visibility, vocabulary)
        knobs = replace(
            knobs,
            dropout=knobs.dropout or 0.0,
            initializer_range=knobs.initializer_range or 0.02,
        )
    elif Path(model).exists():
        config = _local(Path(model), vocabulary)
    elif "/" in model and not model.endswith(".json"):
        config = _from_hub(model, vocabulary)
    elif model.endswith(".json"):
        raise UserError(f"there is no file {model}; a model is a preset, a config.json or a hub id")
    else:
        raise unknown("model", model, PRESETS)
    for name, value in _ids(vocabulary).items():
        if name != "vocab_size":
            setattr(config, name, value)
    for name in dropouts(config) if knobs.dropout is not None else ():
        setattr(config, name, knobs.dropout)
    if knobs.initializer_range is not None:
        config.initializer_range = knobs.initializer_range
    if hasattr(config, "is_decoder"):
        config.is_decoder = visibility is Visibility.CAUSAL
    return config


def _network_class(config: PreTrainedConfig, visibility: Visibility) -> tuple[Any, Visibility]:
    """Return the Auto class for a config, and who sees whom in it when it gets no mask."""
    if config.is_encoder_decoder:
        raise UserError(
            f"{type(config).__name__} is an encoder-decoder; a trunk here is one stack of layers"
        )
    masked = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    if not masked and not causal:
        raise UserError(
            f"{type(config).__name__} has neither a masked nor a causal language model "
            "in transformers"
        )
    if masked and (visibility is Visibility.FULL or not causal):
        return AutoModelForMaskedLM, Visibility.FULL
    return AutoModelForCausalLM, Visibility.CAUSAL


def build(
    model: str,
    visibility: Visibility,
    vocabulary: Vocabulary,
    seed: int,
    knobs: Knobs | None = None,
) -> TokenModel:
    """Make a network with fresh weights that depend on nothing but the config and ``seed``.

    Raises:
        UserError: see `make_config`; also where transformers has no language model for the config,
            or cannot make it of these numbers.
    """
    knobs = knobs or Knobs()
    config = make_config(model, visibility, vocabulary, knobs)
    auto, native = _network_class(config, visibility)
    try:
        with global_seed(seed, "init"):
            network = auto.from_config(
                config, attn_implementation=knobs.kernel, dtype=torch.float32
            )
        made = TokenModel(network, visibility, native, vocabulary)
        fault = None if model in PRESETS else fault_of(made)
    except IMPOSSIBLE as error:
        if model in PRESETS:
            raise
        why = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"the model {model} cannot be made and run: {type(config).__name__}, "
            f"{visibility.value} and {knobs.kernel} attention: {why}"
        ) from error
    if fault is not None:
        raise UserError(f"the model {model} cannot be used here: {fault}")
    return made


def load_network(
    folder: Path, kernel: str, visibility: Visibility
) -> tuple[PreTrainedModel, Visibility]:
    """Open the weights in a folder; return the network and its native visibility."""
    disable_progress_bar()
    config = AutoConfig.from_pretrained(folder)
    auto, native = _network_class(config, visibility)
    return auto.from_pretrained(folder, attn_implementation=kernel), native
