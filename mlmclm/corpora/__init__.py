"""Text to pretrain on: the bundled WikiText-2, local files, data sets of the hub."""

from __future__ import annotations

from pathlib import Path

from mlmclm.corpora import bundled, tables
from mlmclm.corpora.base import Corpus, words_in
from mlmclm.corpora.bundled import BUNDLED
from mlmclm.corpora.wikitext import articles
from mlmclm.errors import UserError, unknown

__all__ = ["BUNDLED", "Corpus", "articles", "load_corpus", "words_in"]

HELD_OUT = 20
"""Where no split is given, one document in 20 is for validation and one for test."""


def load_corpus(name: str) -> Corpus:
    """Return a corpus by name, path or hub id.

    Args:
        name: ``wikitext-2``; a ``.txt``, ``.jsonl``, ``.csv`` or ``.parquet`` file; a folder with
            files called train, validation (valid, dev) and test; or a hub data set ``NAME`` or
            ``NAME:CONFIG``. ``:COLUMN`` after a path names the column of the text.

    A file without splits is cut by whole documents: of every 20, the 10th is for validation and
    the 20th for test. Fewer than 20 documents are cut into lines first. Documents of a table are
    its rows; those of a text file are its WikiText articles, or else the whole file.

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
    column = tables.column_of(table, column, ("text",), str(path))
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
    return _with_all_splits(Corpus(folder.name, splits), str(folder))


def _from_file(path: Path, column: str) -> Corpus:
    documents = _documents(path, column)
    if len(documents) < HELD_OUT:
        documents = tuple(
            line for document in documents for line in document.splitlines(keepends=True)
        )
    return _cut(path.name, documents, str(path))


def _cut(name: str, documents: tuple[str, ...], source: str) -> Corpus:
    if len(documents) < HELD_OUT:
        raise UserError(
            f"{source} has {len(documents)} documents or lines, too few to cut validation and test "
            f"from (at least {HELD_OUT}); give a folder with train, validation and test instead"
        )
    splits: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for number, document in enumerate(documents, 1):
        held = number % HELD_OUT
        split = "test" if held == 0 else "validation" if held == HELD_OUT // 2 else "train"
        splits[split].append(document)
    return Corpus(name, {split: tuple(parts) for split, parts in splits.items()})


def _with_all_splits(corpus: Corpus, source: str) -> Corpus:
    missing = [split for split in tables.SPLIT_NAMES if split not in corpus.splits]
    if missing:
        raise UserError(
            f"{source} has no {' and no '.join(missing)} split; add it, or give one file, which is "
            "cut into all three"
        )
    return corpus


def _from_hub(name: str) -> Corpus:
    offline = ", ".join(BUNDLED)
    hint = f"without a network there are: {offline}, and local files or folders"
    splits = {}
    for split, table in tables.hub_splits(name, hint).items():
        column = tables.column_of(table, "", ("text", "content", "sentence"), name)
        splits[split] = _joined(tuple(tables.texts_of(table, column, name)), name)
    return _with_all_splits(Corpus(name, splits), name)
