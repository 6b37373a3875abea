from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from mlmclm import seeds
from mlmclm.attention import Visibility
from mlmclm.contracts import IGNORED, Vocabulary
from mlmclm.models.token_model import TokenModel
from mlmclm.objectives import CausalLM

VOCABULARY = Vocabulary(size=50, pad=0, end=1, mask=2, unknown=3)


def test_the_target_is_the_right_neighbour_and_the_last_has_none():
    batch = CausalLM().corrupt(torch.tensor([[1, 7, 8, 9]]), VOCABULARY, seeds.generator(0))
    assert batch.targets.tolist() == [[7, 8, 9, IGNORED]]
    assert batch.inputs["input_ids"].tolist() == [[1, 7, 8, 9]]


def test_loss_is_that_of_gpt2_which_shifts_labels_itself():
    network = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=2)).eval()
    model = TokenModel(network, Visibility.CAUSAL, Visibility.CAUSAL, VOCABULARY)
    tokens = torch.randint(3, 50, (3, 12), generator=seeds.generator(0))
    batch = CausalLM().corrupt(tokens, VOCABULARY, seeds.generator(0))
    ours = model.nats(tokens, batch.targets)
    theirs = network(input_ids=tokens, labels=tokens).loss
    torch.testing.assert_close(ours / (batch.targets != IGNORED).sum(), theirs)
