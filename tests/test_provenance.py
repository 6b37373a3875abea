"""Commits against git itself, hashes against hashlib."""

import hashlib
import platform
import subprocess
from datetime import UTC, datetime

import pytest
import torch

import mlmclm
from mlmclm import provenance
from mlmclm.provenance import collect, commit_of, content_hash, device_name


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return package


def test_the_commit_is_the_one_that_git_names(checkout):
    assert commit_of(checkout) == git(checkout, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["__init__.py", "new.py"])
def test_a_changed_or_a_new_module_makes_the_commit_dirty(checkout, name):
    (checkout / name).write_text("x = 1\n", encoding="utf-8")
    assert commit_of(checkout) == git(checkout, "rev-parse", "HEAD") + "-dirty"


def test_a_change_outside_the_package_does_not(checkout):
    (checkout.parent / "README.md").write_text("changed", encoding="utf-8")
    assert not commit_of(checkout).endswith("-dirty")


def test_a_copy_installed_inside_a_foreign_checkout_has_no_commit(checkout):
    installed = checkout.parent / ".venv" / "mlmclm"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("", encoding="utf-8")
    assert commit_of(installed) == "unknown"


def test_a_checkout_without_a_commit_or_a_machine_without_git_has_none(tmp_path, monkeypatch):
    git(tmp_path, "init")
    (tmp_path / "__init__.py").write_text("", encoding="utf-8")
    git(tmp_path, "add", ".")
    assert commit_of(tmp_path) == "unknown"
    monkeypatch.setenv("PATH", "")
    assert commit_of(tmp_path) == "unknown"


def test_hashes_are_the_head_of_sha256_and_ignore_the_order_of_keys():
    assert content_hash("ä") == hashlib.sha256("ä".encode()).hexdigest()[:16]
    assert content_hash(b"abc") == content_hash("abc")
    assert content_hash({"a": 1, "b": [1, 2]}) == content_hash({"b": [1, 2], "a": 1})
    assert content_hash({"a": 1}) != content_hash({"a": 1.5})


def test_the_record_holds_versions_threads_hashes_and_the_time_in_utc(monkeypatch):
    monkeypatch.setattr(provenance, "_commit", lambda: "abc")
    found = collect("cpu", "float32", "sdpa", "d", "t", "c")
    assert found.versions["torch"] == torch.__version__
    assert found.versions["mlmclm"] == mlmclm.__version__
    assert found.threads == torch.get_num_threads()
    assert (found.data_hash, found.tokenizer_hash, found.config_hash) == ("d", "t", "c")
    age = datetime.now(UTC) - datetime.fromisoformat(found.created)
    assert 0 <= age.total_seconds() < 60


def test_a_processor_without_a_name_is_called_by_its_machine_type(monkeypatch):
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert device_name("cpu") == "cpu (arm64)"
