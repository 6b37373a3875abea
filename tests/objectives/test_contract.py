"""What every objective promises: a new one is tested as soon as it is registered."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mlmclm import seeds
from mlmclm.contracts import IGNORED, Vocabulary
from mlmclm.models.presets import build
from mlmclm.objectives import OBJECTIVES

VOCABULARY = Vocabulary(size=60, pad=0, end=1, mask=2, unknown=3)
NAMES = OBJECTIVES.names()


def text(batch: int = 4, time: int = 24) -> torch.Tensor:
    tokens = torch.randint(3, 60, (batch, time), generator=seeds.generator(0, "text"))
    tokens[:, 5] = VOCABULARY.end
    tokens[0, -4:] = VOCABULARY.pad
    return tokens


def corrupt(name: str, tokens: torch.Tensor, seed: int = 0):
    return OBJECTIVES.get(name)().corrupt(tokens, VOCABULARY, seeds.generator(seed, "rng"))


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_gives_the_same_batch(name):
    first, second = (corrupt(name, text()) for _ in range(2))
    assert torch.equal(first.targets, second.targets)
    assert torch.equal(first.inputs["input_ids"], second.inputs["input_ids"])


@pytest.mark.parametrize("name", NAMES)
def test_tokens_given_are_left_as_they_are(name):
    tokens = text()
    corrupt(name, tokens)
    assert torch.equal(tokens, text())


@pytest.mark.parametrize("name", NAMES)
def test_the_global_generator_is_not_used(name):
    torch.manual_seed(1)
    corrupt(name, text())
    moved = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), moved)


@pytest.mark.parametrize("name", NAMES)
def test_padding_is_never_a_target(name):
    targets = corrupt(name, text()).targets
    assert not (targets == VOCABULARY.pad).any()


@pytest.mark.parametrize("name", NAMES)
def test_targets_are_as_many_as_the_objective_says(name):
    objective = OBJECTIVES.get(name)()
    tokens = torch.randint(3, 60, (400, 64), generator=seeds.generator(1, "many"))
    targets = corrupt(name, tokens).targets
    share = (targets != IGNORED).float().mean().item()
    assert share == pytest.approx(objective.target_share(64), rel=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_one_batch_is_learnt_by_heart(name):
    objective = OBJECTIVES.get(name)()
    model = build("tiny", objective.visibility, VOCABULARY, 0)
    batch = corrupt(name, text(4, 16))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    count = (batch.targets != IGNORED).sum()
    for _ in range(60):
        loss = model.nats(batch.inputs["input_ids"], batch.targets) / count
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert loss.item() < 0.3
