"""The experiment file: strict TOML to typed, resolved arms.

What is not given comes from the recipe of the model and objective (``recipes.toml``), and then from
the defaults of the options themselves. The order, later over earlier: recipe, the file's shared
tables, the arm's own tables, the point of the search.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from mlmclm import toml
from mlmclm.attention import Visibility
from mlmclm.checks import checked, shown
from mlmclm.contracts import Strict
from mlmclm.errors import UserError, nearest, unknown
from mlmclm.evaluation import EVALUATORS, Evaluator
from mlmclm.models.presets import PRESETS, SIZES
from mlmclm.objectives import OBJECTIVES, Objective
from mlmclm.provenance import content_hash
from mlmclm.training.options import BudgetOptions, TrainingOptions

BUDGET = {"tokens": 2_000_000}
"""Of an experiment that is made without a file: the same number of input tokens for each arm."""

Tables = dict[str, Any]
Given = Annotated[Tables, Field(default_factory=dict)]
"""Tables of a file that may be left out."""
KeyPath = tuple[str, ...]


class CorpusOptions(Strict):
    """What is read, and in which pieces. It is the same for all arms unless one says otherwise."""

    name: Annotated[str, Field(min_length=1)] = "wikitext-2"
    """A bundled corpus, a data set of the hub or a local file."""
    block: Annotated[int, Field(ge=2)] = 128
    """Tokens in a block."""
    tokenizer: str = ""
    """Of the hub or a ``tokenizer.json``; empty for a BPE trained on the training split."""


@dataclass(frozen=True, kw_only=True)
class ArmConfig:
    """One arm with nothing left open but its seed."""

    name: str
    model: str
    objective: Objective
    corpus: CorpusOptions
    budget: BudgetOptions
    training: TrainingOptions
    evaluators: tuple[Evaluator, ...]

    @property
    def content(self) -> Tables:
        """All that trained weights depend on beside the seed; no names, no evaluation."""
        return {
            "model": self.model,
            "corpus": self.corpus.model_dump(),
            "budget": self.budget.model_dump(exclude_none=True),
            "training": self.training.model_dump(exclude_none=True),
            "objective": {"name": OBJECTIVES.name_of(self.objective), **self.objective.options},
        }

    @property
    def config_hash(self) -> str:
        """Hash of `content`: equal for two arms that would train the same weights."""
        return content_hash(self.content)

    def to_toml(self, seeds: Sequence[int] = ()) -> str:
        """Return an experiment file that holds this arm, everything spelled out.

        Args:
            seeds: to name in the file; left out where empty.
        """
        tables = self.content
        options = {EVALUATORS.name_of(each): _given(asdict(each)) for each in self.evaluators}
        arm = {"objective": tables.pop("objective")}
        return toml.write(
            ({"seeds": list(seeds)} if seeds else {})
            | tables
            | {"evaluation": {"metrics": list(options), **options}}
            | {"arms": {self.name: arm}}
        )


class Experiment(Strict):
    """An experiment file, checked. `arms` are what it asks for."""

    name: str
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0, 1, 2)
    model: str = "tiny"
    """Preset, path of a ``config.json`` or hub id."""
    pair: Literal["rotary", "classic"] = "rotary"
    """``rotary``: the model is what all arms have. ``classic``: it is a size, which stands for
    BERT's architecture where everything is visible and for GPT-2's where not."""
    corpus: Given
    budget: Given
    training: Given
    evaluation: Given
    arm_tables: dict[str, Tables] = Field(alias="arms")
    search: Given
    """Dotted key to the values that each arm is run with, in all combinations."""

    @field_validator("seeds")
    @classmethod
    def _differ(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"no seed may be given twice, as in {list(seeds)}")
        return seeds

    @classmethod
    def load(cls, path: Path, overrides: Iterable[str] = ()) -> Experiment:
        """Read and check an experiment file; each override is a ``--set KEY=VALUE``.

        Raises:
            UserError: if it cannot be read, or for the first part of it that is wrong.
        """
        return cls.from_mapping({"name": path.stem, **toml.read(path)}, str(path), overrides)

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[str, Any], source: str, overrides: Iterable[str] = ()
    ) -> Experiment:
        """Check what a file of the name ``source`` holds, arms and all.

        Raises:
            UserError: for the first part that is wrong; each line begins with ``source``.
        """
        for text in overrides:
            mapping = override(mapping, text)
        try:
            experiment = checked(cls, mapping)
            experiment.arms()
        except UserError as error:
            lines = str(error).splitlines()
            raise UserError("\n".join(f"{source}: {line}" for line in lines)) from error
        return experiment

    def arms(self) -> list[ArmConfig]:
        """Return every arm at every point of the search, resolved.

        Raises:
            UserError: if one does not fit together.
        """
        if not self.arm_tables:
            raise UserError("arms is empty; name one, as in [arms.a] objective = {name = ...}")
        search = self._search()
        _refuse_foreign(search, self.arm_tables)
        return [
            _resolve(self, name, point, suffix)
            for name in self.arm_tables
            for point, suffix in _points(_search_of(name, search))
        ]

    def _search(self) -> dict[KeyPath, list[Any]]:
        found = {}
        for parts, values in toml.leaves(self.search):
            key = ".".join(parts)
            if not isinstance(values, list) or not values:
                raise UserError(f"search.{key} must be a list of values, not {shown(values)}")
            found[tuple(key.split("."))] = values
        return found


def override(mapping: Mapping[str, Any], text: str) -> Tables:
    """Return the tables of a file with one key set by a ``--set KEY=VALUE``.

    Raises:
        UserError: if it is no assignment, or if an arm or the search would hide the new value.
    """
    path, value = toml.assignment(text)
    place = path[:1] if path[0] == "budget" else path
    key = ".".join(path)
    for name, table in _table(mapping, "arms").items():
        if toml.has(table, place):
            raise UserError(
                f"--set {key} would not reach the arm {name!r}, which sets its own: "
                f"use arms.{name}.{key}"
            )
    if key in (".".join(parts) for parts, _ in toml.leaves(_table(mapping, "search"))):
        raise UserError(f"--set {key} has no effect where search.{key} is given: set that")
    return toml.assign(mapping, path, value)


def refuse_without_effect(overrides: Iterable[str], keys: str, why: str) -> None:
    """Refuse a ``--set`` of what a command does not look at, or has another option for.

    Args:
        overrides: ``KEY=VALUE`` each.
        keys: pattern of the dotted keys that are refused, as in `fnmatch`.
        why: end of the sentence that begins with "has no effect".

    Raises:
        UserError: for the first that fits the pattern.
    """
    for text in overrides:
        key = ".".join(toml.assignment(text)[0])
        if fnmatchcase(key, keys):
            raise UserError(f"--set {key} has no effect {why}")


def _table(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a table of a file not yet checked; whatever is no table has nothing in it."""
    value = mapping.get(key)
    return value if isinstance(value, Mapping) else {}


def default_experiment(
    model: str = "tiny",
    objectives: Sequence[str] = ("mlm", "clm"),
    seeds: int = 3,
    pair: str | None = None,
    overrides: Iterable[str] = (),
    *,
    smoke: bool = False,
) -> Experiment:
    """Return the experiment that is run where no file is given: one arm for each objective.

    Args:
        model: of all arms; with ``pair="classic"`` a size.
        objectives: names of arms and of what they are trained with.
        seeds: how many.
        pair: ``rotary`` (also for None) or ``classic``.
        overrides: ``KEY=VALUE`` each.
        smoke: at toy size (``smoke.toml``): it tests the machinery, its numbers mean nothing.

    Raises:
        UserError: for an unknown name or a wrong override.
    """
    if seeds < 1:
        raise UserError(f"an experiment needs at least 1 seed, not {seeds}")
    words = [Path(model).stem, *([pair] if pair else []), *(["smoke"] if smoke else [])]
    mapping: Tables = {
        "name": _file_name("-".join(words)),
        "seeds": list(range(seeds)),
        "model": model,
        "pair": pair or "rotary",
        "budget": BUDGET,
        "arms": {name: {"objective": {"name": name}} for name in objectives},
    }
    if smoke:
        mapping = toml.merge(mapping, _packaged("smoke.toml"))
        mapping["seeds"] = mapping["seeds"][:seeds]
    return Experiment.from_mapping(mapping, "default experiment", overrides)


@lru_cache
def _packaged(name: str) -> Tables:
    return tomllib.loads(resources.files("mlmclm").joinpath(name).read_text(encoding="utf-8"))


def recipe(model: str, objective: str) -> Tables:
    """Return the training options that were found best for a model and an objective.

    ``[default]`` fills what the recipe leaves out, and stands in where there is none.
    """
    recipes = _packaged("recipes.toml")
    return toml.merge(recipes["default"], recipes.get(model, {}).get(objective, {}))


def _given(options: Tables) -> Tables:
    return {key: value for key, value in options.items() if value is not None}


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.=+-]+", "_", text)


def _refuse_foreign(search: Mapping[KeyPath, Any], arms: Iterable[str]) -> None:
    for path in search:
        if path[0] == "arms" and (len(path) < 3 or path[1] not in arms):
            raise UserError(
                f"search.{'.'.join(path)} belongs to no arm (known: {', '.join(sorted(arms))})"
            )


def _search_of(name: str, search: Mapping[KeyPath, list[Any]]) -> dict[KeyPath, list[Any]]:
    """Return what is searched for one arm: the shared keys, and those below ``arms.NAME``."""
    own = {path[2:]: values for path, values in search.items() if path[:2] == ("arms", name)}
    return {path: values for path, values in search.items() if path[0] != "arms"} | own


def _points(search: Mapping[KeyPath, list[Any]]) -> list[tuple[dict[KeyPath, Any], str]]:
    """Return each combination, and what it adds to the name of an arm."""
    last = [path[-1] for path in search]
    labels = [path[-1] if last.count(path[-1]) == 1 else ".".join(path) for path in search]
    return [
        (
            dict(zip(search, values, strict=True)),
            "".join(f"-{label}={value}" for label, value in zip(labels, values, strict=True)),
        )
        for values in product(*search.values())
    ]


class ArmTables(Strict):
    """What an arm may say for itself. What it does not say comes from the file's shared tables."""

    objective: Tables
    model: str | None = None
    corpus: Given
    budget: Given
    training: Given
    evaluation: Given


def _resolve(
    experiment: Experiment, name: str, point: Mapping[KeyPath, Any], suffix: str
) -> ArmConfig:
    if _file_name(name) != name:
        raise UserError(f"arms.{name!r} must be a name of letters, digits and . _ - + =")
    own: Tables = experiment.arm_tables[name]
    for path, value in point.items():
        own = toml.assign(own, path, value)
    locate = _locator(name, own, point)
    tables = checked(ArmTables, own, f"arms.{name}")
    shared = {key: getattr(experiment, key) for key in ("corpus", "budget", "training")}
    given = toml.merge(shared, {key: getattr(tables, key) for key in shared if key in own})
    objective = _objective(tables.objective, locate)
    model = _paired(experiment.pair, tables.model or experiment.model, objective.visibility)
    _refuse_unknown_model(model, locate("model"))
    trained = toml.merge(recipe(model, OBJECTIVES.name_of(objective)), given["training"])
    return ArmConfig(
        name=_file_name(name + suffix),
        model=model,
        objective=objective,
        corpus=checked(CorpusOptions, given["corpus"], "corpus", locate),
        budget=checked(BudgetOptions, given["budget"], "budget", locate),
        training=checked(TrainingOptions, trained, "training", locate),
        evaluators=_evaluators(toml.merge(experiment.evaluation, tables.evaluation), locate),
    )


def _locator(name: str, own: Tables, point: Mapping[KeyPath, Any]) -> Callable[[str], str]:
    """Return what turns a path of the resolved arm into the place where it was written."""

    def locate(path: str) -> str:
        keys = tuple(path.partition("[")[0].split("."))
        if keys in point:
            return f"search.{path}"
        return f"arms.{name}.{path}" if toml.has(own, keys) else path

    return locate


def _objective(table: Tables, locate: Callable[[str], str]) -> Objective:
    path = locate("objective")
    if "name" not in table:
        raise UserError(f"{path}.name is missing (known: {', '.join(OBJECTIVES.names())})")
    name, options = table["name"], {key: table[key] for key in table if key != "name"}
    if name not in OBJECTIVES.names():
        raise UserError(f"{path}: {unknown('objective', str(name), OBJECTIVES.names())}")
    return checked(OBJECTIVES.get(name), options, "objective", locate)


def _paired(pair: str, model: str, visibility: Visibility) -> str:
    if pair == "rotary":
        return model
    if model not in SIZES:
        raise UserError(
            f'pair = "classic" needs a size as the model ({", ".join(SIZES)}), not {model!r}'
        )
    return ("bert-" if visibility is Visibility.FULL else "gpt2-") + model


def _refuse_unknown_model(model: str, place: str) -> None:
    """Refuse a typing error before anything is trained; `presets.make_config` judges the rest."""
    if model not in PRESETS and "/" not in model and not Path(model).exists():
        raise UserError(f"{place}: {unknown('model', model, PRESETS)}")


def _evaluators(table: Tables, locate: Callable[[str], str]) -> tuple[Evaluator, ...]:
    names = EVALUATORS.names()
    for key in table:
        if key not in (*names, "metrics"):
            hint = nearest(key, [*names, "metrics"])
            raise UserError(f"unknown key {locate(f'evaluation.{key}')}{hint}")
    options = {
        name: checked(EVALUATORS.get(name), table.get(name, {}), f"evaluation.{name}", locate)
        for name in names
    }
    return tuple(options[name] for name in metrics_named(table.get("metrics"), locate))


def metrics_named(asked: object = None, locate: Callable[[str], str] = str) -> list[str]:
    """Return the evaluators that a list of groups and names stands for; all of them for None.

    Raises:
        UserError: for what is no list, or a name that is neither.
    """
    names = EVALUATORS.names()
    groups = {name: EVALUATORS.get(name).group for name in names}
    known = {*names, *groups.values()}
    place = locate("evaluation.metrics")
    if asked is None:
        return names
    if not isinstance(asked, list | tuple):
        raise UserError(f"{place} must be a list of {', '.join(sorted(known))}, not {shown(asked)}")
    for each in asked:
        if each not in known:
            raise UserError(f"{place}: {unknown('metric', str(each), known)}")
    return [name for name in names if name in asked or groups[name] in asked]
