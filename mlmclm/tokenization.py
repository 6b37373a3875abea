"""Text to token ids and back: the default byte-level BPE, and any fast tokenizer of Hugging Face.

The default has 8,192 tokens, is trained on the training split (Sennrich et al. 2016,
arXiv:1508.07909; on bytes as in GPT-2) and is the same for all objectives. Decoding gives back the
original text to the byte.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from mlmclm.contracts import Vocabulary
from mlmclm.corpora import tables
from mlmclm.corpora.cache import made_once
from mlmclm.errors import UserError
from mlmclm.hub import asked_once
from mlmclm.provenance import content_hash

if TYPE_CHECKING:
    from mlmclm.corpora.base import Corpus

SIZE = 8192
"""Tokens of the default vocabulary."""
PAD, END, MASK, UNKNOWN = "[PAD]", "<eos>", "[MASK]", "<unk>"
RULE = 1
"""Version of how the default is trained, part of the name of a cached one."""
UNLIMITED = 10**30
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextTokenizer:
    """A fast tokenizer, and which of its ids mean something to the machinery."""

    fast: PreTrainedTokenizerFast
    vocabulary: Vocabulary

    @cached_property
    def hash(self) -> str:
        """Return the hash of all that decides about ids, as JSON with sorted keys."""
        return content_hash(json.loads(self.fast.backend_tokenizer.to_str()))

    def encode(self, text: str) -> list[int]:
        """Return ids; nothing is added at either end."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text; nothing is added at either end."""
        backend = self.fast.backend_tokenizer
        return [each.ids for each in backend.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        return str(self.fast.backend_tokenizer.decode(list(ids), skip_special_tokens=False))

    def save(self, folder: Path) -> None:
        """Write the files that ``AutoTokenizer.from_pretrained(folder)`` opens."""
        self.fast.save_pretrained(folder)


def load_tokenizer(source: str | None, corpus: Corpus | None = None) -> TextTokenizer:
    """Return the tokenizer that a source stands for.

    Args:
        source: None for the default, trained on ``corpus``; a ``tokenizer.json`` or a folder with
            one; or a hub id.
        corpus: what the default is trained on; needed for nothing else.

    Raises:
        UserError: if there is no such tokenizer or it is not a fast one.
        ValueError: if the default is asked for without a corpus.
    """
    if source is None:
        if corpus is None:
            raise ValueError("the default tokenizer is trained on a corpus")
        return _wrapped(_default(corpus))
    path = Path(source)
    if path.is_file():
        return _wrapped(_backend(path))
    if path.is_dir():
        if not (path / "tokenizer.json").is_file():
            raise UserError(f"the folder {path} holds no tokenizer.json")
        return _from_transformers(str(path))
    if path.suffix == ".json":
        raise UserError(f"there is no file {path}")
    tables.must_not_be_a_path(source)
    with asked_once() as silence:
        return _from_transformers(source, silence)


# --- the default --------------------------------------------------------------------------------


def _special() -> list[AddedToken]:
    """``[MASK]`` takes the space before it along, so that "is [MASK] now" has no lone space."""
    return [
        AddedToken(PAD, special=True, normalized=False),
        AddedToken(END, special=True, normalized=False),
        AddedToken(MASK, special=True, normalized=False, lstrip=True),
        AddedToken(UNKNOWN, special=True, normalized=False),
    ]


def _train(documents: Sequence[str]) -> Tokenizer:
    backend = Tokenizer(models.BPE(unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=_special(),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(documents, trainer)
    return backend


def _default(corpus: Corpus) -> Tokenizer:
    def make(path: Path) -> None:
        path.write_text(_train(corpus.documents("train")).to_str(), encoding="utf-8")

    return _backend(made_once(f"tokenizer-{corpus.hash}-{SIZE}-{RULE}.json", make))


# --- any other ----------------------------------------------------------------------------------


def _backend(path: Path) -> Tokenizer:
    text = tables.read_text(path)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not a tokenizer.json: {error}") from error
    if not isinstance(content, dict) or not {"model", "added_tokens"} <= content.keys():
        raise UserError(f"{path} is not a tokenizer.json: it has no model and added_tokens")
    if not isinstance(content["model"], dict) or "vocab" not in content["model"]:
        raise UserError(f"{path} is not a tokenizer.json: its model has no vocab")
    return Tokenizer.from_str(text)


def _from_transformers(source: str, silence: str | None = None) -> TextTokenizer:
    """Open a folder or hub id; ``silence`` is why the hub does not answer."""
    try:
        found = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, ImportError) as error:
        raise UserError(
            f"no tokenizer {source!r} could be had ({silence or tables.one_line(error)}); without "
            "a network there are the default and any local tokenizer.json"
        ) from error
    if not isinstance(found, PreTrainedTokenizerFast):
        raise UserError(f"{source} is not a fast tokenizer (it has no tokenizer.json)")
    return _complete(found)


def _wrapped(backend: Tokenizer) -> TextTokenizer:
    known = backend.get_vocab(with_added_tokens=True)
    names = {
        "pad_token": (PAD, "<pad>"),
        "mask_token": (MASK, "<mask>"),
        "eos_token": (END, "</s>", "<|endoftext|>", "[SEP]"),
        "unk_token": (UNKNOWN, "[UNK]"),
    }
    found = {
        kind: next((name for name in candidates if name in known), None)
        for kind, candidates in names.items()
    }
    given = {kind: name for kind, name in found.items() if name is not None}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=given.get("eos_token"),
        model_max_length=UNLIMITED,
        clean_up_tokenization_spaces=False,
        **given,
    )
    return _complete(fast)


def _complete(fast: PreTrainedTokenizerFast) -> TextTokenizer:
    """Add the special tokens that are missing, and say which id does what.

    Cutting and padding, which a ``tokenizer.json`` may ask for, are for single inputs of its own
    model; here they would drop text and put padding into the stream.
    """
    fast.backend_tokenizer.no_truncation()
    fast.backend_tokenizer.no_padding()
    if fast.eos_token is None:
        fast.eos_token = fast.sep_token or END
    if fast.mask_token is None:
        fast.mask_token = AddedToken(MASK, special=True, normalized=False, lstrip=True)
    if fast.pad_token is None or fast.pad_token == fast.eos_token:
        fast.pad_token = PAD
    if fast.unk_token is None:
        fast.unk_token = UNKNOWN
    missing = [
        AddedToken(token, special=True, normalized=False, lstrip=token == fast.mask_token)
        for token in (fast.eos_token, fast.mask_token, fast.pad_token, fast.unk_token)
        if token not in fast.get_vocab()
    ]
    if missing:
        fast.add_tokens(missing, special_tokens=True)
        logger.info("added to the tokenizer: %s", ", ".join(token.content for token in missing))
    ids = fast.get_vocab()
    return TextTokenizer(
        fast,
        Vocabulary(
            size=len(fast),
            pad=ids[fast.pad_token],
            end=ids[fast.eos_token],
            mask=ids[fast.mask_token],
            unknown=ids[fast.unk_token],
        ),
    )
