import pytest
import torch

from mlmclm.attention import Visibility
from mlmclm.contracts import Vocabulary
from mlmclm.decoding.left_to_right import (
    DynamicCache,
    LeftToRightDecoder,
    hidden_after,
)
from mlmclm.errors import UserError
from mlmclm.seeds import generator

FAMILIES = ["llama", "gpt2", "bert"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cache_changes_no_token(family, causal, prompt):
    model = causal(family)
    cached, plain = (LeftToRightDecoder(cache=c).generate(model, prompt, 20) for c in (True, False))
    assert cached.shape == (2, 27)
    assert torch.equal(cached, plain)
    assert len(set(cached[0, 7:].tolist())) > 2  # not one token over and over


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_cache_changes_no_logit(family, causal, prompt):
    model = causal(family)
    memory = DynamicCache(config=model.network.config)
    parts = [hidden_after(model, memory, each) for each in prompt.split([4, 1, 2], 1)]
    found = model.logits_of(torch.cat(parts, 1))
    torch.testing.assert_close(found, model.logits(prompt), atol=1e-4, rtol=1e-4)


def test_the_prompt_is_read_once_and_then_one_token_a_pass(causal, prompt, passes):
    model = causal()
    seen = passes(model)
    decoder = LeftToRightDecoder()
    decoder.generate(model, prompt, 5)
    assert seen == [7, 1, 1, 1, 1]
    assert decoder.passes(5) == len(seen)


def test_a_bidirectional_network_trained_causally_has_no_cache_and_says_so(masked, prompt, passes):
    model = masked(Visibility.CAUSAL)
    seen = passes(model)
    decoder = LeftToRightDecoder()
    text = decoder.generate(model, prompt, 3)
    assert seen == [7, 8, 9]
    assert decoder.describe(model) == "left to right, no cache"
    assert torch.equal(text[:, 7], greedy_by_hand(model, prompt))


@torch.inference_mode()
def greedy_by_hand(model, text):
    logits = model.logits(text)[:, -1]
    logits[:, [0, 1, 2]] = -torch.inf
    return logits.argmax(-1)


def test_greedy_text_is_that_of_hugging_face(causal, prompt):
    model = causal()
    theirs = model.network.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, min_new_tokens=20,
        max_new_tokens=20, suppress_tokens=[0, 1, 2],
    )  # fmt: skip
    assert torch.equal(LeftToRightDecoder().generate(model, prompt, 20), theirs)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_is_the_same_alone_and_beside_another(family, cache, causal, prompt):
    model, decoder = causal(family), LeftToRightDecoder(cache=cache)
    alone = [decoder.generate(model, each[None], 20) for each in prompt]
    assert torch.equal(decoder.generate(model, prompt, 20), torch.cat(alone))
    assert not torch.equal(alone[0][:, 7:], alone[1][:, 7:])


def test_special_tokens_and_outputs_that_are_no_token_are_never_written(causal, prompt):
    model = causal(vocabulary=Vocabulary(size=8, pad=0, end=1, mask=2, unknown=3))
    text = LeftToRightDecoder(temperature=5.0).generate(model, prompt, 50)[:, 7:]
    assert set(text.unique().tolist()) == {3, 4, 5, 6, 7}


def test_samples_depend_on_the_seed_alone(causal, prompt):
    model, decoder = causal(), LeftToRightDecoder(temperature=1.0)
    one, again, other = (
        decoder.generate(model, prompt, 20, generator(seed, "sample")) for seed in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("cut", [{"top_k": 1}, {"top_p": 1e-6}])
def test_drawing_from_the_best_token_only_is_greedy(cut, causal, prompt):
    model = causal()
    drawn = LeftToRightDecoder(temperature=2.0, **cut).generate(model, prompt, 20)
    assert torch.equal(drawn, LeftToRightDecoder().generate(model, prompt, 20))


@pytest.mark.parametrize(
    ("cut", "kept"), [({}, 4), ({"top_k": 2}, 2), ({"top_p": 0.75}, 2), ({"top_p": 0.85}, 3)]
)
def test_samples_come_in_the_proportions_of_what_is_kept(cut, kept):
    shares = torch.tensor([0.5, 0.3, 0.15, 0.05])
    expected = shares.where(torch.arange(4) < kept, torch.zeros(4))
    logits = shares.log()[[2, 0, 3, 1]].expand(20_000, 4)
    decoder = LeftToRightDecoder(temperature=1.0, **cut)
    drawn = decoder._choose(logits, generator(0, "draw")).bincount(minlength=4) / 20_000
    torch.testing.assert_close(
        drawn[[1, 3, 0, 2]], expected / expected.sum(), atol=0.015, rtol=0
    )  # 4 standard errors


def test_a_masked_model_is_refused(masked, prompt):
    with pytest.raises(UserError, match="sees both sides"):
        LeftToRightDecoder().generate(masked(), prompt, 1)


def test_growing_out_of_the_positions_is_refused_with_both_numbers(causal, prompt):
    model = causal()
    assert LeftToRightDecoder().generate(model, prompt, 57).shape == (2, 64)
    with pytest.raises(UserError, match=r"7 prompt and 58 new tokens are 65.* 64 positions"):
        LeftToRightDecoder().generate(model, prompt, 58)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature must be at least 0, not -1"),
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, not 1.5"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        LeftToRightDecoder(**options)
