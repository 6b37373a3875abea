"""What keeps numbers of two protocols apart, and what a fit must not depend on."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits
from transformers import get_linear_schedule_with_warmup

from mlmclm.attention import Visibility
from mlmclm.errors import UserError
from mlmclm.evaluation.classification import FineTuning, LinearProbe
from mlmclm.evaluation.classification.baselines import best_linear
from mlmclm.evaluation.classification.fine_tuning import share_of_peak


def test_a_length_of_ones_own_is_part_of_the_column(toy, lab):
    spec = toy()
    own, block = (
        LinearProbe(tasks=(spec,), max_tokens=cut).measure(lab())[0].method for cut in (8, None)
    )
    assert block.endswith(", texts cut at 32 tokens")  # the block that the run was trained with
    assert own == block.replace("cut at 32", "cut at 8")


def test_two_tasks_of_one_name_are_refused(toy, lab):
    folder = toy().partition("=")[2]
    other = toy("other").partition("=")[2]
    LinearProbe(tasks=(f"toy={folder}", f"other={other}")).check(lab())
    with pytest.raises(
        UserError, match=f"two tasks are called 'toy': toy={folder} and toy={other}"
    ):
        LinearProbe(tasks=(f"toy={folder}", f"toy={other}")).check(lab())


def test_a_row_says_how_many_sentences_it_was_trained_on(toy, lab):
    model, untrained, words, _ = LinearProbe(tasks=(toy(),), training_limit=40).measure(lab())
    assert [each.details["training_sentences"] for each in (model, untrained)] == [40, 40]
    assert words.details["constant_output"] is False


def test_the_first_state_of_a_causal_model_is_flagged_since_it_saw_no_text(toy, lab):
    probe = LinearProbe(tasks=(toy(),), pooling="first")
    model, _, _, majority = probe.measure(lab(Visibility.CAUSAL))
    assert model.details["constant_output"] is True
    assert model.value == majority.value


def test_fine_tuning_does_not_learn_labels_that_the_text_does_not_tell(toy, lab):
    fair = [(f"{word} boat", label) for word in ("good", "bad") for label in ("bad", "good")]
    spec = toy(train=fair * 20, validation=fair * 10, test=fair * 10)
    row = FineTuning(tasks=(spec,), learning_rates=(1e-3,), batch_size=16).measure(lab())[0]
    assert row.value == 0.5


@pytest.mark.parametrize("steps", [1, 5, 10, 128])
def test_after_its_peak_the_learning_rate_is_that_of_transformers(steps):
    warmup = max(1, round(0.1 * steps))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0)
    (reference,) = get_linear_schedule_with_warmup(optimizer, warmup, steps).lr_lambdas
    assert max(share_of_peak(step, steps) for step in range(steps)) == 1
    for step in range(warmup, steps + 1):
        assert share_of_peak(step, steps) == reference(step)


def test_a_fit_runs_on_one_thread_and_leaves_the_number_of_threads_as_it_was(monkeypatch):
    def threads():
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    seen = []
    original = LogisticRegression.fit
    monkeypatch.setattr(
        LogisticRegression, "fit", lambda *inputs: (seen.append(threads()), original(*inputs))[1]
    )
    data = {name: np.array([[0.0], [1.0]]) for name in ("train", "validation", "test")}
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        best_linear(data, {name: [0, 1] for name in data}, (1.0,))
        assert threads() == before
    assert seen == [{1}]
