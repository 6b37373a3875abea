"""The rows of a run. Row ``k`` (which block, how corrupted) is a function of the seed and ``k``.

No state is kept, so every objective reads the same text in the same order at any batch size, and
a resumed run reads what the unbroken one would have read.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.utils.data import Dataset

from mlmclm import seeds
from mlmclm.contracts import Vocabulary
from mlmclm.objectives import Objective

Item = dict[str, Tensor]


class TrainingRows(Dataset[Item]):
    """``rows`` blocks in a new order each epoch, each corrupted anew each time."""

    def __init__(
        self, blocks: Tensor, objective: Objective, vocabulary: Vocabulary, seed: int, rows: int
    ) -> None:
        self.blocks = blocks
        """(blocks, time) tokens; may be memory-mapped."""
        self.objective = objective
        self.vocabulary = vocabulary
        self.seed = seed
        self.rows = rows
        """Length of the run in blocks: steps times batch size."""
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def _shuffled(self, epoch: int) -> Tensor:
        return torch.randperm(
            len(self.blocks), generator=seeds.generator(self.seed, "order", epoch)
        )

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> Item:
        epoch, place = divmod(row, len(self.blocks))
        tokens = self.blocks[self._order(epoch)[place]].to(torch.long)[None]
        rng = seeds.generator(self.seed, "corruption", row)
        batch = self.objective.corrupt(tokens, self.vocabulary, rng)
        return {"input_ids": batch.inputs["input_ids"][0], "labels": batch.targets[0]}


def collate(items: list[Item]) -> Item:
    """Stack rows into (batch, time)."""
    return {name: torch.stack([item[name] for item in items]) for name in items[0]}
