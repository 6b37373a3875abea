"""Writing against the standard library's reader; everything else against values written by hand."""

import math
import tomllib

import pytest

from mlmclm import toml
from mlmclm.errors import UserError

NESTED = {
    "text": 'quote " backslash \\ tab \t bell \x07 delete \x7f umlaut ü and 漢',
    "numbers": [1, -2, 1e-05, 1e16, 0.1, math.inf],
    "truth": True,
    "empty": [],
    "rows": [{"a": 1, "b c": [True, "x"]}],
    "table": {"inner": {"deep": {"x": 1}, "a.b": 2, "": 3}, "after": "a table's own value"},
    "nothing": {},
}


def test_what_is_written_is_what_the_standard_library_reads():
    assert tomllib.loads(toml.write(NESTED)) == NESTED


def test_what_toml_does_not_have_is_refused():
    with pytest.raises(TypeError, match="nothing for None"):
        toml.write({"a": None})


def test_tables_lie_over_one_another_but_a_budget_replaces():
    under = {"training": {"a": 1, "b": 1}, "budget": {"steps": 1}, "model": "tiny"}
    over = {"training": {"b": 2}, "budget": {"tokens": 3}}
    merged = {"training": {"a": 1, "b": 2}, "budget": {"tokens": 3}, "model": "tiny"}
    assert toml.merge(under, over) == merged
    assert under["training"] == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("training.learning_rate = 1e-3", ("training", "learning_rate"), 0.001),
        ("seeds=[0, 1]", ("seeds",), [0, 1]),
        ("model=bert-mini", ("model",), "bert-mini"),
        ("model=folder/config.json", ("model",), "folder/config.json"),
        ('name="a = b"', ("name",), "a = b"),
        ('search."training.clip"=[1.0]', ("search", "training.clip"), [1.0]),
        (
            "arms.a.objective={name='x', rate=2}",
            ("arms", "a", "objective"),
            {"name": "x", "rate": 2},
        ),
    ],
)
def test_an_assignment_has_a_path_and_a_value(text, path, value):
    assert toml.assignment(text) == (path, value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model", "--set takes KEY=VALUE, such as training.learning_rate=1e-3, not 'model'"),
        ("seeds=[0,", "seeds|\\[0, is not a TOML value"),
        ("a b=1", "a b is not a TOML key"),
    ],
)
def test_a_wrong_assignment_says_what_is_wrong(text, message):
    with pytest.raises(UserError, match=message):
        toml.assignment(text)


def test_one_key_is_set_in_a_copy_and_a_budget_forgets_its_other_unit():
    table = {"budget": {"tokens": 1}, "training": {"clip": 1.0}}
    assert toml.assign(table, ("budget", "steps"), 5)["budget"] == {"steps": 5}
    changed = toml.assign(table, ("training", "betas"), [0.9, 0.99])
    assert changed["training"] == {"clip": 1.0, "betas": [0.9, 0.99]}
    assert toml.assign({}, ("a", "b", "c"), 1) == {"a": {"b": {"c": 1}}}
    assert table == {"budget": {"tokens": 1}, "training": {"clip": 1.0}}


def test_a_file_may_start_with_a_byte_order_mark_and_end_lines_as_on_windows(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes('\ufeffname = "ü"\r\n[a]\r\nb = 1\r\n'.encode())
    assert toml.read(path) == {"name": "ü", "a": {"b": 1}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'name = "\xfc"', "x.toml must be UTF-8, but byte 8 is 0xfc"),
        (b"a = = 1", r"x.toml is not TOML: .*line 1"),
        (None, "x.toml cannot be read: No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, message):
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        toml.read(path)
