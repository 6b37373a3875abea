from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from mlmclm.attention import Visibility
from mlmclm.contracts import IGNORED, Vocabulary
from mlmclm.models import heads
from mlmclm.models.heads import linear_cross_entropy
from mlmclm.models.presets import build

VOCABULARY = Vocabulary(size=97, pad=0, end=1, mask=2, unknown=3)


def leaves(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("positions", [1, heads.CHUNK, 2 * heads.CHUNK + 3])
@pytest.mark.parametrize("with_bias", [True, False])
def test_loss_and_gradients_are_those_of_torch(positions, with_bias):
    hidden, weight, bias = leaves((positions, 16), (97, 16), (97,))
    targets = torch.randint(97, (positions,))
    inputs = [hidden, weight, *([bias] if with_bias else [])]
    used = bias if with_bias else None

    ours = linear_cross_entropy(hidden, weight, used, targets)
    our_gradients = torch.autograd.grad(3 * ours, inputs)
    logits = functional.linear(hidden, weight, used)
    theirs = functional.cross_entropy(logits, targets, reduction="sum")
    their_gradients = torch.autograd.grad(3 * theirs, inputs)

    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    for our, their in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-4, atol=1e-5)


def test_no_gradients_wanted_gives_the_same_loss():
    hidden, weight = leaves((300, 16), (97, 16))
    targets = torch.randint(97, (300,))
    wanted = linear_cross_entropy(hidden, weight, None, targets)
    with torch.inference_mode():
        unwanted = linear_cross_entropy(hidden, weight, None, targets)
    torch.testing.assert_close(wanted.detach(), unwanted)


def test_a_hopeless_target_costs_much_but_stays_finite():
    hidden = torch.tensor([[200.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    loss = linear_cross_entropy(hidden, weight, None, torch.tensor([1]))
    assert loss.item() == pytest.approx(400.0)


def test_bfloat16_stays_within_its_rounding():
    hidden, weight = leaves((500, 32), (97, 32))
    targets = torch.randint(97, (500,))
    exact = linear_cross_entropy(hidden, weight, None, targets)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = linear_cross_entropy(hidden, weight, None, targets)
    assert rounded.dtype is torch.float32
    assert rounded.item() == pytest.approx(exact.item(), rel=2**-8)


@pytest.mark.parametrize("visibility", list(Visibility))
@pytest.mark.parametrize("trunk", ["tiny", "bert-tiny", "gpt2-tiny"])
def test_a_model_in_parts_has_the_logits_and_the_loss_of_the_whole(trunk, visibility):
    model = build(trunk, visibility, VOCABULARY, 0).eval()
    tokens = torch.randint(4, 97, (2, 9))
    targets = tokens.roll(1, 1).masked_fill(torch.rand(2, 9) < 0.5, IGNORED)
    logits = model.logits(tokens)
    if visibility is model.native:
        torch.testing.assert_close(logits, model.network(input_ids=tokens).logits)
    reference = functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    torch.testing.assert_close(model.nats(tokens, targets), reference, rtol=1e-5, atol=0)
