"""What a corpus is: documents by split, and a hash of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from mlmclm.errors import UserError


@dataclass(frozen=True)
class Corpus:
    """Text by split. The documents of a split, joined, are the original text to the byte."""

    name: str
    splits: Mapping[str, tuple[str, ...]]
    """``train``, ``validation`` and ``test`` to documents."""

    @cached_property
    def hash(self) -> str:
        """Return the first 16 hexadecimal digits of the SHA-256 of all splits and documents."""
        digest = hashlib.sha256()
        for split, documents in sorted(self.splits.items()):
            digest.update(f"{split}\0{len(documents)}\0".encode())
            for document in documents:
                digest.update(document.encode() + b"\0")
        return digest.hexdigest()[:16]

    def documents(self, split: str) -> tuple[str, ...]:
        """Return the documents of a split.

        Raises:
            UserError: if the corpus has no such split.
        """
        if split not in self.splits:
            raise UserError(
                f"the corpus {self.name} has no split {split!r} (it has {', '.join(self.splits)})"
            )
        return self.splits[split]


def words_in(text: str) -> int:
    """Count white-space separated words, and one for each end of line.

    The convention of WikiText: 2,088,628 / 217,646 / 245,569 for WikiText-2.
    """
    return len(text.split()) + text.count("\n")
