"""A small corpus, its tokenizer, and models of both kinds to measure on it."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, EuroBertConfig, LlamaConfig

from mlmclm.attention import Visibility
from mlmclm.corpora import Corpus
from mlmclm.evaluation import Subject
from mlmclm.models.token_model import TokenModel
from mlmclm.seeds import global_seed
from mlmclm.tokenization import load_tokenizer

TEXT = "the cat of rain <unk> sees a très old boat , and then it sleeps under my bridge ."
WORDS = TEXT.split()


def document(rng, lines):
    text = [f" {' '.join(rng.choices(WORDS, k=rng.randint(3, 30)))} \n" for _ in range(lines)]
    return "".join([" \n", " = Title of an old boat under a bridge = \n", " \n", *text])


@pytest.fixture(scope="session")
def corpus():
    rng = random.Random(0)
    sizes = {"train": (9,) * 12, "validation": (3,), "test": (1, 5, 9)}
    return Corpus("made-up", {k: tuple(document(rng, n) for n in v) for k, v in sizes.items()})


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLMCLM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tokenizer(cache, corpus):
    return load_tokenizer(None, corpus)


def build(visibility, vocabulary):
    shape = {
        "vocab_size": vocabulary.size, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64,
        "max_position_embeddings": 64, "tie_word_embeddings": True, "initializer_range": 0.2,
        "pad_token_id": vocabulary.pad, "bos_token_id": vocabulary.end,
        "eos_token_id": vocabulary.end,
    }  # fmt: skip
    with global_seed(1, "weights"):
        if visibility is Visibility.CAUSAL:
            network = AutoModelForCausalLM.from_config(LlamaConfig(**shape))
        else:
            config = EuroBertConfig(**shape, mask_token_id=vocabulary.mask)
            network = AutoModelForMaskedLM.from_config(config)
    return TokenModel(network, visibility, visibility, vocabulary).eval()


@pytest.fixture
def lab(tmp_path, corpus, tokenizer):
    """Make subjects: causal, masked, one whose logits are all zero, and any with parts changed."""

    def of(visibility=Visibility.FULL, **changes):
        fields = {
            "model": changes.pop("model", None) or build(visibility, tokenizer.vocabulary),
            "untrained": lambda: build(visibility, tokenizer.vocabulary),
            "tokenizer": tokenizer, "corpus": corpus, "block": 32, "seed": 7,
            "folder": Path(tmp_path) / "run",
        }  # fmt: skip
        return Subject(**fields | changes)

    def silent(visibility):
        model = build(visibility, tokenizer.vocabulary)
        torch.nn.init.zeros_(model.network.get_output_embeddings().weight)
        return of(visibility, model=model)

    causal, masked = of(Visibility.CAUSAL), of(Visibility.FULL)
    return SimpleNamespace(of=of, silent=silent, causal=causal, masked=masked)


@pytest.fixture
def value():
    """Pick the one value of a unit, or of a metric and a unit, from the model or a baseline."""

    def picked(rows, unit, metric="", baseline=""):
        (found,) = [
            row.value
            for row in rows
            if (row.unit, row.baseline) == (unit, baseline) and row.metric.endswith(metric)
        ]
        return found

    return picked
