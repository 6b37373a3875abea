from __future__ import annotations

import pytest

from mlmclm.corpora.cache import made_once
from mlmclm.errors import UserError


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("MLMCLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_file_is_made_once(cache):
    assert made_once("a.txt", lambda path: path.write_text("first")).read_text() == "first"
    assert made_once("a.txt", lambda path: path.write_text("second")).read_text() == "first"
    assert [path.name for path in cache.iterdir()] == ["a.txt"]


def test_an_empty_file_left_by_a_power_cut_is_made_again(cache):
    cache.mkdir()
    (cache / "a.txt").touch()
    assert made_once("a.txt", lambda path: path.write_text("again")).read_text() == "again"


def test_half_a_file_is_never_left(cache):
    def fail(path):
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once("a.txt", fail)
    assert list(cache.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(cache):
    cache.write_text("a file, not a folder")
    with pytest.raises(UserError, match=r"cache folder .* cannot be used .*set MLMCLM_CACHE"):
        made_once("a.txt", lambda path: path.write_text("x"))
