"""From a table of options to a typed record; messages name the key and the value found."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from mlmclm.errors import UserError, nearest

T = TypeVar("T")
Locate = Callable[[str], str]
"""Turns a dotted path into the place where the user wrote the value."""

WANTED = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "float_type": "a number",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "less_than": "below {lt:g}",
    "less_than_equal": "at most {le:g}",
    "literal_error": "{expected}",
    "string_too_short": "at least {min_length} letter long",
    "string_type": "text in quotes",
    "too_long": "at most {max_length} values",
    "too_short": "at least {min_length} values",
    "tuple_type": "a list",
}
"""What pydantic's kinds of errors ask for; with the limits of the field."""


def checked(kind: type[T], table: object, path: str = "", locate: Locate = str) -> T:
    """Build a pydantic record or a dataclass of options from a table, converting nothing.

    Lists become tuples, and whole numbers are numbers; that is all.

    Args:
        kind: what to build.
        table: its fields by name.
        path: of the table in its file, empty at the top.
        locate: says where a path was really written.

    Raises:
        UserError: one line for each unknown key, wrong type and value out of range.
    """
    if not isinstance(table, Mapping):
        raise UserError(f"{locate(path)} must be a table, not {shown(table)}")
    known = _keys(kind)
    problems = [
        _unknown(locate(_join(path, str(key))), str(key), known)
        for key in table
        if key not in known
    ]
    problems += [
        f"{locate(_join(path, key))} must be finite, not {shown(value)}"
        for key, value in table.items()
        if isinstance(value, float) and not math.isfinite(value)
    ]
    if problems:
        raise UserError("\n".join(problems))
    try:
        return TypeAdapter(kind).validate_json(json.dumps(table, default=str), strict=True)
    except ValidationError as error:
        raise UserError("\n".join(_problems(error, path, locate))) from error


def shown(value: object) -> str:
    """Return a value as a message shows it: as Python does, but ``true`` and ``false``."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _keys(kind: type) -> list[str]:
    if is_dataclass(kind):
        return [field.name for field in fields(kind) if field.init]
    if not issubclass(kind, BaseModel):
        raise TypeError(f"{kind} is neither a dataclass nor a pydantic model")
    return [field.alias or name for name, field in kind.model_fields.items()]


def _join(path: str, *keys: str | int) -> str:
    for key in keys:
        path += f"[{key}]" if isinstance(key, int) else f".{key}" if path else key
    return path


def _unknown(place: str, key: str, known: list[str]) -> str:
    hint = nearest(key, known) or f" (known: {', '.join(known) or 'none'})"
    return f"unknown key {place}{hint}"


def _problems(error: ValidationError, path: str, locate: Locate) -> Iterator[str]:
    for each in error.errors():
        place = locate(_join(path, *each["loc"]))
        kind, value, limits = each["type"], each["input"], each.get("ctx", {})
        if kind == "missing":
            yield f"{place} is missing"
        elif kind in WANTED:
            close = nearest(value, _choices(limits)) if isinstance(value, str) else ""
            yield f"{place} must be {WANTED[kind].format(**limits)}, not {shown(value)}{close}"
        else:
            yield f"{place}: {each['msg'].removeprefix('Value error, ')}".removeprefix(": ")


def _choices(limits: Mapping[str, Any]) -> list[str]:
    return str(limits.get("expected", "")).split("'")[1::2]
