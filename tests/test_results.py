"""Rows on disk: what a NaN or a wrong hand does to them."""

from __future__ import annotations

import json
import math

import pytest
from made_up import curves, everything, row

from mlmclm.errors import UserError
from mlmclm.results import latest, load, load_curves, save


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results" / "tiny" / "rows.jsonl"


def test_rows_come_back_as_they_were(path):
    rows = everything()
    save(path, rows)
    assert load(path) == rows


def test_curves_come_back_and_a_step_done_again_replaces_the_first(path):
    points = curves()
    again = points[3].model_copy(update={"loss": 1.25})
    save(path, [*points, again])
    assert load_curves(path) == [*points[:3], again, *points[4:]]


def test_infinity_is_valid_json_and_comes_back(path):
    endless = row(value=math.inf, details={"quantiles": [1.0, math.inf], "worst": -math.inf})
    save(path, [endless])

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    line = json.loads(path.read_text("utf-8"), parse_constant=refuse)
    assert line["value"] == "Infinity"
    assert load(path) == [endless]


@pytest.mark.parametrize("details", [{"p90": math.nan}, {"deep": [{"er": math.nan}]}])
def test_nan_is_refused_before_anything_is_written(path, details):
    with pytest.raises(ValueError, match="NaN"):
        save(path, [row(), row(details=details)])
    assert not path.exists()


def test_saving_again_replaces_the_file_as_a_whole(path):
    save(path, [row(seed=0), row(seed=1)])
    save(path, [row(seed=2)])
    assert load(path) == [row(seed=2)]
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_half_line_is_named(path):
    save(path, [row(seed=0), row(seed=1)])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match="line 2: not a line of JSON"):
        load(path)


def test_the_last_of_equal_rows_wins_and_keeps_the_place_of_the_first():
    rows = [row(seed=0, value=1.0), row(seed=1), row(seed=0, value=2.0)]
    assert latest(rows) == [rows[2], rows[1]]


@pytest.mark.parametrize(
    "other",
    [{"metric": "perplexity"}, {"method": "m"}, {"unit": "u"}, {"data": "d"}, {"run": "r"},
     {"role": "untrained"}, {"baseline": "unigram"}],
)  # fmt: skip
def test_rows_that_differ_in_what_they_measure_are_both_kept(other):
    assert len(latest([row(), row(**other)])) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [({"value": "abc"}, "line 2: value: .*number.*not 'abc'"), ({"extra": 1}, "line 2: extra: "),
     ({"budget": {}}, r"line 2: budget\.steps: "), ({"value": "NaN"}, "line 2: value: ")],
)  # fmt: skip
def test_a_bad_line_is_named_by_number_and_key(path, change, message):
    save(path, [row()])
    bad = json.loads(row().model_dump_json()) | change
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(bad) + "\n")
    with pytest.raises(UserError, match=message):
        load(path)


@pytest.mark.parametrize("line", [b"{oops\n", b'\xff\xfe"Infinity"\n', b"[1, 2]\n"])
def test_what_is_no_row_at_all_is_an_error_in_the_middle(path, line):
    path.parent.mkdir(parents=True)
    path.write_bytes(line)
    with pytest.raises(UserError, match="line 1"):
        load(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        load(tmp_path / "rows.jsonl")
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path)
