"""Data inside the package: compressed, and checked against its SHA-256 when read."""

from __future__ import annotations

import hashlib
import lzma
from functools import lru_cache
from importlib import resources

from mlmclm.errors import UserError

BUNDLED = {
    "wikitext-2": "WikiText-2, tokenised (wikitext-2-v1): 2,088,628 / 217,646 / 245,569 words",
}
"""Corpora that need no network."""
WIKITEXT_FILES = {"train": "train.txt", "validation": "valid.txt", "test": "test.txt"}


@lru_cache
def _checksums() -> dict[str, str]:
    text = resources.files("mlmclm").joinpath("data/checksums.txt").read_text("utf-8")
    pairs = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {name: digest for digest, name in pairs}


def read(name: str) -> str:
    """Return a bundled file, such as ``wikitext-2/train.txt``, line ends as they are.

    Raises:
        UserError: if it is missing or not what was bundled.
    """
    path = resources.files("mlmclm").joinpath(f"data/{name}.xz")
    try:
        content = lzma.decompress(path.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise UserError(
            f"bundled data {name} cannot be read ({error}): reinstall mlmclm"
        ) from error
    if hashlib.sha256(content).hexdigest() != _checksums()[name]:
        raise UserError(f"bundled data {name} is damaged (its checksum differs): reinstall mlmclm")
    return content.decode("utf-8")
