"""TOML files as plain tables: read, changed by one key, laid over one another, written.

The standard library reads TOML but does not write it; the writer here knows what tables of options
hold: text, numbers, truth values, lists and tables.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlmclm.errors import UserError

Table = Mapping[str, Any]

WHOLE = frozenset({"budget", "objective"})
"""Tables that replace one another as a whole: a budget in steps is no addition to one in tokens."""


def read(path: Path) -> dict[str, Any]:
    """Return the tables of a file, which may start with a byte-order mark.

    Raises:
        UserError: if it cannot be read, is not UTF-8 or is not TOML.
    """
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} must be UTF-8, but byte {error.start} is {error.object[error.start]:#04x}"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not TOML: {error}") from error


def merge(under: Table, over: Table) -> dict[str, Any]:
    """Return ``under`` with all that ``over`` gives laid over it, table by table (see `WHOLE`)."""
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both and key not in WHOLE else value
    return merged


def assignment(text: str) -> tuple[tuple[str, ...], Any]:
    """Parse ``training.learning_rate=1e-3`` into its path and its value.

    A value that is not TOML and has no quote or bracket is text, so that ``model=mini`` needs no
    quotes inside those of a shell.

    Raises:
        UserError: if it is not ``KEY=VALUE``.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals and value):
        raise UserError(f"--set takes KEY=VALUE, such as training.learning_rate=1e-3, not {text!r}")
    try:
        ((path, _),) = leaves(tomllib.loads(f"{key} = 0"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"--set {text}: {key} is not a TOML key ({error})") from error
    return path, _value_of(value)


def _value_of(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        if re.search(r"['\"\[\]{}\n]", text):
            raise UserError(f"--set: {text} is not a TOML value ({error})") from error
        return text


def leaves(table: Table) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the value of everything in a table that is not itself a table."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from (((key, *path), leaf) for path, leaf in leaves(value))
        else:
            yield (key,), value


def has(table: Table, path: tuple[str, ...]) -> bool:
    """Tell whether there is anything at a path."""
    if not path:
        return True
    inside = isinstance(table, Mapping) and path[0] in table
    return inside and has(table[path[0]], path[1:])


def assign(table: Table, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return a copy of the table with one value set; a budget forgets its other unit."""
    head, *rest = path
    if not rest:
        return {**table, head: value}
    inner = table.get(head, {})
    if not isinstance(inner, Mapping) or head == "budget":
        inner = {}
    return {**table, head: assign(inner, tuple(rest), value)}


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _text(value)
        case int() | float():
            return repr(value)
        case Mapping():
            inside = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items())
            return f"{{{inside}}}"
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"TOML has nothing for {value!r}")


def write(table: Table, *, path: tuple[str, ...] = ()) -> str:
    """Return a table as the text of a TOML file, values before tables, in the given order.

    Raises:
        TypeError: if it holds something that TOML does not have, such as None.
    """
    values = [(key, each) for key, each in table.items() if not isinstance(each, Mapping)]
    tables = [(key, each) for key, each in table.items() if isinstance(each, Mapping)]
    header = [f"[{'.'.join(map(_key, path))}]"] if path and (values or not tables) else []
    lines = header + [f"{_key(key)} = {_value(each)}" for key, each in values]
    own = "".join(f"{line}\n" for line in lines)
    return "\n".join(
        part for part in (own, *(write(each, path=(*path, key)) for key, each in tables)) if part
    )
