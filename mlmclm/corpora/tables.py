"""Tables of text from local files and from the Hugging Face hub, read by ``datasets``.

Both corpora and labelled tasks come in through here, so that both know the same formats and give
the same messages.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlmclm.errors import UserError, nearest
from mlmclm.hub import asked_once

if TYPE_CHECKING:
    from datasets import Dataset

FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
"""Suffix to the loader of ``datasets``; plain text is read here, to the byte."""
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
"""What a split may be called in a folder or on the hub."""


def read_text(path: Path) -> str:
    """Read a UTF-8 file, compressed (``.xz``) or not, line ends as they are.

    Raises:
        UserError: if it is missing, a folder, not UTF-8 (with the place) or has no text.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder; a file was expected")
    try:
        content = path.read_bytes()
        content = lzma.decompress(content) if path.suffix.lower() == ".xz" else content
    except (OSError, lzma.LZMAError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"{path} cannot be read: {reason}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: byte {error.start} is {content[error.start]:#04x}; "
            "convert it first"
        ) from error
    if not text.strip():
        raise UserError(f"{path} holds no text")
    return text


def format_of(path: Path) -> str:
    """Return the suffix that decides how a file is read, ``.xz`` left out."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".xz" else suffix


def read_table(path: Path) -> Dataset:
    """Read a ``.jsonl``, ``.csv`` or ``.parquet`` file.

    Raises:
        UserError: if the file is missing, of another kind, or not what its name says.
    """
    import datasets  # noqa: PLC0415 - a second to import, needed for tables only
    from datasets.exceptions import DatasetGenerationError  # noqa: PLC0415

    suffix = format_of(path)
    if suffix not in FORMATS:
        known = ", ".join([".txt", *FORMATS])
        raise UserError(f"{path} has the suffix {suffix!r}; known are {known}")
    if FORMATS[suffix] != "parquet":
        read_text(path)
    elif not path.is_file():
        raise UserError(f"there is no file {path}")
    datasets.disable_progress_bars()
    options = {"keep_default_na": False} if suffix == ".csv" else {}  # "NA" and "null" are words
    try:
        return datasets.load_dataset(
            FORMATS[suffix], data_files=str(path), split="train", keep_in_memory=True, **options
        )
    except (DatasetGenerationError, ValueError, OSError) as error:
        cause = error.__cause__ or error
        raise UserError(f"{path} is not valid {suffix[1:]}: {one_line(cause)}") from error


def one_line(error: BaseException) -> str:
    """Return the first two lines of an error as one; the second may list what there is."""
    return " ".join(str(error).strip().splitlines()[:2]) or type(error).__name__


def split_files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder that are called after a split.

    Raises:
        UserError: if there is none for training.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        stem = path.name.split(".")[0]
        for split, names in SPLIT_NAMES.items():
            if stem in names and (format_of(path) in FORMATS or format_of(path) == ".txt"):
                found.setdefault(split, path)
    if "train" not in found:
        raise UserError(
            f"the folder {folder} holds no train.txt, .jsonl, .csv or .parquet "
            f"(it holds {_listing(folder)})"
        )
    return found


def _listing(folder: Path) -> str:
    return ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"


def hub_splits(name: str, offline_hint: str) -> Mapping[str, Dataset]:
    """Fetch a data set of the hub, ``NAME`` or ``NAME:CONFIG``, and sort its splits.

    Args:
        name: of the set and, after a colon, of its configuration.
        offline_hint: what works without a network, for the message.

    Raises:
        UserError: if it cannot be reached or does not exist.
    """
    must_not_be_a_path(name)
    import datasets  # noqa: PLC0415
    import huggingface_hub.errors as hub  # noqa: PLC0415
    from datasets.exceptions import DatasetNotFoundError  # noqa: PLC0415

    identity, _, config = name.partition(":")
    datasets.disable_progress_bars()
    with asked_once() as silence:
        try:
            found = datasets.load_dataset(identity, config or None)
        except (
            DatasetNotFoundError,
            hub.HfHubHTTPError,
            hub.OfflineModeIsEnabled,
            OSError,
            RuntimeError,
            ValueError,
        ) as error:
            raise UserError(
                f"the data set {name!r} could not be had from the Hugging Face hub "
                f"({silence or one_line(error)}); {offline_hint}"
            ) from error
    splits = {
        split: found[each]
        for split, names in SPLIT_NAMES.items()
        for each in names
        if each in found
    }
    if "train" not in splits:
        raise UserError(f"the data set {name!r} has no training split (it has {', '.join(found)})")
    return splits


def must_not_be_a_path(name: str) -> None:
    """Refuse what cannot be a hub id: it is a path, and nothing is there.

    Raises:
        UserError: if it is absolute, begins with a dot or has several slashes.
    """
    if Path(name).is_absolute() or name.startswith(".") or "\\" in name or name.count("/") > 1:
        raise UserError(f"there is no file or folder {name}")


def text_column_of(table: Dataset, wanted: str, usual: Sequence[str], source: str) -> str:
    """Return the name of a column as `column_of` does, or else of the only one that holds text.

    Raises:
        UserError: if there is none, with the columns that there are.
    """
    kinds = table.features.items()
    strings = [name for name, kind in kinds if getattr(kind, "dtype", "").endswith("string")]
    return column_of(table, wanted, (*usual, *strings) if len(strings) == 1 else usual, source)


def column_of(table: Dataset, wanted: str, usual: Sequence[str], source: str) -> str:
    """Return the name of a column: the wanted one, or a usual one.

    Raises:
        UserError: if there is none, with the columns that there are.
    """
    columns = table.column_names
    if wanted:
        if wanted not in columns:
            raise UserError(
                f"{source} has no column {wanted!r}{nearest(wanted, columns)} "
                f"(it has {', '.join(columns)})"
            )
        return wanted
    for name in usual:
        if name in columns:
            return name
    raise UserError(
        f"{source} has no column {' or '.join(map(repr, usual))} (it has {', '.join(columns)}); "
        f"name one, as in {source}:{columns[0]}"
    )


def texts_of(table: Dataset, column: str, source: str) -> Iterator[str]:
    """Yield a column as text.

    Raises:
        UserError: if a row has something else there.
    """
    for number, value in enumerate(table[column], 1):
        if not isinstance(value, str):
            raise UserError(f"{source}, row {number}: column {column!r} is {value!r}, not text")
        yield value


def path_and_columns(spec: str) -> tuple[str, list[str]]:
    """Split ``PATH:COLUMN:...``, where a drive letter's colon is part of the path."""
    if Path(spec).exists():
        return spec, []
    head, *columns = spec.split(":")
    if len(head) == 1 and columns and columns[0][:1] in ("/", "\\"):
        head, columns = f"{head}:{columns[0]}", columns[1:]
    return head, columns
