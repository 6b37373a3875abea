from types import SimpleNamespace

import pytest
import torch

from mlmclm.attention import Visibility
from mlmclm.corpora import Corpus
from mlmclm.decoding.left_to_right import LeftToRightDecoder
from mlmclm.decoding.mask_predict import MaskPredictDecoder
from mlmclm.errors import UserError
from mlmclm.evaluation.prediction import (
    _best,
    continue_text,
    fill_masks,
    next_tokens,
    predictions,
)
from mlmclm.models.presets import build
from mlmclm.tokenization import load_tokenizer

TEXT = ("the cat sees the old boat under the bridge and sleeps", "the rain is très old 雨 дождь")
DECODERS = (LeftToRightDecoder(), MaskPredictDecoder())


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MLMCLM_CACHE", str(tmp_path))


@pytest.fixture
def tokenizer():
    return load_tokenizer(None, Corpus("made-up", {"train": TEXT * 5}))


@pytest.fixture
def model(tokenizer):
    return lambda visibility: build("tiny", visibility, tokenizer.vocabulary, 0).eval()


class Echo:
    """Gives the token ``10 + t`` a probability of 3/4 at place ``t``; all others share the rest."""

    visibility, positions, device = Visibility.FULL, 12, torch.device("cpu")

    def __init__(self, tokenizer):
        self.vocabulary = tokenizer.vocabulary
        self.asked = []

    def logits(self, ids):
        self.asked.append(ids[0].tolist())
        logits = torch.zeros(*ids.shape, self.vocabulary.size)
        odds = torch.tensor(3.0 * (self.vocabulary.size - 1)).log()
        places = torch.arange(ids.shape[1])
        logits[0, places, places + 10] = odds
        return logits


def test_each_mask_gets_the_best_tokens_of_its_own_place(tokenizer):
    echo = Echo(tokenizer)
    (one, first), (two, second) = fill_masks(echo, tokenizer, "the [MASK] sees[MASK]", 3)
    places = [i for i, token in enumerate(echo.asked[0]) if token == tokenizer.vocabulary.mask]
    assert echo.asked[0][0] == tokenizer.vocabulary.end
    assert (one, two) == ("[MASK] 1", "[MASK] 2")
    for place, found in zip(places, (first, second), strict=True):
        assert found[0] == (tokenizer.decode([place + 10]), pytest.approx(0.75))
        assert len(found) == 3
        assert found[1][1] == pytest.approx(0.25 / (tokenizer.vocabulary.size - 1))


def test_a_mask_may_be_written_as_either_family_writes_it(tokenizer):
    echo = Echo(tokenizer)
    fill_masks(echo, tokenizer, "the <mask> sees", 1)
    fill_masks(echo, tokenizer, "the [MASK] sees", 1)
    assert echo.asked[0] == echo.asked[1]


def test_a_tokenizer_with_another_mask_takes_both_ways(tokenizer):
    other = SimpleNamespace(
        fast=SimpleNamespace(mask_token="{hidden}"), vocabulary=tokenizer.vocabulary,
        decode=tokenizer.decode,
        encode=lambda text: [tokenizer.vocabulary.mask] * text.count("{hidden}"),
    )  # fmt: skip
    assert len(fill_masks(Echo(tokenizer), other, "[MASK] <mask> {hidden}", 1)) == 3


@pytest.mark.parametrize("text", ["", "the cat sees", "雨 дождь مطر"])
def test_the_chances_of_all_next_tokens_add_up_to_one(text, model, tokenizer):
    ((_, found),) = next_tokens(model(Visibility.CAUSAL), tokenizer, text, 10**6)
    assert len(found) == tokenizer.vocabulary.size
    assert sum(chance for _, chance in found) == pytest.approx(1, abs=1e-4)
    assert found == sorted(found, key=lambda each: -each[1])


def test_next_tokens_are_those_of_the_network_behind_the_end_token(model, tokenizer):
    causal = model(Visibility.CAUSAL)
    ids = [tokenizer.vocabulary.end, *tokenizer.encode("the cat")]
    with torch.inference_mode():
        logits = causal.network(torch.tensor([ids]), use_cache=False).logits[0, -1]
    ((_, found),) = next_tokens(causal, tokenizer, "the cat", 1)
    best = int(logits.argmax())
    assert found == [(tokenizer.decode([best]), pytest.approx(float(logits.softmax(-1)[best])))]


def test_a_model_without_opinions_gives_all_tokens_the_same_chance_at_each_mask(model, tokenizer):
    blank, size = model(Visibility.FULL), tokenizer.vocabulary.size
    torch.nn.init.zeros_(blank.network.get_output_embeddings().weight)
    found = fill_masks(blank, tokenizer, "the [MASK] sees [MASK]", 10**6)
    assert [len(candidates) for _, candidates in found] == [size, size]
    for _, candidates in found:
        assert [chance for _, chance in candidates] == pytest.approx([1 / size] * size)


def test_outputs_behind_the_last_token_are_no_candidates(tokenizer):
    size = tokenizer.vocabulary.size
    logits = torch.zeros(size + 1)
    logits[size] = torch.tensor(float(size)).log()  # as probable as all tokens together
    found = _best(logits, tokenizer, 10**6)
    assert len(found) == size
    assert [chance for _, chance in found] == pytest.approx([0.5 / size] * size)


def test_what_a_model_sees_decides_what_it_is_asked(model, tokenizer):
    causal, masked = model(Visibility.CAUSAL), model(Visibility.FULL)
    assert [place for place, _ in predictions(causal, tokenizer, "the cat", 2)] == ["next token"]
    assert [place for place, _ in predictions(masked, tokenizer, "a [MASK]", 2)] == ["[MASK] 1"]


@pytest.mark.parametrize("visibility", list(Visibility))
def test_text_is_continued_by_the_decoder_that_fits(visibility, model, tokenizer):
    text = continue_text(model(visibility), tokenizer, "the cat", 7, DECODERS)
    assert text.startswith("the cat")
    fitting = DECODERS[0 if visibility is Visibility.CAUSAL else 1]
    ids = torch.tensor([[tokenizer.vocabulary.end, *tokenizer.encode("the cat")]])
    alone = fitting.generate(model(visibility), ids, 7)[0, 1:].tolist()
    assert text == tokenizer.decode(alone)


def test_a_sampled_continuation_depends_on_the_seed_alone(model, tokenizer):
    causal, decoders = model(Visibility.CAUSAL), (LeftToRightDecoder(temperature=1.0),)
    one, again, other = (
        continue_text(causal, tokenizer, "", 12, decoders, seed) for seed in (0, 0, 1)
    )
    assert one == again != other


def test_text_without_a_mask_is_refused_with_how_to_write_one(tokenizer):
    with pytest.raises(UserError, match=r"write one as \[MASK\] or <mask>"):
        fill_masks(Echo(tokenizer), tokenizer, "the cat", 1)


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>"])
def test_a_mask_for_a_causal_model_is_refused(mask, model, tokenizer):
    with pytest.raises(UserError, match="predicts the next token and was never shown a mask"):
        next_tokens(model(Visibility.CAUSAL), tokenizer, f"the {mask}", 1)


def test_text_beyond_the_positions_is_refused_with_both_numbers(tokenizer):
    fill_masks(Echo(tokenizer), tokenizer, "[MASK]" * 11, 1)
    with pytest.raises(UserError, match=r"13 tokens with its beginning.* 12 positions"):
        fill_masks(Echo(tokenizer), tokenizer, "[MASK]" * 12, 1)


def test_a_model_that_no_decoder_fits_is_refused_with_the_reasons(model, tokenizer):
    with pytest.raises(UserError, match="Mask-Predict fits it"):
        continue_text(model(Visibility.FULL), tokenizer, "the", 3, (LeftToRightDecoder(),))
