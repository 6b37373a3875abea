import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from sklearn.metrics import accuracy_score

from mlmclm import seeds
from mlmclm.corpora.packing import pack, token_stream
from mlmclm.evaluation.likelihood.counting import counts_of
from mlmclm.evaluation.likelihood.masked_token import MaskedTokenLoss, MaskSet
from mlmclm.objectives import MaskedLM


@pytest.fixture
def blocks(corpus, tokenizer):
    return torch.as_tensor(pack(token_stream(corpus, "test", tokenizer), 32).blocks)


@pytest.fixture
def draw(blocks, tokenizer):
    return lambda seed: MaskSet.draw(blocks, MaskedLM(), tokenizer.vocabulary, seed)


def whole(masks, rows=1000):
    batches = list(masks.batches(rows))
    inputs = torch.cat([batch.inputs["input_ids"] for batch in batches])
    return inputs, torch.cat([batch.targets for batch in batches])


def test_masks_are_the_same_for_a_seed_and_others_for_another(draw):
    assert draw(0).hash == draw(0).hash
    assert draw(0).hash != draw(1).hash


def test_every_block_has_a_target(draw):
    _, targets = whole(draw(0))
    assert (targets != -100).any(dim=1).all()


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_blocks_are_shown_as_the_objective_corrupts_them(rows, draw, blocks, tokenizer):
    inputs, targets = whole(draw(5), rows)
    for row, block in enumerate(blocks):
        rng = seeds.generator(5, "masks", row)
        expected = MaskedLM().corrupt(block[None], tokenizer.vocabulary, rng)
        assert torch.equal(inputs[row], expected.inputs["input_ids"][0])
        assert torch.equal(targets[row], expected.targets[0])


def test_loss_and_accuracy_are_those_of_hugging_face_and_scikit_learn(lab, value):
    subject, estimator = lab.masked, MaskedTokenLoss(split="train", mask_rate=0.9, batch_size=3)
    packed = pack(token_stream(subject.corpus, "train", subject.tokenizer), subject.block)
    rule, vocabulary = MaskedLM(mask_rate=0.9), subject.tokenizer.vocabulary
    inputs, targets = whole(MaskSet.draw(torch.as_tensor(packed.blocks), rule, vocabulary, 0))
    with torch.inference_mode():
        output = subject.model.network(input_ids=inputs, labels=targets)
    asked = targets != -100
    accuracy = accuracy_score(targets[asked], output.logits.argmax(-1)[asked])
    assert accuracy > 0
    rows = estimator.measure(subject)
    assert value(rows, "nats/target") == pytest.approx(float(output.loss), rel=1e-5)
    assert value(rows, "share") == accuracy
    assert {row.count for row in rows} == {int(asked.sum())}


def test_the_batch_size_changes_nothing(lab, value):
    one, eight = (
        value(MaskedTokenLoss(batch_size=size).measure(lab.masked), "nats/target")
        for size in (1, 8)
    )
    assert one == pytest.approx(eight, abs=1e-4)


def test_the_mask_set_is_saved_once_with_what_it_depends_on(lab, draw):
    subject = lab.masked
    for _ in range(2):
        (details, *_) = (row.details for row in MaskedTokenLoss().measure(subject))
    (path,) = (subject.folder / "evaluation" / "masked_token").iterdir()
    assert details["masks_file"] == path.relative_to(subject.folder).as_posix()
    saved = MaskSet(draw(0).blocks, **load_file(path))
    assert saved.hash == details["masks"] == draw(0).hash
    with safe_open(path, framework="numpy") as file:
        about = file.metadata()
    assert about["tokenizer"] == subject.tokenizer.hash
    assert (about["rate"], about["seed"], about["data"]) == ("0.15", "0", "made-up/test")


def test_the_remainder_that_fills_no_block_is_stated(lab, corpus, tokenizer):
    details = MaskedTokenLoss().measure(lab.masked)[0].details
    total = len(token_stream(corpus, "test", tokenizer).tokens)
    assert details["blocks"] * details["block"] + details["remainder_tokens"] == total


def test_rate_seed_and_limit_are_part_of_the_method(lab):
    options = {"mask_rate": 0.4, "seed": 3, "limit": 2}
    rows = MaskedTokenLoss(**options).measure(lab.masked)
    assert {row.method for row in rows} == {
        "40% masked, 80/10/10, blocks of 32, seed 3, first 2 blocks"
    }
    assert rows[0].details["blocks"] == 2


def test_knowing_the_own_place_beats_knowing_frequencies(lab, draw, value):
    rows = MaskedTokenLoss().measure(lab.masked)
    vocabulary = lab.masked.tokenizer.vocabulary
    prior = counts_of(lab.masked.corpus, lab.masked.tokenizer).unigrams
    nats, hits = [], []
    for shown, answer in zip(draw(0).shown, draw(0).answers, strict=True):
        joint = prior * (0.1 / vocabulary.size + (0.8 if shown == vocabulary.mask else 0))
        joint[shown] += 0.1 * prior[shown]
        nats.append(-np.log(joint[answer] / joint.sum()))
        hits.append(joint.argmax() == answer)
    exact = value(rows, "nats/target", baseline="context-free")
    assert exact == pytest.approx(np.mean(nats), rel=1e-5)  # the mask itself has a trace of mass

    assert value(rows, "share", baseline="context-free") == np.mean(hits)
    loss = {name: value(rows, "nats/target", baseline=name) for name in ("unigram", "context-free")}
    assert loss["context-free"] < loss["unigram"]
    assert value(rows, "share", baseline="context-free") > value(rows, "share", baseline="unigram")


def test_the_bigram_baseline_sees_what_stands_left_and_counts_words_where_that_is_hidden(
    lab, blocks, draw, value
):
    """Against a loop over blocks with the model's own masks, one target after the other."""
    subject = lab.masked
    vocabulary = subject.tokenizer.vocabulary
    counts = counts_of(subject.corpus, subject.tokenizer)
    everything = np.arange(vocabulary.size)
    inputs, targets = whole(draw(0))
    nats, hits = [], []
    for row, time in torch.nonzero(targets != -100).tolist():
        left = int(inputs[row, time - 1]) if time else vocabulary.mask
        chances = (
            counts.unigram(everything)
            if left == vocabulary.mask
            else counts.bigram(np.full(vocabulary.size, left), everything)
        )
        answer = int(targets[row, time])
        nats.append(-np.log(chances[answer]))
        hits.append(chances.argmax() == answer)
    rows = MaskedTokenLoss().measure(subject)
    assert value(rows, "nats/target", baseline="bigram") == pytest.approx(np.mean(nats))
    assert value(rows, "share", baseline="bigram") == np.mean(hits)
    assert 0 < np.mean(hits) < 1
