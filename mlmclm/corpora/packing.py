"""Documents to one stream of tokens, and the stream to blocks.

The stream is ``end d1 end d2 ...``: the end-of-document token stands before each document. Blocks
are cut from it one after the other, across documents (as GPT-2 and RoBERTa do), so no token is lost
but a remainder shorter than a block, which is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from mlmclm.contracts import Passage
from mlmclm.corpora.base import Corpus, words_in
from mlmclm.corpora.cache import made_once
from mlmclm.errors import UserError

if TYPE_CHECKING:
    from mlmclm.tokenization import TextTokenizer

RULE = 1
"""Version of the layout above, part of the name of a cached stream."""


@dataclass(frozen=True)
class TokenStream:
    """All tokens of a split."""

    source: str
    """Corpus and split, for messages."""
    tokens: NDArray[np.unsignedinteger]
    """(tokens,), memory-mapped."""


@dataclass(frozen=True)
class Packed:
    """A stream cut into blocks."""

    blocks: NDArray[np.int64]
    """(blocks, time)."""
    remainder: int
    """Tokens at the end that fill no block."""


def token_stream(corpus: Corpus, split: str, tokenizer: TextTokenizer) -> TokenStream:
    """Tokenize a split, once for each corpus and tokenizer.

    Raises:
        UserError: if there is no such split.
    """
    documents = corpus.documents(split)

    def make(path: Path) -> None:
        kind = np.uint16 if tokenizer.vocabulary.size <= 2**16 else np.uint32
        end = tokenizer.vocabulary.end
        pieces = [np.array([end, *ids], kind) for ids in tokenizer.encode_many(documents)]
        with path.open("wb") as file:
            np.save(file, np.concatenate(pieces))

    name = f"tokens-{corpus.hash}-{split}-{tokenizer.hash}-{RULE}.npy"
    tokens = np.load(made_once(name, make), mmap_mode="r")
    return TokenStream(f"{corpus.name}/{split}", tokens)


def pack(stream: TokenStream, block: int) -> Packed:
    """Cut a stream into blocks of ``block`` tokens.

    Raises:
        UserError: if it does not fill one.
    """
    whole, remainder = divmod(len(stream.tokens), block)
    if whole == 0:
        raise UserError(
            f"{stream.source} has {len(stream.tokens)} tokens, too few for one block of {block}: "
            "set corpus.block lower or give more text"
        )
    tokens = stream.tokens[: whole * block].astype(np.int64)
    return Packed(tokens.reshape(whole, block), remainder)


def passages(corpus: Corpus, split: str, tokenizer: TextTokenizer) -> list[Passage]:
    """Return each document of a split as tokens, with words and bytes of its text."""
    documents = corpus.documents(split)
    return [
        Passage(torch.tensor(ids, dtype=torch.long), words_in(text), len(text.encode()))
        for text, ids in zip(documents, tokenizer.encode_many(documents), strict=True)
    ]
