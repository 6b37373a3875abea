"""One seed, and from it independent generators for each purpose.

Changing how often one purpose draws (a mask rate, say) leaves all others as they were: two
objectives with the same seed start from the same weights and read the same text in the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed that depends on ``seed`` and on every part of ``purpose``."""
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a CPU generator for one purpose (and, say, one row of it)."""
    return torch.Generator().manual_seed(derive(seed, *purpose))


@contextmanager
def global_seed(seed: int, *purpose: str | int) -> Iterator[None]:
    """Seed torch's global generator inside the block and restore it after.

    For libraries that draw from the global generator, such as weight initialisation.
    """
    with torch.random.fork_rng():
        torch.manual_seed(derive(seed, *purpose))
        yield
