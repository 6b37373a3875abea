"""Change one input token and see which outputs move: the proof of who sees whom."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import (
    FNetConfig,
    Gemma2Config,
    GPTNeoConfig,
    GraniteConfig,
    MambaConfig,
    MistralConfig,
    ModernBertConfig,
    NystromformerConfig,
    RobertaConfig,
    XGLMConfig,
)

from mlmclm.attention import Visibility, additive_mask
from mlmclm.contracts import Vocabulary
from mlmclm.errors import UserError
from mlmclm.models.presets import Knobs, build
from mlmclm.models.token_model import TokenModel
from mlmclm.models.trial import fault_of

VOCABULARY = Vocabulary(size=50, pad=0, end=1, mask=2, unknown=3)
TIME = 7


def reachability(model: TokenModel, real: torch.Tensor | None = None) -> torch.Tensor:
    """Return (output, input) booleans: did changing the input token move the output?"""
    torch.manual_seed(0)
    tokens = torch.randint(4, 50, (1, TIME))
    before = model.logits(tokens, real)[0]
    moved = torch.zeros(TIME, TIME, dtype=torch.bool)
    for place in range(TIME):
        changed = tokens.clone()
        changed[0, place] = (tokens[0, place] - 4 + 1) % 46 + 4
        after = model.logits(changed, real)[0]
        moved[:, place] = (after - before).abs().amax(-1) > 1e-6
    return moved


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("visibility", list(Visibility))
@pytest.mark.parametrize("trunk", ["tiny", "bert-tiny", "gpt2-tiny"])
def test_a_position_is_computed_from_exactly_what_it_may_see(trunk, visibility, kernel):
    model = build(trunk, visibility, VOCABULARY, 0, Knobs(kernel=kernel)).eval()
    with torch.inference_mode():
        assert torch.equal(reachability(model), visibility.allowed(TIME))


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("visibility", list(Visibility))
@pytest.mark.parametrize("trunk", ["tiny", "bert-tiny", "gpt2-tiny"])
def test_padding_on_the_right_reaches_no_real_position(trunk, visibility, kernel):
    model = build(trunk, visibility, VOCABULARY, 0, Knobs(kernel=kernel)).eval()
    real = torch.arange(TIME)[None] < 4
    with torch.inference_mode():
        moved = reachability(model, real)
    assert not moved[:4, 4:].any()
    assert torch.equal(moved[:4, :4], visibility.allowed(4))


@pytest.mark.parametrize("config", [RobertaConfig, ModernBertConfig])
@pytest.mark.parametrize("visibility", list(Visibility))
def test_any_config_file_obeys_the_same_rule(tmp_path, config, visibility):
    config(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    ).save_pretrained(tmp_path)
    model = build(str(tmp_path / "config.json"), visibility, VOCABULARY, 0).eval()
    with torch.inference_mode():
        assert torch.equal(reachability(model), visibility.allowed(TIME))


SMALL = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "visibility", "message"),
    [
        (FNetConfig(**SMALL), Visibility.CAUSAL, "sees what it must not see"),
        (NystromformerConfig(**SMALL, segment_means_seq_len=64), Visibility.CAUSAL,
         "sees what it must not see"),
        (GPTNeoConfig(vocab_size=50, hidden_size=32, num_layers=2, num_heads=2,
                      attention_types=[[["global"], 2]], max_position_embeddings=64),
         Visibility.FULL, "does not see all that it must see"),
        (GraniteConfig(**SMALL, num_key_value_heads=2, logits_scaling=2.0), Visibility.CAUSAL,
         "makes its logits by more than one linear layer"),
        (Gemma2Config(**SMALL, num_key_value_heads=2, head_dim=16), Visibility.CAUSAL,
         "makes its logits by more than one linear layer"),
        (MambaConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, state_size=4),
         Visibility.FULL, "cannot be made and run: MambaConfig, full and eager attention"),
        (XGLMConfig(vocab_size=50, d_model=32, num_layers=2, attention_heads=2, ffn_dim=32),
         Visibility.FULL, "cannot be made and run: XGLMConfig"),
        (MistralConfig(**SMALL), Visibility.CAUSAL, "cannot be made and run: MistralConfig"),
        (RobertaConfig(**(SMALL | {"max_position_embeddings": 8}), pad_token_id=9),
         Visibility.FULL, "cannot be made and run: RobertaConfig"),
    ],
)  # fmt: skip
def test_a_config_that_does_otherwise_is_refused_with_the_reason(
    config, visibility, message, tmp_path
):
    config.save_pretrained(tmp_path)
    vocabulary = replace(VOCABULARY, pad=9) if config.pad_token_id == 9 else VOCABULARY
    with pytest.raises(UserError, match=message) as found:
        build(str(tmp_path), visibility, vocabulary, 0, Knobs(kernel="eager"))
    assert "\n" not in str(found.value)


def test_the_presets_pass_the_trial_that_configs_of_the_user_must_pass():
    for trunk in ("tiny", "bert-tiny", "gpt2-tiny"):
        for visibility in Visibility:
            assert fault_of(build(trunk, visibility, VOCABULARY, 0)) is None


def test_roberta_begins_to_count_positions_behind_the_padding(tmp_path):
    RobertaConfig(**SMALL, pad_token_id=5).save_pretrained(tmp_path)
    vocabulary = replace(VOCABULARY, pad=5)
    model = build(str(tmp_path), Visibility.FULL, vocabulary, 0).eval()
    assert model.positions == 64 - 6
    tokens = torch.randint(6, 50, (1, 58))
    assert model.logits(tokens).shape == (1, 58, 50)
    with pytest.raises((IndexError, RuntimeError)):
        model.logits(torch.randint(6, 50, (1, 59)))


def test_a_mask_is_float_and_lets_padding_see_itself():
    real = torch.tensor([[True, True, False]])
    mask = additive_mask(Visibility.CAUSAL, 3, real, torch.float32)
    assert mask.dtype is torch.float32
    assert mask.shape == (1, 1, 3, 3)
    seen = mask[0, 0] == 0
    expected = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    assert torch.equal(seen, expected)
