"""What there is by name: objectives, models, corpora, tasks and metrics, each in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mlmclm.corpora import BUNDLED
from mlmclm.corpora.labelled import TASKS
from mlmclm.evaluation import EVALUATORS
from mlmclm.models.presets import PRESETS, Size
from mlmclm.objectives import OBJECTIVES

Entry = tuple[str, str]


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]


def _objectives() -> Iterator[Entry]:
    for name in OBJECTIVES.names():
        yield name, _first_line(OBJECTIVES.get(name))


def _models() -> Iterator[Entry]:
    families = {"": "rotary (EuroBERT / LLaMA)", "bert-": "BERT", "gpt2-": "GPT-2"}
    for name, (_, size) in PRESETS.items():
        prefix = name[: name.find("-") + 1]
        yield name, f"{families[prefix]}, {_shape(size)}"
    yield "config.json", "any Hugging Face config file or its folder"
    yield "hub id", "architecture only, with fresh weights"


def _shape(size: Size) -> str:
    return f"{size.layers} layers, {size.width} wide, {size.heads} heads"


def _corpora() -> Iterator[Entry]:
    yield from BUNDLED.items()
    yield "PATH", "a .txt, .jsonl, .csv or .parquet file, or a folder of train, validation, test"
    yield (
        "NAME:CONFIG",
        "a data set of the Hugging Face hub, such as Salesforce/wikitext:wikitext-2-raw-v1",
    )


def _tasks() -> Iterator[Entry]:
    for name in TASKS.names():
        yield name, _first_line(TASKS.get(name))
    yield "NAME=FOLDER", "train, validation and test as .jsonl, .csv or .parquet"
    yield "NAME:CONFIG", "a data set of the Hugging Face hub, such as nyu-mll/glue:sst2"


def _metrics() -> Iterator[Entry]:
    for name in EVALUATORS.names():
        evaluator = EVALUATORS.get(name)
        yield name, f"{evaluator.group}: {_first_line(evaluator)}"


KINDS: dict[str, Callable[[], Iterator[Entry]]] = {
    "objectives": _objectives,
    "models": _models,
    "corpora": _corpora,
    "tasks": _tasks,
    "metrics": _metrics,
}


def entries(kind: str) -> Iterator[Entry]:
    """Yield name and summary of everything of a kind."""
    return KINDS[kind]()
