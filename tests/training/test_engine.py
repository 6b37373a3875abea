from __future__ import annotations

import json
import os
import signal
import time

import pytest
import torch
from torch.nn import functional
from transformers import Trainer, TrainerControl, TrainerState

from mlmclm import seeds
from mlmclm.contracts import IGNORED, Vocabulary
from mlmclm.errors import UserError
from mlmclm.objectives import CausalLM, MaskedLM
from mlmclm.training import engine
from mlmclm.training.callbacks import Curve, StepTimes
from mlmclm.training.data import TrainingRows
from mlmclm.training.engine import (
    SETTING,
    Pretraining,
    choose_setting,
    last_checkpoint,
    pretrain,
    validation_loss,
)
from mlmclm.training.options import BudgetOptions, TrainingOptions
from mlmclm.training.pretrainer import Pretrainer

VOCABULARY = Vocabulary(size=40, pad=0, end=1, mask=2, unknown=3)


def job(objective=None, *, steps=12, seed=0, train=None, **options) -> Pretraining:
    tokens = torch.randint(3, 40, (30, 8), generator=seeds.generator(0, "text"))
    defaults = {
        "batch_size": 4, "precision": "float32", "kernel": "eager", "evaluations": 3,
        "checkpoints": 3, "learning_rate": 1e-2,
    }  # fmt: skip
    return Pretraining(
        model="tiny",
        objective=objective or MaskedLM(),
        vocabulary=VOCABULARY,
        train=tokens[:20] if train is None else train,
        validation=tokens[20:],
        budget=BudgetOptions(steps=steps),
        options=TrainingOptions(**(defaults | options)),
        seed=seed,
        device=torch.device("cpu"),
    )


def weights(outcome) -> dict[str, torch.Tensor]:
    return outcome.model.network.state_dict()


def points_of(folder) -> list[dict]:
    lines = (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def same(one, other) -> bool:
    return all(torch.equal(value, weights(other)[name]) for name, value in weights(one).items())


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return path


def interrupt_at(step: int, monkeypatch) -> None:
    """Send Ctrl-C to this process while a step is running."""

    def press(self, args, state, control, **kwargs):
        if state.global_step == step - 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Curve, "on_step_begin", press)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_an_interrupted_run_ends_bit_for_bit_like_an_unbroken_one(
    tmp_path, folder, monkeypatch, dropout
):
    task = job(CausalLM(), dropout=dropout)
    straight = tmp_path / "straight"
    straight.mkdir()
    unbroken = pretrain(task, straight)
    with monkeypatch.context() as patch:
        interrupt_at(5, patch)
        with pytest.raises(KeyboardInterrupt):
            pretrain(task, folder)
    assert last_checkpoint(folder).name == "checkpoint-5"
    resumed = pretrain(task, folder, resume=True)
    assert same(unbroken, resumed)
    assert resumed.validation == unbroken.validation
    assert resumed.budget.targets == unbroken.budget.targets
    steps = [point["steps"] for point in points_of(folder)]
    assert steps == [4, 8, 12]


def test_a_half_written_checkpoint_is_passed_over(folder):
    for step, files in ((4, ["complete"]), (8, [])):
        path = folder / "checkpoints" / f"checkpoint-{step}"
        path.mkdir(parents=True)
        for name in files:
            (path / name).touch()
    assert last_checkpoint(folder).name == "checkpoint-4"


def test_micro_batches_change_nothing_but_rounding(tmp_path):
    found = []
    for parts in (1, 4):
        folder = tmp_path / str(parts)
        folder.mkdir()
        found.append(weights(pretrain(job(accumulation=parts, steps=3), folder)))
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-3, atol=1e-5)


def test_the_same_seed_gives_the_same_run_and_another_does_not(tmp_path):
    outcomes = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        (tmp_path / name).mkdir()
        outcomes.append(pretrain(job(steps=3, seed=seed), tmp_path / name))
    assert same(outcomes[0], outcomes[1])
    assert not same(outcomes[0], outcomes[2])


def test_what_was_spent_is_counted_not_estimated(folder):
    task = job(steps=10)
    outcome = pretrain(task, folder)
    rows = task.rows(10)
    targets = sum(int((rows[row]["labels"] != IGNORED).sum()) for row in range(len(rows)))
    assert outcome.budget.steps == 10
    assert outcome.budget.tokens == 10 * 4 * 8
    assert outcome.budget.targets == targets
    assert outcome.budget.flops == task.flops.total(320, targets)
    assert 0 < outcome.budget.seconds < 60


def test_seconds_leave_validation_and_saving_out(folder, monkeypatch):
    def slowly(original):
        def wrapper(*args, **kwargs):
            time.sleep(0.5)
            return original(*args, **kwargs)

        return wrapper

    monkeypatch.setattr(engine, "validation_loss", slowly(engine.validation_loss))
    monkeypatch.setattr(Trainer, "_save_checkpoint", slowly(Trainer._save_checkpoint))
    started = time.perf_counter()
    outcome = pretrain(job(steps=3), folder)  # three points of the curve, three checkpoints
    assert time.perf_counter() - started > 3
    assert 0 < outcome.budget.seconds < 1


def test_text_is_learnt_and_the_curve_shows_it(folder):
    pattern = torch.arange(3, 11).repeat(20, 1)
    task = job(CausalLM(), train=pattern, steps=60)
    before = validation_loss(task, task.build("eager"), pattern).mean
    outcome = pretrain(task, folder)
    after = validation_loss(task, outcome.model, pattern).mean
    assert before > 3
    assert after < 0.1
    points = points_of(folder)
    assert [point["steps"] for point in points] == [20, 40, 60]
    assert points[-1]["training_loss"] < points[0]["training_loss"]


def test_validation_loss_is_torchs_mean_over_all_targets(folder):
    task = job(CausalLM())
    model = task.build("eager").eval()
    logits = model.logits(task.validation)[:, :-1]
    theirs = functional.cross_entropy(logits.flatten(0, 1), task.validation[:, 1:].flatten())
    assert validation_loss(task, model, task.validation).mean == pytest.approx(theirs.item())


def test_a_loss_that_is_no_number_stops_the_run_with_advice(folder):
    task = job(learning_rate=1e30, steps=40, clip=1e30)
    with pytest.raises(UserError, match=r"diverged.*lower training.learning_rate"):
        pretrain(task, folder)


def test_a_block_beyond_the_positions_is_refused_with_both_numbers():
    task = job(train=torch.ones(3, 600, dtype=torch.long))
    with pytest.raises(UserError, match=r"600 tokens.*512 positions"):
        task.build("eager")


def test_norms_and_biases_do_not_decay(folder, monkeypatch):
    seen = {}

    def look(self, *args, **kwargs):
        self.create_optimizer()
        names = {id(value): name for name, value in self.model.named_parameters()}
        for group in self.optimizer.param_groups:
            for value in group["params"]:
                seen[names[id(value)]] = (value.ndim, group["weight_decay"])
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "train", look)
    for trunk in ("tiny", "bert-tiny", "gpt2-tiny"):
        task = job(weight_decay=0.3)
        task = Pretraining(**{**vars(task), "model": trunk})
        with pytest.raises(KeyboardInterrupt):
            pretrain(task, folder)
        assert seen
        for name, (dimensions, decay) in seen.items():
            assert decay == (0.3 if dimensions > 1 else 0.0), name
        seen.clear()


def test_rows_are_a_function_of_seed_and_number():
    blocks = torch.arange(3, 39).reshape(9, 4)
    rows = TrainingRows(blocks, CausalLM(), VOCABULARY, seed=3, rows=18)
    for epoch in (range(9), range(9, 18)):
        read = torch.stack([rows[row]["input_ids"] for row in epoch])
        assert torch.equal(read.sort(0).values, blocks)
    masked = TrainingRows(blocks, MaskedLM(), VOCABULARY, seed=3, rows=18)
    for row in (17, 0, 5):
        again = masked[row]
        assert torch.equal(again["labels"], masked[row]["labels"])
        whole = torch.where(again["labels"] == IGNORED, again["input_ids"], again["labels"])
        assert torch.equal(whole, rows[row]["input_ids"])


def test_masks_are_drawn_anew_in_each_epoch():
    rows = TrainingRows(torch.arange(3, 35)[None], MaskedLM(), VOCABULARY, seed=0, rows=2)
    assert not torch.equal(rows[0]["labels"], rows[1]["labels"])


def test_tied_weights_are_saved_once_and_come_back(tmp_path):
    one, other = Pretrainer(job().build("eager")), Pretrainer(job(seed=1).build("eager"))
    state = one.state_dict()
    pointers = [value.data_ptr() for value in state.values()]
    assert len(pointers) == len(set(pointers))
    other.load_state_dict(state)
    for name, value in one.model.network.state_dict().items():
        assert torch.equal(value, other.model.network.state_dict()[name])


def test_seconds_become_steps_by_the_median_step_of_a_run_that_is_forgotten(monkeypatch):
    task = Pretraining(**{**vars(job()), "budget": BudgetOptions(seconds=30)})
    timed = []

    def gather(self, *args, **kwargs):
        timed.append(self)
        self.seconds += [0.25, 0.25, 9.0]

    monkeypatch.setattr(StepTimes, "on_train_end", gather, raising=False)
    monkeypatch.setattr(StepTimes, "on_step_end", lambda *args, **kwargs: None)
    assert choose_setting(task).steps == 120
    assert len(timed) == 1


def test_timing_ends_with_the_steps_or_the_seconds(monkeypatch):
    control, clock = TrainerControl(), iter([0.0, 1.0, 3.0, 9.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    times = StepTimes(torch.device("cpu"), most=4.0)
    stopped = []
    for _ in range(4):
        times.on_step_end(None, TrainerState(), control)
        stopped.append(control.should_training_stop)
    assert times.seconds == [1.0, 2.0, 6.0]
    assert stopped == [False, False, False, True]


def test_a_seed_trains_with_the_setting_that_another_has_chosen(tmp_path, monkeypatch):
    first, second = tmp_path / "0", tmp_path / "1"
    for folder in (first, second):
        folder.mkdir()
    pretrain(job(), first)
    monkeypatch.setattr(engine, "choose_setting", None)
    outcome = pretrain(job(seed=1), second, alike=[tmp_path / "none", first])
    assert (second / SETTING).read_text() == (first / SETTING).read_text()
    assert vars(outcome.setting) == json.loads((first / SETTING).read_text())
    (second / SETTING).write_text("{")
    with pytest.raises(UserError, match=r"setting.json is damaged"):
        pretrain(job(seed=1), second)
