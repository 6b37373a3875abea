import pytest
import torch

from mlmclm.decoding.mask_predict import MaskPredictDecoder
from mlmclm.errors import UserError


@torch.inference_mode()
def one_pass(model, prompt, new_tokens):
    text = torch.cat([prompt, torch.full((len(prompt), new_tokens), 2)], 1)
    logits = model.logits(text)[:, prompt.shape[1] :]
    logits[..., [0, 1, 2]] = -torch.inf
    return torch.cat([prompt, logits.argmax(-1)], 1)


def masks_seen(model):
    seen = []
    model.network.base_model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((kwargs["input_ids"] == 2).sum(1).tolist()),
        with_kwargs=True,
    )
    return seen


def test_one_iteration_is_the_best_token_of_one_pass(masked, prompt):
    model = masked()
    found = MaskPredictDecoder(iterations=1).generate(model, prompt, 12)
    assert torch.equal(found, one_pass(model, prompt, 12))


@pytest.mark.parametrize(
    ("iterations", "hidden"),
    [(4, [10, 7, 5, 2]), *((as_many, [*range(10, 0, -1)]) for as_many in (10, 99, None))],
)
def test_as_many_are_masked_again_as_the_paper_says(iterations, hidden, masked, prompt):
    model = masked()
    seen = masks_seen(model)
    decoder = MaskPredictDecoder(iterations=iterations)
    decoder.generate(model, prompt, 10)
    assert seen == [[n, n] for n in hidden]  # N (T - t) / T, rounded down; the same in each row
    assert decoder.passes(10) == len(seen)


@torch.inference_mode()
def test_the_least_certain_are_masked_again_and_the_rest_stays(masked, prompt):
    model = masked()
    texts = []
    model.network.base_model.register_forward_pre_hook(
        lambda _, args, kwargs: texts.append(kwargs["input_ids"][:, 7:].clone()), with_kwargs=True
    )
    final = MaskPredictDecoder(iterations=2).generate(model, prompt, 10)[:, 7:]
    logits = model.logits(torch.cat([prompt, texts[0]], 1))[:, 7:].float()
    logits[..., [0, 1, 2]] = -torch.inf
    certainty, best = logits.softmax(-1).max(-1)
    again = texts[1] == 2
    assert (certainty.where(again, torch.tensor(0.0)).max(1).values
            <= certainty.where(~again, torch.tensor(1.0)).min(1).values).all()  # fmt: skip
    assert torch.equal(texts[1][~again], best[~again])
    assert torch.equal(final[~again], best[~again])


@pytest.mark.parametrize("iterations", [1, 3, 12, None])
def test_no_mask_is_left_and_the_prompt_is_as_it_was(iterations, masked, prompt):
    prompt[0, 3] = 2  # a mask of the prompt's own
    before = prompt.clone()
    text = MaskPredictDecoder(iterations=iterations).generate(masked(), prompt, 12)
    assert torch.equal(text[:, :7], before)
    assert torch.equal(prompt, before)
    assert not torch.isin(text[:, 7:], torch.tensor([0, 1, 2])).any()


@pytest.mark.parametrize("iterations", [1, 3, None])
def test_a_text_is_the_same_alone_and_beside_another(iterations, masked, prompt):
    model, decoder = masked(), MaskPredictDecoder(iterations=iterations)
    alone = [decoder.generate(model, each[None], 12) for each in prompt]
    assert torch.equal(decoder.generate(model, prompt, 12), torch.cat(alone))
    assert not torch.equal(alone[0][:, 7:], alone[1][:, 7:])


def test_all_tokens_arrive_together(masked, prompt):
    arrived = []
    MaskPredictDecoder().generate(masked(), prompt, 12, arrived=arrived.append)
    assert arrived == [12]


def test_a_causal_model_is_refused(causal, prompt):
    with pytest.raises(UserError, match=r"Mask-Predict needs a model that fills masks"):
        MaskPredictDecoder().generate(causal(), prompt, 1)


def test_growing_out_of_the_positions_is_refused_with_both_numbers(masked, prompt):
    with pytest.raises(UserError, match=r"are 65.* 64 positions"):
        MaskPredictDecoder().generate(masked(), prompt, 58)


def test_no_iterations_are_refused():
    with pytest.raises(UserError, match="iterations must be at least 1, not 0"):
        MaskPredictDecoder(iterations=0)
