from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from mlmclm import seeds
from mlmclm.attention import Visibility
from mlmclm.contracts import IGNORED, Vocabulary
from mlmclm.models.token_model import TokenModel
from mlmclm.objectives import MaskedLM

VOCABULARY = Vocabulary(size=1000, pad=0, end=1, mask=2, unknown=3)


def long_text() -> torch.Tensor:
    return torch.randint(3, 1000, (1000, 100), generator=seeds.generator(0, "long"))


def test_80_10_10_over_a_hundred_thousand_tokens():
    tokens = long_text()
    batch = MaskedLM().corrupt(tokens, VOCABULARY, seeds.generator(0))
    shown, chosen = batch.inputs["input_ids"], batch.targets != IGNORED
    hidden = chosen & (shown == VOCABULARY.mask)
    kept = chosen & (shown == tokens)
    swapped = chosen & ~hidden & ~kept
    total = chosen.sum().item()
    assert total / tokens.numel() == pytest.approx(0.15, abs=0.005)
    assert hidden.sum().item() / total == pytest.approx(0.8, abs=0.01)
    assert kept.sum().item() / total == pytest.approx(0.1, abs=0.01)
    assert swapped.sum().item() / total == pytest.approx(0.1, abs=0.01)


def test_only_chosen_tokens_are_changed_and_the_target_is_the_original():
    tokens = long_text()
    batch = MaskedLM().corrupt(tokens, VOCABULARY, seeds.generator(0))
    chosen = batch.targets != IGNORED
    assert torch.equal(batch.inputs["input_ids"][~chosen], tokens[~chosen])
    assert torch.equal(batch.targets[chosen], tokens[chosen])


def test_special_tokens_are_never_chosen():
    tokens = long_text()
    tokens[:, ::2] = VOCABULARY.end
    tokens[:, 1::4] = VOCABULARY.pad
    targets = MaskedLM(mask_rate=1.0).corrupt(tokens, VOCABULARY, seeds.generator(0)).targets
    assert not torch.isin(targets, torch.tensor(sorted(VOCABULARY.special))).any()


def test_three_words_at_a_low_rate_still_have_one_target():
    tokens = torch.tensor([[5, 6, 7]] * 500)
    targets = MaskedLM(mask_rate=0.01).corrupt(tokens, VOCABULARY, seeds.generator(0)).targets
    assert ((targets != IGNORED).sum(1) >= 1).all()


def test_nothing_but_special_tokens_has_no_target():
    tokens = torch.full((2, 4), VOCABULARY.end)
    targets = MaskedLM().corrupt(tokens, VOCABULARY, seeds.generator(0)).targets
    assert (targets == IGNORED).all()


def test_loss_is_that_of_bert_with_labels():
    config = BertConfig(
        vocab_size=1000,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    network = BertForMaskedLM(config).eval()
    model = TokenModel(network, Visibility.FULL, Visibility.FULL, VOCABULARY)
    batch = MaskedLM().corrupt(long_text()[:4], VOCABULARY, seeds.generator(0))
    ours = model.nats(batch.inputs["input_ids"], batch.targets)
    theirs = network(input_ids=batch.inputs["input_ids"], labels=batch.targets).loss
    torch.testing.assert_close(ours / (batch.targets != IGNORED).sum(), theirs)


def test_shares_that_add_up_to_more_than_one_are_refused():
    MaskedLM(mask_share=0.9, random_share=0.1)
    with pytest.raises(ValueError, match=r"must add up to at most 1, not 1\.1"):
        MaskedLM(mask_share=0.9, random_share=0.2)
