from __future__ import annotations

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoTokenizer, BertTokenizerFast, PreTrainedTokenizerFast

from mlmclm.corpora import load_corpus
from mlmclm.errors import UserError
from mlmclm.tokenization import load_tokenizer


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("wikitext-2")


@pytest.fixture(scope="module")
def default(corpus):
    return load_tokenizer(None, corpus)


def test_the_default_has_8192_tokens_and_the_special_ones_first(default):
    vocabulary = default.vocabulary
    assert vocabulary.size == 8192
    assert (vocabulary.pad, vocabulary.end, vocabulary.mask, vocabulary.unknown) == (0, 1, 2, 3)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_decoding_gives_back_the_text_to_the_byte(corpus, default, split):
    documents = corpus.documents(split)
    assert [default.decode(ids) for ids in default.encode_many(documents)] == list(documents)


@pytest.mark.parametrize("text", ["", "Ελληνικά 日本語 🙂\t\n", "<unk> <unk>"])
def test_any_text_survives(default, text):
    assert default.decode(default.encode(text)) == text


def test_unk_and_mask_are_one_token_each(default):
    ids = default.encode("The <unk> is [MASK] today")
    assert ids.count(default.vocabulary.unknown) == 1
    place = ids.index(default.vocabulary.mask)
    assert default.decode([ids[place - 1]]) == " is"


def test_autotokenizer_opens_what_was_saved(corpus, default, tmp_path):
    default.save(tmp_path)
    text = corpus.documents("validation")[0]
    assert AutoTokenizer.from_pretrained(tmp_path)(text)["input_ids"] == default.encode(text)
    again = load_tokenizer(str(tmp_path), corpus)
    assert (again.hash, again.vocabulary) == (default.hash, default.vocabulary)
    from_file = load_tokenizer(str(tmp_path / "tokenizer.json"), corpus)
    assert (from_file.hash, from_file.vocabulary) == (default.hash, default.vocabulary)


def test_a_bert_tokenizer_ends_documents_with_sep(corpus, tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "weather"]
    vocab = {word: number for number, word in enumerate(words)}
    BertTokenizerFast(vocab=vocab).save_pretrained(tmp_path)
    found = load_tokenizer(str(tmp_path), corpus)
    assert found.vocabulary.end == 3
    assert found.vocabulary.mask == 4
    assert found.vocabulary.size == 7
    assert found.encode("the weather") == [5, 6]


def test_special_tokens_that_are_missing_are_added(corpus, tmp_path):
    path = tmp_path / "tokenizer.json"
    Tokenizer(WordLevel({"the": 0, "<unk>": 1}, unk_token="<unk>")).save(str(path))
    vocabulary = load_tokenizer(str(path), corpus).vocabulary
    assert vocabulary.size == 5
    assert len({vocabulary.pad, vocabulary.end, vocabulary.mask, vocabulary.unknown}) == 4


def test_text_is_neither_cut_nor_padded_whatever_the_file_asks_for(corpus, default, tmp_path):
    backend = Tokenizer.from_str(default.fast.backend_tokenizer.to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    backend.save(str(tmp_path / "tokenizer.json"))
    text = "one two three four five six seven eight nine ten"
    for source in (tmp_path / "tokenizer.json", tmp_path):
        assert load_tokenizer(str(source), corpus).encode(text) == default.encode(text)


def test_an_added_mask_takes_the_space_before_it_and_outlives_saving(corpus, tmp_path, caplog):
    alphabet = {letter: n for n, letter in enumerate(sorted(ByteLevel.alphabet()))}
    backend = Tokenizer(BPE(vocab=alphabet, merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    end = "<|endoftext|>"
    backend.add_special_tokens([end])
    gpt2 = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=end, unk_token=end)
    gpt2.save_pretrained(tmp_path / "gpt2")
    with caplog.at_level("INFO"):
        found = load_tokenizer(str(tmp_path / "gpt2"), corpus)
    assert "added to the tokenizer: [MASK], [PAD]" in caplog.text
    ids = [alphabet["i"], alphabet["s"], found.vocabulary.mask, alphabet["\u0120"], alphabet["a"]]
    assert found.encode("is [MASK] a") == ids
    found.save(tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert again("is [MASK] a")["input_ids"] == ids
    assert (again.mask_token_id, again.pad_token_id) == (found.vocabulary.mask, 258)


def test_files_that_are_no_tokenizer_are_named(corpus, tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(UserError, match=r"there is no file"):
        load_tokenizer(str(path), corpus)
    for content in ("{}", '{"model": {}, "added_tokens": []}'):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=r"is not a tokenizer.json"):
            load_tokenizer(str(path), corpus)
    with pytest.raises(UserError, match=r"holds no tokenizer.json"):
        load_tokenizer(str(tmp_path.parent), corpus)
