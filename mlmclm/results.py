"""Rows and learning curves on disk: JSON lines.

A file is written as a whole, so a killed process leaves the old one or the new one. Infinity is
the JSON string ``"Infinity"``; NaN is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from mlmclm.contracts import Number, Row, Strict
from mlmclm.errors import UserError
from mlmclm.files import write_whole

INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}
UNBOUNDED = ("value", "loss", "details")
"""The keys whose values may be infinite: a perplexity beyond a float, a loss that blew up."""


class CurvePoint(Strict):
    """The validation loss of one run at one moment of its training."""

    arm: str
    run: str
    objective: str
    seed: int
    step: int = Field(ge=0)
    tokens: int = Field(ge=0)
    """Input positions read so far."""
    targets: int = Field(ge=0)
    """Positions that a loss was taken at so far."""
    flops: float = Field(ge=0)
    seconds: float = Field(ge=0)
    """Inside training steps, evaluation excluded."""
    loss: Number
    metric: str
    """What the loss is, such as ``masked-token loss``: two metrics never share an axis."""
    method: str
    """Protocol in words, as in the row of the run's last validation loss."""
    unit: str
    """Such as ``nats/target``."""
    data: str
    """What it was measured on."""

    @property
    def column(self) -> tuple[str, str, str, str]:
        """What a plot keeps apart: metric, data, method, unit."""
        return (self.metric, self.data, self.method, self.unit)


Record = TypeVar("Record", Row, CurvePoint)


def save(path: Path, records: Iterable[Row | CurvePoint]) -> None:
    """Write rows or points as a file, in place of what was there.

    Raises:
        ValueError: if a number is NaN; nothing is written then.
    """
    write_whole(path, b"".join(_line(record) for record in records))


def load(path: Path) -> list[Row]:
    """Return the rows of a file, the latest of each (see `latest`).

    Raises:
        UserError: if the file is missing, or a line is not a row; names line, key and value.
    """
    return latest(_load(path, Row))


def load_curves(path: Path) -> list[CurvePoint]:
    """Return the points of a file; a step that was done again replaces the earlier one.

    Raises:
        UserError: if the file is missing, or a line is not a point.
    """
    points = _load(path, CurvePoint)
    return list({(*_run(point), point.column, point.step): point for point in points}.values())


def latest(rows: Iterable[Row]) -> list[Row]:
    """Keep the last row of each measurement of each run, in the place of the first."""
    return list({_identity(row): row for row in rows}.values())


def _run(record: Row | CurvePoint) -> tuple[str, str, int]:
    """Return what tells runs apart: folders of one name may lie in different places."""
    return (record.arm, record.run, record.seed)


def _identity(row: Row) -> tuple[object, ...]:
    return (*_run(row), *row.column, row.role, row.baseline)


def _line(record: Row | CurvePoint) -> bytes:
    if _holds_nan(record.model_dump()):
        raise ValueError(f"a result cannot hold NaN: {record!r}")
    return record.model_dump_json().encode() + b"\n"


def _holds_nan(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_nan, value))
    return isinstance(value, float) and math.isnan(value)


def _load(path: Path, kind: type[Record]) -> list[Record]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; expected results, one JSON line each") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    return list(_records(path, lines, kind))


def _records(path: Path, lines: list[bytes], kind: type[Record]) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield kind.model_validate_json(_with_infinity(line))
        except ValidationError as error:
            raise _bad_line(path, number, error) from None
        except ValueError:
            raise UserError(f"{path}, line {number}: not a line of JSON in UTF-8") from None


def _with_infinity(line: bytes) -> bytes:
    """Turn ``"Infinity"`` back into a number, which strict validation does not do by itself."""
    if b'Infinity"' not in line:
        return line
    record = json.loads(line)
    record |= {key: _unquoted(record[key]) for key in UNBOUNDED if key in record}
    return json.dumps(record).encode()


def _unquoted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _unquoted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_unquoted(each) for each in value]
    return INFINITIES.get(value, value) if isinstance(value, str) else value


def _bad_line(path: Path, number: int, error: ValidationError) -> UserError:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return UserError(f"{path}, line {number}: not a line of JSON ({first['msg']})")
    key = ".".join(map(str, first["loc"])) or "the whole line"
    found = "" if first["type"] == "missing" else f", not {first['input']!r}"
    return UserError(f"{path}, line {number}: {key}: {first['msg']}{found}")
