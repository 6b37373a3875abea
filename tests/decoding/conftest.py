"""Small models of each family, causal and masked, with weights large enough to have opinions."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    BertConfig,
    EuroBertConfig,
    GPT2Config,
    LlamaConfig,
)

from mlmclm.attention import Visibility
from mlmclm.contracts import Vocabulary
from mlmclm.models.token_model import TokenModel
from mlmclm.seeds import generator, global_seed

VOCABULARY = Vocabulary(size=50, pad=0, end=1, mask=2, unknown=3)
SIZES = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "initializer_range": 0.3,
}  # fmt: skip
CAUSAL = {
    "llama": lambda: LlamaConfig(**SIZES, num_key_value_heads=2),
    "gpt2": lambda: GPT2Config(
        vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.3,
        pad_token_id=0, bos_token_id=1, eos_token_id=1,
    ),
    "bert": lambda: BertConfig(**SIZES, is_decoder=True),
}  # fmt: skip


@pytest.fixture
def vocabulary():
    return VOCABULARY


@pytest.fixture
def causal():
    """Make a causal model of a family."""

    def make(family="llama", vocabulary=VOCABULARY):
        with global_seed(0, family):
            network = AutoModelForCausalLM.from_config(CAUSAL[family]())
        return TokenModel(network, Visibility.CAUSAL, Visibility.CAUSAL, vocabulary).eval()

    return make


@pytest.fixture
def masked():
    """Make a bidirectional model, or one whose objective is causal all the same."""

    def make(visibility=Visibility.FULL):
        with global_seed(0, "masked"):
            network = AutoModelForMaskedLM.from_config(EuroBertConfig(**SIZES, mask_token_id=2))
        return TokenModel(network, visibility, Visibility.FULL, VOCABULARY).eval()

    return make


@pytest.fixture
def prompt():
    """Return (2, 7) ordinary tokens."""
    return torch.randint(4, 50, (2, 7), generator=generator(0, "prompt"))


@pytest.fixture
def passes():
    """List the positions that each forward pass of a model computes."""

    def counted(model):
        seen = []
        model.network.base_model.register_forward_pre_hook(
            lambda _, args, kwargs: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True
        )
        return seen

    return counted
