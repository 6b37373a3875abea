from __future__ import annotations

import numpy as np
import pytest

from mlmclm.corpora import Corpus, load_corpus
from mlmclm.corpora.packing import pack, passages, token_stream
from mlmclm.errors import UserError
from mlmclm.tokenization import load_tokenizer


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("wikitext-2")


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return load_tokenizer(None, corpus)


def test_the_stream_is_each_document_behind_an_end_token(corpus, tokenizer):
    stream = token_stream(corpus, "validation", tokenizer)
    expected: list[int] = []
    for document in corpus.documents("validation"):
        expected += [tokenizer.vocabulary.end, *tokenizer.encode(document)]
    assert np.array_equal(stream.tokens, expected)


def test_blocks_and_remainder_are_the_whole_stream(corpus, tokenizer):
    stream = token_stream(corpus, "validation", tokenizer)
    packed = pack(stream, 128)
    assert packed.blocks.size + packed.remainder == len(stream.tokens)
    assert packed.remainder < 128
    assert np.array_equal(packed.blocks.ravel(), stream.tokens[: packed.blocks.size])


def test_passages_count_the_original_text(corpus, tokenizer):
    found = passages(corpus, "validation", tokenizer)
    assert sum(passage.words for passage in found) == 217_646
    assert sum(passage.bytes for passage in found) == 1_121_681
    decoded = tokenizer.decode(found[0].tokens.tolist())
    assert decoded == corpus.documents("validation")[0]


def test_too_little_text_for_a_block_says_what_to_do(tokenizer):
    small = Corpus("small.txt", {"train": ("twenty words or so",)})
    with pytest.raises(UserError, match=r"small.txt/train has \d+ tokens, too few.*1024.*block"):
        pack(token_stream(small, "train", tokenizer), 1024)


def test_a_stream_is_made_once(corpus, tokenizer, monkeypatch):
    token_stream(corpus, "test", tokenizer)
    monkeypatch.setattr(type(tokenizer), "encode_many", None)
    assert len(token_stream(corpus, "test", tokenizer).tokens) > 300_000
