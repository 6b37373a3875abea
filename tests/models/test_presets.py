from __future__ import annotations

import json
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    BartConfig,
    BertConfig,
    BloomConfig,
    EuroBertConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    ModernBertConfig,
    OPTConfig,
    PhiConfig,
    RobertaConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from mlmclm.attention import Visibility
from mlmclm.contracts import Vocabulary
from mlmclm.errors import UserError
from mlmclm.models.flops import training_flops
from mlmclm.models.presets import PRESETS, Knobs, build

VOCABULARY = Vocabulary(size=300, pad=0, end=1, mask=2, unknown=3)
SMALL = {
    "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64,
}  # fmt: skip
REAL_SIZE = Vocabulary(size=8192, pad=0, end=1, mask=2, unknown=3)


def test_both_arms_of_the_rotary_pair_start_from_the_same_weights():
    masked = build("tiny", Visibility.FULL, VOCABULARY, seed=5).network.state_dict()
    causal = build("tiny", Visibility.CAUSAL, VOCABULARY, seed=5).network.state_dict()
    assert masked.keys() == causal.keys()
    assert all(torch.equal(masked[name], causal[name]) for name in masked)


def test_another_seed_gives_other_weights():
    one, two = (build("tiny", Visibility.FULL, VOCABULARY, seed=seed) for seed in (1, 2))
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(one.network.state_dict()[name], two.network.state_dict()[name])


def test_building_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    build("tiny", Visibility.FULL, VOCABULARY, seed=5)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("name", [name for name in PRESETS if name.endswith(("tiny", "mini"))])
@pytest.mark.parametrize("visibility", list(Visibility))
def test_initial_loss_is_that_of_guessing(name, visibility):
    model = build(name, visibility, VOCABULARY, 0).eval()
    tokens = torch.randint(4, 300, (4, 32))
    targets = torch.randint(4, 300, (4, 32))
    mean = model.nats(tokens, targets).item() / tokens.numel()
    assert mean == pytest.approx(torch.tensor(300.0).log().item(), abs=0.3)


def test_mini_has_the_published_number_of_weights():
    assert build("mini", Visibility.FULL, REAL_SIZE, 0).parameters_total == 5_261_568


@pytest.mark.parametrize("visibility", list(Visibility))
@pytest.mark.parametrize("name", ["tiny", "mini", "bert-mini", "gpt2-mini"])
def test_flops_by_formula_are_those_that_torch_counts(name, visibility):
    model = build(name, visibility, REAL_SIZE, 0, Knobs(kernel="eager"))
    tokens = torch.randint(4, 300, (2, 128))
    counter = FlopCounterMode(display=False)
    with counter:
        model.logits(tokens).sum().backward()
    predicted = training_flops(model, 128).total(tokens.numel(), tokens.numel())
    assert predicted == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_knobs_reach_the_config():
    model = build("bert-tiny", Visibility.FULL, VOCABULARY, 0, Knobs(dropout=0.25))
    assert model.network.config.hidden_dropout_prob == 0.25


CONFIGS = [
    BertConfig(**SMALL), RobertaConfig(**SMALL), ModernBertConfig(**SMALL), EuroBertConfig(**SMALL),
    LlamaConfig(**SMALL), GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=2),
    OPTConfig(**SMALL, ffn_dim=32, word_embed_proj_dim=32, dropout=0.1), GPTNeoXConfig(**SMALL),
    PhiConfig(**SMALL), BloomConfig(vocab_size=300, hidden_size=32, n_layer=2, n_head=2,
                max_position_embeddings=64),
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_dropout_reaches_all_of_a_trunk_whatever_its_family_calls_it(config, tmp_path):
    config.save_pretrained(tmp_path)
    full = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    visibility = Visibility.FULL if full else Visibility.CAUSAL
    eager = partial(Knobs, kernel="eager")
    network = build(str(tmp_path), visibility, VOCABULARY, 0, eager(dropout=0.37)).network
    rates = [each.p for each in network.modules() if isinstance(each, torch.nn.Dropout)]
    assert set(rates) <= {0.37}
    still = build(str(tmp_path), visibility, VOCABULARY, 0, eager(dropout=0.0)).train()
    tokens = torch.randint(4, 300, (2, 16))
    assert torch.equal(still.logits(tokens), still.logits(tokens))
    moving = build(str(tmp_path), visibility, VOCABULARY, 0, eager(dropout=0.37)).train()
    assert not torch.equal(moving.logits(tokens), moving.logits(tokens))


def test_a_config_of_the_user_keeps_its_own_dropout_and_initial_weights(tmp_path):
    BertConfig(**SMALL, hidden_dropout_prob=0.3, initializer_range=0.5).save_pretrained(tmp_path)
    model = build(str(tmp_path), Visibility.FULL, VOCABULARY, 0)
    assert model.network.config.hidden_dropout_prob == 0.3
    assert model.network.bert.embeddings.word_embeddings.weight.std() > 0.4
    assert model.network.dtype is torch.float32


def test_a_misspelled_preset_is_answered_with_the_nearest():
    with pytest.raises(UserError, match=r"no model is called 'tinny'; did you mean 'tiny'"):
        build("tinny", Visibility.FULL, VOCABULARY, 0)


def test_a_config_smaller_than_the_tokenizer_is_refused_with_both_numbers(tmp_path):
    LlamaConfig(vocab_size=100).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"vocab_size 100.*300 tokens"):
        build(str(tmp_path), Visibility.CAUSAL, VOCABULARY, 0)


def test_a_file_that_is_no_config_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonsense"}), "utf-8")
    with pytest.raises(UserError, match=r"not a Hugging Face config"):
        build(str(tmp_path / "config.json"), Visibility.CAUSAL, VOCABULARY, 0)


def test_a_missing_config_file_is_named():
    with pytest.raises(UserError, match=r"there is no file nowhere.json"):
        build("nowhere.json", Visibility.CAUSAL, VOCABULARY, 0)


def test_an_architecture_whose_head_is_unknown_is_refused(tmp_path):
    BartConfig(
        vocab_size=300,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
    ).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"encoder-decoder"):
        build(str(tmp_path), Visibility.FULL, VOCABULARY, 0)


def test_a_hub_id_out_of_reach_is_one_line_with_what_works():
    with pytest.raises(UserError, match=r"HF_HUB_OFFLINE is set.*offline there are: tiny") as error:
        build("nobody/nothing", Visibility.CAUSAL, VOCABULARY, 0)
    assert "\n" not in str(error.value)
