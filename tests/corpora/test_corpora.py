from __future__ import annotations

import json
import lzma

import huggingface_hub.constants
import pytest
from datasets import Dataset

from mlmclm.corpora import articles, bundled, load_corpus, words_in
from mlmclm.corpora.wikitext import lines_of
from mlmclm.errors import UserError


def test_wikitext_2_has_the_published_numbers_of_words_and_articles():
    corpus = load_corpus("wikitext-2")
    words = {split: sum(map(words_in, texts)) for split, texts in corpus.splits.items()}
    assert words == {"train": 2_088_628, "validation": 217_646, "test": 245_569}
    assert {split: len(texts) for split, texts in corpus.splits.items()} == {
        "train": 600, "validation": 60, "test": 60,
    }  # fmt: skip


def test_documents_joined_are_the_original_to_the_byte():
    corpus = load_corpus("wikitext-2")
    assert "".join(corpus.documents("validation")) == bundled.read("wikitext-2/valid.txt")


def test_only_a_title_between_blank_lines_starts_an_article():
    text = " \n = A = \n \n x \n \n = = Part = = \n \n = Goals ; A = \n y \n \n = B = \n \n z \n"
    assert articles(text) == (text[: text.index(" = B")], text[text.index(" = B") :])


def test_text_without_titles_is_one_document():
    assert articles("one\ntwo\n") == ("one\ntwo\n",)


def test_a_line_ends_at_a_line_feed_only():
    text = "a\u2028\x85\x0c\x1cb\r\n\nc"
    assert lines_of(text) == ["a\u2028\x85\x0c\x1cb\r\n", "\n", "c"]


def test_wikitext_a_line_a_row_as_on_the_hub_is_put_together(tmp_path):
    text = bundled.read("wikitext-2/valid.txt")
    rows = [line + "\n" if line.strip() else "" for line in text.removesuffix("\n").split("\n")]
    for split in ("train", "valid", "test"):
        Dataset.from_dict({"text": rows}).to_parquet(tmp_path / f"{split}.parquet")
    found = load_corpus(str(tmp_path)).documents("test")
    assert len(found) == 60
    assert sum(map(words_in, found)) == 217_646
    assert "".join(found) == "".join(row or "\n" for row in rows)


def test_damaged_data_is_refused(monkeypatch):
    monkeypatch.setattr(bundled, "_checksums", lambda: {"wikitext-2/valid.txt": "0" * 64})
    with pytest.raises(UserError, match=r"wikitext-2/valid.txt is damaged.*reinstall"):
        bundled.read("wikitext-2/valid.txt")


LINES = [f"line {number} says something\n" for number in range(40)]


def write(path, suffix):
    texts = [line.strip() for line in LINES]
    if suffix == ".txt":
        path.write_text("".join(LINES), encoding="utf-8")
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    elif suffix == ".csv":
        Dataset.from_dict({"text": texts}).to_csv(path)
    elif suffix == ".parquet":
        Dataset.from_dict({"text": texts}).to_parquet(path)
    return path


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".parquet"])
def test_every_local_format_is_cut_18_to_1_to_1(tmp_path, suffix):
    corpus = load_corpus(str(write(tmp_path / f"text{suffix}", suffix)))
    assert {split: len(texts) for split, texts in corpus.splits.items()} == {
        "train": 36, "validation": 2, "test": 2,
    }  # fmt: skip
    assert corpus.documents("test")[0].strip() == LINES[19].strip()


def test_a_folder_with_three_files_is_taken_as_it_is(tmp_path):
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.txt").write_text(f"{name} text\n", encoding="utf-8")
    corpus = load_corpus(str(tmp_path))
    assert corpus.splits == {
        "train": ("train text\n",), "validation": ("dev text\n",), "test": ("test text\n",),
    }  # fmt: skip


@pytest.mark.parametrize("given", [("train",), ("train", "test"), ("train", "valid")])
def test_splits_that_a_folder_lacks_are_cut_from_training(tmp_path, given):
    for name in given:
        (tmp_path / f"{name}.txt").write_text("".join(LINES), encoding="utf-8")
    splits = load_corpus(str(tmp_path)).splits
    cut = {"validation": "valid", "test": "test"}
    for split, name in cut.items():
        assert ("".join(splits[split]) == "".join(LINES)) == (name in given)
    parts = ["train", *(split for split, name in cut.items() if name not in given)]
    assert sorted(line for part in parts for line in splits[part]) == sorted(LINES)


def test_words_that_look_like_missing_values_are_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text\n" + "NA\nnull\nnan\nNone\n" * 10, encoding="utf-8")
    assert load_corpus(str(path)).documents("train")[:4] == ("NA", "null", "nan", "None")


def test_the_only_column_of_text_needs_no_name(tmp_path):
    path = tmp_path / "T.JSONL"
    rows = [{"id": number, "body": line} for number, line in enumerate(LINES)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert load_corpus(str(path)).documents("train")[0] == LINES[0]


def test_another_column_can_be_named(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"a": "x", "b": line}) + "\n" for line in LINES), "utf-8")
    assert "line 0" in load_corpus(f"{path}:b").documents("train")[0]
    with pytest.raises(UserError, match=r"no column 'text' \(it has a, b\)"):
        load_corpus(str(path))


def test_the_hash_depends_on_text_and_on_where_documents_end(tmp_path):
    def made(*texts):
        path = tmp_path / "x.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
        return load_corpus(str(path)).hash

    twenty = [f"t{number}" for number in range(20)]
    assert made(*twenty) == made(*twenty)
    assert made(*twenty) != made(*twenty[:-1], "other")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "holds no text"),
        ("blank.txt", b" \n \n", "holds no text"),
        ("short.txt", b"one line\n", "too few to cut validation and test"),
        ("latin.txt", "caf\u00e9".encode("latin-1"), "not UTF-8: byte 3 is 0xe9"),
        ("bad.jsonl", b'{"text": ', "not valid jsonl"),
        ("what.docx", b"x", "suffix '.docx'; known are .txt, .jsonl"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        load_corpus(str(path))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_wrong_names_are_answered_in_one_line(tmp_path):
    with pytest.raises(UserError, match=r"no corpus is called 'wikitext2'; did you mean 'wiki"):
        load_corpus("wikitext2")
    with pytest.raises(UserError, match=r"there is no file nowhere.txt"):
        load_corpus("nowhere.txt")
    for path in ("./no/folder", str(tmp_path / "none"), "one/two/three"):
        with pytest.raises(UserError, match=r"there is no file or folder"):
            load_corpus(path)
    with pytest.raises(UserError, match=r"holds no train.txt"):
        load_corpus(str(tmp_path))


def test_the_hub_out_of_reach_says_what_works_without(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"without a network there are: wikitext-2") as caught:
        load_corpus("nobody/nothing:at-all")
    assert "\n" not in str(caught.value)


def test_compressed_tables_are_read(tmp_path):
    path = tmp_path / "train.jsonl.xz"
    path.write_bytes(lzma.compress("".join(json.dumps({"text": x}) + "\n" for x in LINES).encode()))
    assert len(load_corpus(str(path)).documents("train")) == 36
