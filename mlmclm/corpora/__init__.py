"""Text to pretrain on: the bundled WikiText-2, local files, data sets of the hub."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlmclm.corpora import bundled, tables
from mlmclm.corpora.base import Corpus, words_in
from mlmclm.corpora.bundled import BUNDLED
from mlmclm.corpora.wikitext import articles, lines_of
from mlmclm.errors import UserError, unknown

__all__ = ["BUNDLED", "Corpus", "articles", "lines_of", "load_corpus", "words_in"]

HELD_OUT = 20
"""Of every 20 documents, one is for a validation and one for a test split that is not given."""
PLACES = {"validation": HELD_OUT // 2, "test": 0}
"""Which one: a document's number, from 1, modulo `HELD_OUT`."""
logger = logging.getLogger(__name__)


def load_corpus(name: str) -> Corpus:
    """Return a corpus by name, path or hub id.

    Args:
        name: ``wikitext-2``; a ``.txt``, ``.jsonl``, ``.csv`` or ``.parquet`` file; a folder with
            files called train, validation (valid, dev) and test; or a hub data set ``NAME`` or
            ``NAME:CONFIG``. ``:COLUMN`` after a path names the column of the text.

    A split that is not given (both, for a file) is cut from training by whole documents: of every
    20, the 10th is for validation and the 20th for test. Fewer than 20 documents are cut into lines
    first. Documents of a table are its rows; those of a text file are its WikiText articles, or
    else the whole file.

    Raises:
        UserError: if there is no such corpus, or what there is cannot be used.
    """
    if name in BUNDLED:
        splits = {
            split: articles(bundled.read(f"{name}/{file}"))
            for split, file in bundled.WIKITEXT_FILES.items()
        }
        return Corpus(name, splits)
    path, columns = tables.path_and_columns(name)
    column = columns[0] if columns else ""
    if Path(path).is_dir():
        return _from_folder(Path(path), column)
    if Path(path).is_file():
        return _from_file(Path(path), column)
    if Path(path).suffix in (".txt", *tables.FORMATS):
        raise UserError(f"there is no file {path}")
    if "/" in name:
        return _from_hub(name)
    raise unknown("corpus", name, BUNDLED)


def _documents(path: Path, column: str) -> tuple[str, ...]:
    if tables.format_of(path) == ".txt":
        return articles(tables.read_text(path))
    table = tables.read_table(path)
    column = tables.text_column_of(table, column, ("text",), str(path))
    return _joined(tuple(tables.texts_of(table, column, str(path))), str(path))


def _joined(rows: tuple[str, ...], source: str) -> tuple[str, ...]:
    """Return rows as documents; WikiText on the hub comes a line a row and is put together."""
    if not any(row.strip() for row in rows):
        raise UserError(f"{source} holds no text")
    lines = [row if row.endswith("\n") else row + "\n" for row in rows]
    together = articles("".join(lines))
    return together if len(together) > 1 else tuple(row for row in rows if row.strip())


def _from_folder(folder: Path, column: str) -> Corpus:
    files = tables.split_files(folder)
    splits = {split: _documents(path, column) for split, path in files.items()}
    return _with_all_splits(folder.name, splits, str(folder))


def _from_file(path: Path, column: str) -> Corpus:
    return _with_all_splits(path.name, {"train": _documents(path, column)}, str(path))


def _with_all_splits(name: str, splits: Mapping[str, tuple[str, ...]], source: str) -> Corpus:
    missing = [split for split in PLACES if split not in splits]
    if not missing:
        return Corpus(name, splits)
    logger.info("%s: %s cut from training", source, " and ".join(missing))
    return Corpus(name, {**splits, **_cut(splits["train"], missing, source)})


def _cut(
    documents: Sequence[str], missing: Sequence[str], source: str
) -> dict[str, tuple[str, ...]]:
    """Return what is left for training, and the missing splits."""
    if len(documents) < HELD_OUT:
        documents = [line for document in documents for line in lines_of(document)]
    if len(documents) < HELD_OUT:
        raise UserError(
            f"{source} has {len(documents)} documents or lines, too few to cut "
            f"{' and '.join(missing)} from (at least {HELD_OUT}); give a folder with train, "
            "validation and test instead"
        )
    parts: dict[str, list[str]] = {split: [] for split in ("train", *missing)}
    split_at = {PLACES[split]: split for split in missing}
    for number, document in enumerate(documents, 1):
        parts[split_at.get(number % HELD_OUT, "train")].append(document)
    return {split: tuple(part) for split, part in parts.items()}


def _from_hub(name: str) -> Corpus:
    offline = ", ".join(BUNDLED)
    hint = f"without a network there are: {offline}, and local files or folders"
    splits = {}
    for split, table in tables.hub_splits(name, hint).items():
        column = tables.text_column_of(table, "", ("text", "content", "sentence"), name)
        splits[split] = _joined(tuple(tables.texts_of(table, column, name)), name)
    return _with_all_splits(name, splits, name)
