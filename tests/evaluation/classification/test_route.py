from dataclasses import replace

import pytest
import torch

from mlmclm.attention import Visibility
from mlmclm.corpora.labelled import load_task
from mlmclm.errors import UserError
from mlmclm.evaluation.classification import FineTuning, LinearProbe
from mlmclm.evaluation.classification.baselines import Outcome, majority, tf_idf
from mlmclm.evaluation.classification.features import part_of
from mlmclm.evaluation.classification.route import WORD_PENALTIES

ROUTES = {
    "probe": (LinearProbe, {}),
    "fine_tuning": (FineTuning, {"epochs": 1, "learning_rates": (1e-3,), "batch_size": 16}),
}
UNPRETRAINED = {LinearProbe: "untrained, frozen", FineTuning: "from scratch"}


@pytest.fixture(params=ROUTES)
def route(request):
    kind, quick = ROUTES[request.param]
    return lambda **options: kind(**quick | options)


def test_each_task_has_the_run_and_its_baselines_in_one_column(route, toy, lab):
    one, two = toy("one", truth=0.5), toy("two", truth=0.3)
    evaluator = route(tasks=(one, two), training_limit=50)
    rows = evaluator.measure(lab())
    for spec, found in ((one, rows[:4]), (two, rows[4:])):
        assert [(each.role, each.baseline) for each in found] == [
            ("model", ""),
            ("untrained", UNPRETRAINED[type(evaluator)]),
            ("baseline", "TF-IDF"),
            ("baseline", "majority class"),
        ]
        assert {(each.metric, each.unit, each.better, each.data) for each in found} == {
            ("accuracy", "share", "higher", f"{spec.partition('=')[0]}/test")
        }
        assert len({each.method for each in found}) == 1
        assert {each.count for each in found} == {80}
        assert found[2].value == tf_idf(spec, 50, WORD_PENALTIES).accuracy
        assert found[3].value == majority(spec, 50)
    assert len(rows) == 8


def test_the_method_says_how_many_sentences_were_trained_on(route, toy, lab):
    spec = toy()
    for limit, trained in ((30, 30), (1000, 96), (None, 96)):
        row = route(tasks=(spec,), training_limit=limit).measure(lab())[0]
        assert f", {trained} training sentences, texts cut at 32 tokens" in row.method


def test_only_the_training_split_is_limited_and_by_the_common_draw(route, toy, lab):
    spec = toy()
    task = load_task(spec)
    material = route(training_limit=30)._material(lab(), spec)
    assert material.splits["train"] == part_of(task.splits["train"], 30, "toy")
    assert material.splits["validation"] == task.splits["validation"]
    assert material.splits["test"] == task.splits["test"]
    assert material.classes == 2


def test_the_untrained_baseline_is_the_model_from_scratch(route, toy, lab, monkeypatch):
    subject, scratch = lab(), object()
    answers = {
        id(subject.model): Outcome(0.9, 0.8, 1.0, constant=False),
        id(scratch): Outcome(0.6, 0.7, 1.0, constant=True),
    }
    evaluator = route(tasks=(toy(),))
    monkeypatch.setattr(type(evaluator), "outcome", lambda _, model, *__: (answers[id(model)], {}))
    model, untrained, *_ = evaluator.measure(replace(subject, untrained=lambda: scratch))
    assert (model.value, untrained.value) == (0.9, 0.6)
    for row, expected in ((model, (0.8, False)), (untrained, (0.7, True))):
        assert (row.details["validation_accuracy"], row.details["constant_output"]) == expected


@pytest.mark.parametrize(
    "evaluator", [LinearProbe, lambda **o: FineTuning(epochs=1, learning_rates=(1e-12,), **o)]
)
def test_giving_every_text_the_same_class_is_told(evaluator, toy, lab):
    subject = lab()
    torch.nn.init.zeros_(subject.model.network.get_input_embeddings().weight)
    row = evaluator(tasks=(toy(),)).measure(subject)[0]
    assert row.details["constant_output"] is True
    share = load_task(toy("same")).splits["test"].labels
    assert 0 < sum(share) < len(share)  # so that one class for all is a failure


def test_a_model_that_tells_texts_apart_is_not_called_constant(route, toy, lab):
    options = {} if route().method.startswith("linear") else {"epochs": 4}
    assert route(tasks=(toy(),), **options).measure(lab())[0].details["constant_output"] is False


@pytest.mark.parametrize("visibility", list(Visibility))
def test_measuring_leaves_the_model_as_it_was_to_the_bit(visibility, route, toy, lab):
    subject = lab(visibility)
    before = {name: each.clone() for name, each in subject.model.state_dict().items()}
    route(tasks=(toy(),)).measure(subject)
    after = subject.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(each, after[name]) for name, each in before.items())
    assert not any(each.training for each in subject.model.modules())
    assert all(each.grad is None for each in subject.model.parameters())


def test_the_same_seed_gives_the_same_values(route, toy, lab):
    spec = toy(truth=0.7)
    torch.manual_seed(1)
    one = route(tasks=(spec,)).measure(lab())
    torch.manual_seed(2)
    assert route(tasks=(spec,)).measure(lab()) == one


def test_texts_that_were_cut_are_counted_over_all_splits(route, toy, lab, tokenizer):
    spec = toy()
    texts = [text for split in load_task(spec).splits.values() for text in split.texts]
    expected = sum(len(tokenizer.encode(text)) + 1 > 8 for text in texts)
    rows = route(tasks=(spec,), max_tokens=8).measure(lab())
    assert 0 < expected < len(texts)
    assert [each.details["truncated_texts"] for each in rows[:2]] == [expected] * 2
    assert route(tasks=(spec,)).measure(lab())[0].details["truncated_texts"] == 0


def test_every_run_can_be_measured(route, lab):
    assert route().refusal(lab(Visibility.FULL)) is None
    assert route().refusal(lab(Visibility.CAUSAL)) is None


def test_a_task_that_does_not_exist_is_told_before_training(route, toy, lab):
    route(tasks=(toy(),)).check(lab())
    with pytest.raises(UserError, match=r"no task is called 'clinc15'; did you mean 'clinc150'"):
        route(tasks=("mr", "clinc15")).check(lab())
