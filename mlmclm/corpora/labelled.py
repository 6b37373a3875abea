"""Labelled sentences: bundled sets, sets of the hub, and local folders in the same formats.

Rows keep the order of their source, and several sources are sorted by label: shuffle before taking
a part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from mlmclm import seeds
from mlmclm.corpora import bundled, tables
from mlmclm.corpora.wikitext import lines_of
from mlmclm.errors import UserError, unknown
from mlmclm.provenance import content_hash
from mlmclm.registry import Registry

if TYPE_CHECKING:
    from datasets import Dataset

TEXT, LABEL = ("text", "sentence"), ("label", "coarse_label", "intent", "category")
Pair = tuple[str, str]


@dataclass(frozen=True)
class LabelledSplit:
    """Texts and the numbers of their labels."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class LabelledTask:
    """A classification data set."""

    name: str
    labels: tuple[str, ...]
    """Names, in alphabetical order; a label's number is its place here."""
    splits: Mapping[str, LabelledSplit]
    """``train``, ``validation`` and ``test``."""

    @cached_property
    def hash(self) -> str:
        """Hash of all texts and labels."""
        splits = {name: [split.texts, split.labels] for name, split in self.splits.items()}
        return content_hash({"labels": self.labels, "splits": splits})


Source = Callable[[], LabelledTask]
TASKS: Registry[Source] = Registry("task")


@lru_cache(maxsize=16)
def load_task(spec: str) -> LabelledTask:
    """Return a task by name, folder or hub id.

    Args:
        spec: a registered name; ``NAME=PATH``, a folder with train, validation and test (or one
            file), optionally ``NAME=PATH:TEXTCOLUMN:LABELCOLUMN``; or a hub set ``NAME:CONFIG``.

    Where there is no validation split, a seeded tenth of the training rows is held out; where there
    is no test split with labels, the validation split is the test and the tenth is validation.

    Raises:
        UserError: if there is no such set, or a column, a label or text is missing in it.
    """
    name, equals, place = spec.partition("=")
    if name in BUNDLED_TASKS and place:
        raise UserError(f"{name} is bundled: --task {spec} needs another name")
    if name and place:
        return _local(name, place)
    if spec in TASKS.names():
        return TASKS.get(spec)()
    if "/" in spec and not equals and not Path(spec).exists():
        return _hub(spec, spec, TEXT, LABEL)
    if equals or Path(spec).exists():
        raise UserError(f"a local task is given as --task NAME=PATH, not {spec!r}")
    raise unknown("task", spec, TASKS.names())


# --- the known sets -----------------------------------------------------------------------------


def _register_bundled(name: str, summary: str) -> None:
    def source() -> LabelledTask:
        parts = {
            split: [
                (row["text"], row["label"])
                for row in map(json.loads, lines_of(bundled.read(f"{name}/{split}.jsonl")))
            ]
            for split in tables.SPLIT_NAMES
        }
        return _task(name, parts, name)

    source.__doc__ = f"{summary} (bundled)"
    TASKS.register(name)(source)


def _register_hub(name: str, hub: str, text: str, label: str, summary: str) -> None:
    def source() -> LabelledTask:
        return _hub(name, hub, (text,), (label,))

    source.__doc__ = f"{summary} (hub: {hub}, or --task {name}=FOLDER)"
    TASKS.register(name)(source)


_register_bundled("mr", "film reviews, positive or negative")
_register_bundled("subj", "sentences about films, subjective or objective")
_register_bundled("clinc150", "requests to an assistant, 150 intents")
_register_bundled("banking77", "questions to a bank, 77 intents")
_register_hub("sst2", "nyu-mll/glue:sst2", "sentence", "label", "film reviews, two classes")
_register_hub("trec", "CogComp/trec", "text", "coarse_label", "questions, 6 kinds of answer")
_register_hub("cola", "nyu-mll/glue:cola", "sentence", "label", "acceptable or not")


# --- reading ------------------------------------------------------------------------------------


def _pairs(
    table: Dataset, text: Sequence[str], label: Sequence[str], wanted: Sequence[str], source: str
) -> Iterator[Pair]:
    """Yield text and label name; rows whose label is hidden (GLUE's -1) are left out.

    Where labels have no names, -1 is hidden only if there is nothing else: local sets use -1 and 1.
    """
    first, second = [*wanted, "", ""][:2]
    texts = tables.column_of(table, first, text, source)
    labels = tables.column_of(table, second, label, source)
    names = getattr(table.features[labels], "names", None)
    values = list(table[labels])
    may_hide = names is not None or set(values) == {-1}
    for each, value in zip(tables.texts_of(table, texts, source), values, strict=True):
        if value is None or value == "":
            raise UserError(f"{source}: a row has no {labels!r}: {each[:60]!r}")
        if not (may_hide and value == -1):
            yield each, names[value] if names else str(value)


def _local(name: str, place: str) -> LabelledTask:
    path, columns = tables.path_and_columns(place)
    if Path(path).is_dir():
        files = tables.split_files(Path(path))
    elif Path(path).is_file():
        files = {"train": Path(path)}
    else:
        raise UserError(f"task {name}: there is no file or folder {path}")
    parts = {
        split: list(_pairs(tables.read_table(file), TEXT, LABEL, columns, str(file)))
        for split, file in files.items()
    }
    return _task(name, parts, path)


def _hub(name: str, hub: str, text: Sequence[str], label: Sequence[str]) -> LabelledTask:
    short = name.rpartition("/")[-1].partition(":")[0]
    hint = (
        f"without a network there are: {', '.join(BUNDLED_TASKS)}, "
        f"and local data as --task {short}=FOLDER"
    )
    parts = {
        split: list(_pairs(table, text, label, (), hub))
        for split, table in tables.hub_splits(hub, hint).items()
    }
    return _task(name, parts, hub)


BUNDLED_TASKS = ("mr", "subj", "clinc150", "banking77")


# --- making sure --------------------------------------------------------------------------------


def _task(name: str, parts: Mapping[str, list[Pair]], source: str) -> LabelledTask:
    """Complete the splits and check them."""
    parts = _complete({split: pairs for split, pairs in parts.items() if pairs}, source)
    labels = tuple(sorted({label for _, label in parts["train"]}))
    if len(labels) < 2:
        raise UserError(f"{source}: training rows have one label only, {labels[0]!r}")
    numbers = {label: number for number, label in enumerate(labels)}
    splits = {split: _split(pairs, numbers, f"{source}, {split}") for split, pairs in parts.items()}
    return LabelledTask(name, labels, splits)


def _complete(parts: dict[str, list[Pair]], source: str) -> dict[str, list[Pair]]:
    if "train" not in parts:
        raise UserError(f"{source} has no training rows")
    if "test" not in parts and "validation" in parts:
        parts = {"train": parts["train"], "test": parts["validation"]}
    missing = [split for split in ("test", "validation") if split not in parts]
    for split in missing:
        parts = {**parts, **_held_out(parts["train"], split, source)}
    return parts


def _held_out(pairs: list[Pair], split: str, source: str) -> dict[str, list[Pair]]:
    if len(pairs) < 20:
        raise UserError(f"{source} has {len(pairs)} training rows, too few to hold out {split}")
    order = torch.randperm(len(pairs), generator=seeds.generator(0, "held out", split)).tolist()
    count = len(pairs) // 10
    return {
        split: [pairs[place] for place in sorted(order[:count])],
        "train": [pairs[place] for place in sorted(order[count:])],
    }


def _split(pairs: list[Pair], numbers: Mapping[str, int], source: str) -> LabelledSplit:
    for text, label in pairs:
        if not text.strip():
            raise UserError(f"{source}: a text with the label {label!r} is empty")
        if label not in numbers:
            raise UserError(f"{source}: the label {label!r} does not occur in training")
    return LabelledSplit(
        tuple(text for text, _ in pairs), tuple(numbers[label] for _, label in pairs)
    )
