import random

import numpy as np
import pytest
import torch

from mlmclm.corpora import Corpus
from mlmclm.corpora.packing import token_stream
from mlmclm.decoding.memory import Peak
from mlmclm.errors import UserError
from mlmclm.evaluation import EVALUATORS, Subject
from mlmclm.evaluation.generation import LeftToRightSpeed, MaskPredictSpeed, speed
from mlmclm.evaluation.generation.speed import Timed, timed, warmed_up
from mlmclm.models.presets import build
from mlmclm.objectives import CausalLM, MaskedLM
from mlmclm.tokenization import load_tokenizer

CPU = torch.device("cpu")
SHORT = {"prompt_tokens": 8, "new_tokens": 6, "lengths": (3, 5), "repeats": 2, "warm_up": 1}


class Clock:
    """Shows one time after the other."""

    def __init__(self, *times):
        self.times = list(times)

    def __call__(self):
        return self.times.pop(0)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Make subjects over a corpus of three validation documents, the second one short."""
    monkeypatch.setenv("MLMCLM_CACHE", str(tmp_path))
    monkeypatch.setattr(speed, "peak_of", lambda *_: Peak(2**20, 3 * 2**20, 0))
    rng = random.Random(0)
    words = ["a", "cat", "sees", "some", "old", "rain", "under", "my", "bridge"]
    documents = [" ".join(rng.choices(words, k=k)) for k in (30, 2, 40)]
    corpus = Corpus("made-up", {"train": tuple(documents * 3), "validation": tuple(documents)})
    tokenizer = load_tokenizer(None, corpus)

    def of(objective):
        model = build("tiny", objective.visibility, tokenizer.vocabulary, 0).eval()
        return Subject(
            model=model, untrained=lambda: model, tokenizer=tokenizer, corpus=corpus,
            block=32, seed=0, folder=tmp_path,
        )  # fmt: skip

    return of


def test_arrivals_are_counted_from_the_start_of_the_generation():
    def write(arrived):
        arrived(1)
        arrived(2)

    found = timed(write, CPU, Clock(100.0, 100.5, 103.0))
    assert found == Timed((0.5, 3.0), (1, 2))
    assert found.total == 3.0


def numbers(evaluator, runs, subject):
    return {each.metric: each for each in evaluator._in_detail(runs, subject)}


def test_known_durations_give_known_statistics(lab):
    gaps = [[0.5, 1, 2, 3], [0.7, 4, 5, 6], [0.9, 7, 8, 30]]
    runs = [Timed(tuple(np.cumsum(each).tolist()), (1,) * 4) for each in gaps]
    found = numbers(LeftToRightSpeed(new_tokens=4), runs, lab(CausalLM()))
    each = [total / 4 for total in (6.5, 15.7, 45.9)]
    between = [1, 2, 3, 4, 5, 6, 7, 8, 30]  # the wait for the first token is none of them
    assert {name: each.value for name, each in found.items()} == {
        "time to first token": pytest.approx(0.7),
        "time per token, median": pytest.approx(15.7 / 4),
        "time per token, p90": pytest.approx(float(np.quantile(each, 0.9))),
        "time between tokens, median": pytest.approx(5.0),
        "time between tokens, p90": pytest.approx(float(np.quantile(between, 0.9))),
        "throughput": pytest.approx(4 / 15.7),
        "forward passes": 4,
    }
    assert found["time per token, median"].count == 3
    assert found["time between tokens, median"].count == len(between)
    assert found["throughput"].details["totals_s"] == pytest.approx([6.5, 15.7, 45.9])
    assert found["throughput"].details["arrival"] == "one by one"


def test_where_all_tokens_arrive_together_each_costs_its_share_of_the_whole(lab):
    runs = [Timed((seconds,), (64,)) for seconds in (1.0, 2.0, 6.4)]
    found = numbers(MaskPredictSpeed(), runs, lab(MaskedLM()))
    assert found["time to first token"].value == 2.0
    assert found["time per token, median"].value == 2.0 / 64
    assert not [name for name in found if name.startswith("time between")]
    assert found["throughput"].value == 32.0
    assert found["forward passes"].value == 10
    assert found["throughput"].details["arrival"] == "all together"


@pytest.mark.parametrize(
    ("totals", "least", "runs"),
    [
        ([9, 5, 2, 1.9, 7], 2, 4),
        ([1, 1, 1, 1], 3, 3),
        ([1, 2] * 9, 2, speed.MOST_WARM_UPS),
        ([1, 2] * 9, 12, 12),
    ],
)
def test_warming_up_ends_when_two_runs_agree_but_no_earlier_than_asked(totals, least, runs):
    left = list(totals)
    assert warmed_up(lambda: Timed((left.pop(0),), (1,)), least) == runs
    assert len(totals) - len(left) == runs


@pytest.mark.parametrize(
    ("name", "objective", "decoder", "cache"),
    [
        ("left_to_right", CausalLM(), "left to right, KV cache", 2 * 2 * 128 * 13 * 4),
        ("mask_predict", MaskedLM(), "Mask-Predict, T = 10", 0),
    ],
)
def test_both_families_are_measured_by_one_protocol(name, objective, decoder, cache, lab):
    rows = EVALUATORS.get(name)(**SHORT).measure(lab(objective))
    short = "prompt 8, new {}, batch 1, greedy"
    between = [
        ("time between tokens, median", short.format(6), "s", "lower"),
        ("time between tokens, p90", short.format(6), "s", "lower"),
    ]
    assert [(each.metric, each.method, each.unit, each.better) for each in rows] == [
        ("time to first token", short.format(6), "s", "lower"),
        ("time per token, median", short.format(6), "s/token", "lower"),
        ("time per token, p90", short.format(6), "s/token", "lower"),
        ("forward passes", short.format(6), "passes", "lower"),
        *(between if name == "left_to_right" else []),
        ("throughput", short.format(6), "tokens/s", "higher"),
        ("peak memory", short.format(6) + ", whole process", "MiB", "lower"),
        ("generation time", short.format(3), "s", "lower"),
        ("generation time", short.format(5), "s", "lower"),
    ]
    assert all(each.value > 0 and each.details["decoder"] == decoder for each in rows)
    assert {each.details["dtype"] for each in rows} == {"float32"}
    assert [each.details["new_tokens"] for each in rows[-2:]] == [3, 5]
    (memory,) = (each for each in rows if each.metric == "peak memory")
    assert memory.value == 3.0
    assert memory.details["before_generating_mib"] == 1.0
    assert memory.details["kv_cache_bytes_by_formula"] == cache


def test_the_prompt_is_how_a_validation_document_begins_for_every_run(lab):
    subject = lab(CausalLM())
    evaluator = LeftToRightSpeed(prompt_tokens=12)
    prompt = evaluator._prompt(subject)[0].tolist()
    starts = [
        [subject.tokenizer.vocabulary.end, *subject.tokenizer.encode(each)]
        for each in subject.corpus.documents("validation")
    ]
    starts[1] += starts[2]  # a short one runs on
    assert prompt in [each[:12] for each in starts]
    assert torch.equal(evaluator._prompt(lab(MaskedLM()))[0], torch.tensor(prompt))


def test_a_validation_split_that_is_shorter_than_the_prompt_is_refused(lab):
    subject = lab(CausalLM())
    tokens = len(token_stream(subject.corpus, "validation", subject.tokenizer).tokens)
    assert LeftToRightSpeed(prompt_tokens=tokens)._prompt(subject).shape == (1, tokens)
    with pytest.raises(UserError, match=rf"made-up/validation has {tokens} tokens, too few"):
        LeftToRightSpeed(prompt_tokens=tokens + 1)._prompt(subject)


def test_what_does_not_fit_is_refused_with_the_reason(lab):
    causal, masked = lab(CausalLM()), lab(MaskedLM())
    assert LeftToRightSpeed().refusal(causal) is None
    assert MaskPredictSpeed().refusal(masked) is None
    assert "left-to-right generation fits it" in MaskPredictSpeed().refusal(causal)
    assert "Mask-Predict fits it" in LeftToRightSpeed().refusal(masked)


@pytest.mark.parametrize(
    ("options", "name"), [({"new_tokens": 481}, "new_tokens"), ({"lengths": (16, 481)}, "lengths")]
)
def test_a_length_that_does_not_fit_is_told_before_training(options, name, lab):
    LeftToRightSpeed(new_tokens=480).check(lab(CausalLM()))
    with pytest.raises(
        UserError,
        match=rf"evaluation.left_to_right.{name} asks for 481 tokens behind a prompt of 32, but "
        "the model has 512 positions: use at most 480",
    ):
        LeftToRightSpeed(**options).check(lab(CausalLM()))
