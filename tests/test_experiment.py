"""Experiment files: what they resolve to, and what a user reads where one is wrong."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from mlmclm import experiment as module
from mlmclm.errors import UserError
from mlmclm.evaluation import EVALUATORS, Evaluator
from mlmclm.experiment import Experiment, default_experiment, override, recipe
from mlmclm.models.presets import PRESETS
from mlmclm.objectives import OBJECTIVES, CausalLM, MaskedLM
from mlmclm.registry import Registry
from mlmclm.training.options import TrainingOptions

FILES = sorted((Path(__file__).parents[1] / "experiments").glob("*.toml"))

TEXT = """
seeds = [0, 1]
model = "mini"
[corpus]
block = 64
[budget]
tokens = 1_000
[training]
learning_rate = 1e-3
betas = [0.9, 0.95]
[evaluation]
metrics = ["likelihood", "accuracy"]
[evaluation.accuracy]
tasks = ["mr"]
[arms.masked]
objective = {name = "mlm", mask_rate = 0.3}
training.learning_rate = 2e-3
[arms.causal]
objective = {name = "clm"}
"""


class Nothing(Evaluator):
    """Measures nothing."""

    def refusal(self, subject):
        return None

    def measure(self, subject):
        return []


@dataclass(frozen=True, kw_only=True)
class Bits(Nothing):
    group: ClassVar[str] = "likelihood"
    stride: int | None = None


@dataclass(frozen=True, kw_only=True)
class Accuracy(Nothing):
    group: ClassVar[str] = "classification"
    tasks: tuple[str, ...] = ("mr", "subj")


@pytest.fixture(autouse=True)
def evaluators(monkeypatch):
    registry = Registry("metric")
    registry.register("bits")(Bits)
    registry.register("accuracy")(Accuracy)
    monkeypatch.setattr(module, "EVALUATORS", registry)


@pytest.fixture
def recipes(monkeypatch):
    """Recipes of this test's own, whatever the package holds."""
    found = {
        "default": {"clip": 0.5, "weight_decay": 0.2},
        "mini": {"mlm": {"clip": 0.25, "learning_rate": 9.0, "batch_size": 4}},
    }
    monkeypatch.setattr(module, "_packaged", lambda name: found)


def load(text=TEXT, *overrides):
    return Experiment.from_mapping({"name": "x", **tomllib.loads(text)}, "x.toml", overrides)


def message(text, *overrides):
    with pytest.raises(UserError) as caught:
        load(text, *overrides)
    return str(caught.value)


def test_an_arm_has_the_shared_values_and_its_own_over_them(recipes):
    masked, causal = load().arms()
    assert masked.objective == MaskedLM(mask_rate=0.3)
    assert causal.objective == CausalLM()
    assert (masked.training.learning_rate, causal.training.learning_rate) == (2e-3, 1e-3)
    assert masked.model == causal.model == "mini"
    assert masked.corpus.block == 64
    assert masked.budget.tokens == 1000
    assert masked.evaluators == (Accuracy(tasks=("mr",)), Bits())


def test_a_recipe_lies_under_the_file_and_over_the_default(recipes):
    masked, causal = load().arms()
    assert masked.training.batch_size == 4
    assert (masked.training.clip, causal.training.clip) == (0.25, 0.5)
    assert masked.training.weight_decay == causal.training.weight_decay == 0.2
    assert causal.training.batch_size == TrainingOptions().batch_size


def test_every_recipe_of_the_package_is_of_known_names_and_fits():
    for model, tables in module._packaged("recipes.toml").items():
        if model != "default":
            assert model in PRESETS
            assert set(tables) <= set(OBJECTIVES.names())
    for model in PRESETS:
        for name in OBJECTIVES.names():
            text = (
                f"model = '{model}'\n[budget]\nsteps = 1\n[arms.a]\nobjective = {{name = '{name}'}}"
            )
            assert recipe(model, name).items() <= load(text).arms()[0].training.model_dump().items()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_experiment_of_the_repository_loads(path, monkeypatch):
    monkeypatch.undo()
    found = Experiment.load(path)
    assert found.name == tomllib.loads(path.read_text(encoding="utf-8")).get("name", path.stem)
    assert len(found.seeds) >= 3


def test_written_and_read_back_an_arm_is_the_same_and_has_the_same_hash():
    for arm in load().arms():
        again = load(arm.to_toml(seeds=[7]))
        assert again.arms() == [arm]
        assert again.arms()[0].config_hash == arm.config_hash
        assert again.seeds == (7,)


def test_every_real_evaluator_can_be_written_and_read_back(monkeypatch):
    monkeypatch.undo()
    (arm,) = default_experiment(objectives=["mlm"]).arms()
    assert [EVALUATORS.name_of(each) for each in arm.evaluators] == EVALUATORS.names()
    assert load(arm.to_toml()).arms() == [arm]


def test_the_hash_is_of_content_not_of_names_or_of_how_it_was_said(recipes):
    masked, causal = load().arms()
    renamed = TEXT.replace("arms.masked", "arms.other").replace("2e-3", "0.002")
    assert load('name = "y"\n' + renamed.replace("mlm", "mlm")).arms()[0].config_hash == (
        masked.config_hash
    )
    spelled = TEXT + "training = {clip = 0.5}\n"
    assert load(spelled).arms()[1].config_hash == causal.config_hash
    for change in ("training.learning_rate=3e-3", "objective.mask_rate=0.31", "corpus.block=65"):
        assert load(TEXT, f"arms.masked.{change}").arms()[0].config_hash != masked.config_hash


def test_the_classic_pair_follows_who_sees_whom():
    masked, causal = load('pair = "classic"' + TEXT).arms()
    assert (masked.model, causal.model) == ("bert-mini", "gpt2-mini")
    text = 'pair = "classic"' + TEXT.replace('"mini"', '"bert-mini"')
    assert 'pair = "classic" needs a size as the model (tiny, mini' in message(text)


def test_an_arms_own_budget_replaces_the_shared_one():
    masked, causal = load(TEXT, "arms.masked.budget.steps=5").arms()
    assert (masked.budget.unit, causal.budget.unit) == ("steps", "tokens")


def test_a_search_runs_every_arm_with_every_combination():
    search = (
        '[search]\n"training.weight_decay" = [0.0, 0.1]\ntraining.schedule = ["linear", "cosine"]'
    )
    arms = load(TEXT + search).arms()
    assert len(arms) == 8
    assert arms[1].name == "masked-weight_decay=0.0-schedule=cosine"
    assert (arms[1].training.weight_decay, arms[1].training.schedule) == (0.0, "cosine")
    assert len({arm.config_hash for arm in arms}) == len({arm.name for arm in arms}) == 8


def test_a_search_below_an_arm_is_for_that_arm_alone():
    search = '[search]\n"arms.masked.objective.mask_rate" = [0.15, 0.4]'
    arms = load(TEXT + search).arms()
    assert [arm.name for arm in arms] == ["masked-mask_rate=0.15", "masked-mask_rate=0.4", "causal"]
    assert arms[1].objective == MaskedLM(mask_rate=0.4)


def test_the_default_experiment_has_an_arm_for_each_objective(monkeypatch):
    monkeypatch.undo()
    found = default_experiment(seeds=2, pair="classic", overrides=["budget.steps=3"])
    assert [(arm.name, arm.model) for arm in found.arms()] == [
        ("mlm", "bert-tiny"),
        ("clm", "gpt2-tiny"),
    ]
    assert (found.name, found.seeds) == ("tiny-classic", (0, 1))
    assert found.arms()[0].budget.steps == 3
    assert (
        default_experiment().arms()[0].training
        == load("[budget]\nsteps = 1\n[arms.a]\nobjective = {name = 'mlm'}").arms()[0].training
    )


def test_a_file_is_called_by_its_stem_unless_it_says_otherwise(tmp_path):
    path = tmp_path / "stem.toml"
    path.write_text(TEXT, encoding="utf-8")
    assert Experiment.load(path).name == "stem"
    assert Experiment.load(path, ["name=other", "seeds=[5]"]).seeds == (5,)


def test_all_metrics_are_meant_where_none_is_named():
    named = 'metrics = ["likelihood", "accuracy"]'
    assert load(TEXT.replace(named, "")).arms()[0].evaluators == (Accuracy(tasks=("mr",)), Bits())
    only = load(TEXT.replace(named, 'metrics = ["bits"]')).arms()[0]
    assert only.evaluators == (Bits(),)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("seeds", "seed", "unknown key seed; did you mean 'seeds'?"),
        ("[0, 1]", "[1, 1]", "seeds: no seed may be given twice, as in [1, 1]"),
        ("[0, 1]", "[]", "seeds must be at least 1 values, not []"),
        ("[0, 1]", "3", "seeds must be a list, not 3"),
        ('"mini"', '"mimi"', "model: no model is called 'mimi'; did you mean 'mini'?"),
        ("block = 64", "block = 1", "corpus.block must be at least 2, not 1"),
        ("[corpus]\nblock = 64", "corpus = 'x'", "corpus must be a table, not 'x'"),
        ("tokens =", "token =", "unknown key budget.token; did you mean 'tokens'?"),
        ("tokens =", "steps = 1\ntokens =", "budget: a budget is given in exactly one of"),
        ("learning_rate = 1e-3", "clip = '1'", "training.clip must be a number, not '1'"),
        ("0.95]", "1.5]", "training.betas[1] must be below 1, not 1.5"),
        ("2e-3", "-1", "arms.masked.training.learning_rate must be above 0, not -1"),
        (
            "training.learning_rate = 2e",
            "training.learning_rat = 2e",
            "unknown key arms.masked.training.learning_rat; did you mean 'learning_rate'?",
        ),
        (
            '"mlm"',
            '"mml"',
            "arms.masked.objective: no objective is called 'mml'; did you mean 'mlm'",
        ),
        ("mask_rate", "mask_rat", "unknown key arms.masked.objective.mask_rat; did you mean"),
        ("0.3}", "'0.3'}", "arms.masked.objective.mask_rate must be a number, not '0.3'"),
        ("0.3}", "15}", "arms.masked.objective.mask_rate must be at most 1, not 15"),
        ('{name = "clm"}', '"clm"', "arms.causal.objective must be a table, not 'clm'"),
        ('{name = "clm"}', "{}", "arms.causal.objective.name is missing (known: clm, mlm"),
        ('objective = {name = "clm"}', "model = 'mini'", "arms.causal.objective is missing"),
        ("arms.causal", "arms.'a/b'", "arms.'a/b' must be a name of letters, digits"),
        ('["likelihood', '["likelihod', "evaluation.metrics: no metric is called 'likelihod'; did"),
        (
            "evaluation.accuracy",
            "evaluation.acuracy",
            "unknown key evaluation.acuracy; did you mean",
        ),
        ("tasks =", "task =", "unknown key evaluation.accuracy.task; did you mean 'tasks'?"),
        ('tasks = ["mr"]', "tasks = 3", "evaluation.accuracy.tasks must be a list, not 3"),
    ],
)
def test_what_is_wrong_is_said_with_file_key_and_value(old, new, expected):
    assert old in TEXT
    assert message(TEXT.replace(old, new)).startswith(f"x.toml: {expected}")


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ('"training.clip" = 1.0', "search.training.clip must be a list of values, not 1.0"),
        ('"training.clip" = [-1.0]', "search.training.clip must be above 0, not -1.0"),
        ('"training.clp" = [1.0]', "unknown key search.training.clp; did you mean 'clip'?"),
        ('"arms.b.training.clip" = [1.0]', "search.arms.b.training.clip belongs to no arm"),
    ],
)
def test_a_wrong_search_is_said_to_be_in_the_search(search, expected):
    assert message(f"{TEXT}\n[search]\n{search}").startswith(f"x.toml: {expected}")


def test_arms_are_asked_for():
    assert message("[budget]\nsteps = 1") == "x.toml: arms is missing"
    assert message("[arms]").startswith("x.toml: arms is empty; name one")


def test_an_override_that_an_arm_or_the_search_would_hide_is_refused():
    mapping = tomllib.loads(TEXT + '[search]\n"training.clip" = [1.0]')
    with pytest.raises(UserError, match=r"use arms\.masked\.training\.learning_rate"):
        override(mapping, "training.learning_rate=1")
    with pytest.raises(UserError, match=r"where search\.training\.clip is given"):
        override(mapping, "training.clip=2.0")
    changed = override(mapping, "budget.steps=2")
    assert changed["budget"] == {"steps": 2}
    own = override(changed, "arms.causal.budget.tokens=9")
    with pytest.raises(UserError, match=r"use arms\.causal\.budget\.steps"):
        override(own, "budget.steps=3")


def test_an_override_of_a_broken_file_leaves_it_to_the_check_of_the_file():
    assert message("arms = 3", "model=tiny") == "x.toml: arms must be a table, not 3"


def test_the_smoke_experiment_is_a_small_default_with_no_more_seeds_than_asked_for(monkeypatch):
    monkeypatch.undo()
    found = default_experiment(smoke=True)
    assert found.name == "tiny-smoke"
    assert found.arms()[0].budget.steps <= 20
    assert len(found.seeds) == 2
    assert len(default_experiment(seeds=1, smoke=True).seeds) == 1
    assert (
        default_experiment(smoke=True, overrides=["budget.tokens=5"]).arms()[0].budget.tokens == 5
    )
    with pytest.raises(UserError, match="at least 1 seed, not 0"):
        default_experiment(seeds=0)
