from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mlmclm.attention import Visibility
from mlmclm.evaluation.classification import FineTuning
from mlmclm.evaluation.classification.baselines import Outcome
from mlmclm.evaluation.classification.features import POOLINGS, Encoded
from mlmclm.evaluation.classification.fine_tuning import Classifier, _groups, share_of_peak
from mlmclm.models.presets import Knobs, build

QUICK = {"epochs": 1, "learning_rates": (1e-3,)}


@pytest.mark.parametrize("visibility", list(Visibility))
def test_a_task_that_a_word_decides_is_learnt(visibility, toy, lab):
    evaluator = FineTuning(
        tasks=(toy(train_size=400),), epochs=4, learning_rates=(1e-3,), batch_size=16
    )
    assert evaluator.measure(lab(visibility))[0].value > 0.9


def weights(classifier):
    return torch.cat([each.detach().flatten() for each in classifier.parameters()])


def test_a_fit_depends_on_its_seed_alone(toy, lab, material):
    model = lab(preset="bert-tiny", knobs=Knobs(dropout=0.3)).model
    found = material(toy())

    def fitted(seed, state):
        torch.manual_seed(state)
        return weights(FineTuning(**QUICK)._fit(model, found, 1e-3, seed))

    assert torch.equal(fitted(0, 1), fitted(0, 2))
    assert not torch.equal(fitted(0, 1), fitted(1, 1))


def test_a_fit_leaves_the_random_numbers_of_others_alone(toy, lab, material):
    found, model = material(toy()), lab(knobs=Knobs(dropout=0.1)).model
    before = torch.random.get_rng_state()
    FineTuning(**QUICK)._fit(model, found, 1e-3, 0)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_dropout_is_on_while_training(toy, lab, material):
    found = material(toy())
    plain, dropped = (
        weights(
            FineTuning(**QUICK)._fit(
                lab(preset="bert-tiny", knobs=Knobs(dropout=share)).model, found, 1e-3, 0
            )
        )
        for share in (0.0, 0.5)
    )
    assert not torch.equal(plain, dropped)


def test_a_class_is_predicted_with_dropout_off_and_in_the_order_of_the_texts(vocabulary):
    knobs = Knobs(dropout=0.5, initializer_range=0.2)
    model = build("bert-tiny", Visibility.FULL, vocabulary, 0, knobs)
    classifier = Classifier(model, POOLINGS.get("mean"), 5, seed=0).train()
    rng = torch.Generator().manual_seed(0)
    texts = [
        tuple(torch.randint(4, 97, (length,), generator=rng).tolist())
        for length in (9, 2, 7, 1, 8, 3, 5)
    ]
    together = classifier.predict(Encoded(tuple(texts), 0)).tolist()
    alone = [int(classifier.predict(Encoded((text,), 0))[0]) for text in texts]
    assert together == alone
    assert len(set(together)) > 1


def test_norms_and_biases_do_not_decay_and_no_weight_is_left_out(vocabulary):
    model = build("bert-tiny", Visibility.FULL, vocabulary, 0)
    classifier = Classifier(model, POOLINGS.get("mean"), 2, seed=0)
    decayed, plain = _groups(classifier)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    names = {id(each): name for name, each in classifier.named_parameters()}
    assert all(
        "bias" in names[id(each)] or "norm" in names[id(each)].lower() for each in plain["params"]
    )
    assert not any("bias" in names[id(each)] for each in decayed["params"])
    assert {id(each) for each in decayed["params"] + plain["params"]} == names.keys()


def test_the_learning_rate_goes_up_and_down_in_straight_lines():
    shares = [share_of_peak(step, 20) for step in range(20)]
    assert shares[:3] == [0.5, 1.0, 1.0]
    assert np.diff(shares[2:]) == pytest.approx([-1 / 18] * 17)
    assert shares[-1] == pytest.approx(1 / 18)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_short_fit_learns_at_each_step(steps):
    assert all(0 < share_of_peak(step, steps) <= 1 for step in range(steps))


def test_every_text_is_seen_once_an_epoch_in_a_new_order():
    encoded = Encoded(((5,),) * 10, 0)
    places = [p for b in FineTuning(epochs=3, batch_size=4)._steps(encoded, 0) for p in b]
    epochs = [places[start : start + 10] for start in (0, 10, 20)]
    assert [sorted(each) for each in epochs] == [list(range(10))] * 3
    assert epochs[0] != epochs[1] != epochs[2]


def test_the_rate_is_chosen_on_validation_and_only_that_one_is_tested(monkeypatch):
    answers = {0.1: {"validation": 0, "test": 1}, 0.2: {"validation": 1, "test": 0}}

    def fit(self, model, material, rate, seed):
        return SimpleNamespace(predict=lambda split: np.full(4, answers[rate][split]))

    monkeypatch.setattr(FineTuning, "_fit", fit)
    ones = SimpleNamespace(labels=(1, 1, 1, 1))
    material = SimpleNamespace(
        encoded={"validation": "validation", "test": "test"},
        splits={"validation": ones, "test": ones},
    )
    found = FineTuning(learning_rates=(0.1, 0.2))._one(None, material, 0)
    assert found == Outcome(accuracy=0.0, validation=1.0, chosen=0.2, constant=True)


def test_several_seeds_give_their_mean_and_each_value(monkeypatch):
    outcomes = [Outcome(0.5, 0.6, 1e-3, True), Outcome(0.9, 0.8, 3e-3, False)]
    seeds = []

    def one(self, model, material, seed):
        seeds.append(seed)
        return outcomes[len(seeds) - 1]

    monkeypatch.setattr(FineTuning, "_one", one)
    evaluator = FineTuning(seeds=2)
    found, details = evaluator.outcome(None, None, SimpleNamespace(seed=0))
    assert found == Outcome(pytest.approx(0.7), pytest.approx(0.7), 1e-3, constant=False)
    assert details == {"accuracies": [0.5, 0.9], "learning_rates": [1e-3, 3e-3]}
    assert len(set(seeds)) == 2
    assert "mean of 2 fine-tuning seeds" in evaluator.method
