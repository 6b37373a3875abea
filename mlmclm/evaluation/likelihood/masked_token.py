"""Masked-token loss: what a masked model pays for the tokens that are hidden from it.

Blocks of the split are corrupted as in training (Devlin et al. 2019, arXiv:1810.04805), but once
for all: the masks depend on the seed, the rate and the tokenizer only, are the same for every model
with that tokenizer and block, and are saved beside the run. The mean is taken over targets, not
over batches.

A hidden token is seen from both sides and the others are hidden with it, so this is no likelihood
of the text and no bound on one. It may be compared with masked models measured by the same method
on the same tokens, and with the baselines beside it; never with a causal loss or perplexity.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import save
from torch import Tensor
from torch.nn.functional import cross_entropy

from mlmclm import seeds
from mlmclm.attention import Visibility
from mlmclm.contracts import IGNORED, Batch, Count, Measurement, Vocabulary, perplexity
from mlmclm.corpora.packing import Packed, pack, token_stream
from mlmclm.evaluation.base import EVALUATORS, Evaluator, Subject
from mlmclm.evaluation.likelihood.counting import ContextFree, Tokens, counts_of, nats_of
from mlmclm.evaluation.likelihood.precision import checked_nats, full_precision
from mlmclm.files import write_whole
from mlmclm.models.token_model import TokenModel
from mlmclm.objectives import MaskedLM

Ids = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class MaskSet:
    """Which tokens of a split are asked for, and what is shown in their places."""

    blocks: Tensor
    """(blocks, time), as they are in the text."""
    places: Ids
    """(targets,) positions in the blocks laid end to end, ascending."""
    shown: Ids
    """(targets,) what a model sees there."""
    answers: Ids
    """(targets,) what it must predict."""

    @classmethod
    def draw(cls, blocks: Tensor, rule: MaskedLM, vocabulary: Vocabulary, seed: int) -> MaskSet:
        """Corrupt each block by a generator of its own, so that no block depends on another."""
        places, shown, answers = [], [], []
        for row, block in enumerate(blocks):
            rng = seeds.generator(seed, "masks", row)
            batch = rule.corrupt(block[None], vocabulary, rng)
            (chosen,) = torch.nonzero(batch.targets[0] != IGNORED, as_tuple=True)
            places.append(chosen + row * len(block))
            shown.append(batch.inputs["input_ids"][0, chosen])
            answers.append(batch.targets[0, chosen])
        return cls(blocks, *(_ids(parts) for parts in (places, shown, answers)))

    @property
    def hash(self) -> str:
        """Return 16 hexadecimal digits of the SHA-256 of places, shown and answers."""
        digest = hashlib.sha256()
        for part in (self.places, self.shown, self.answers):
            digest.update(part.astype("<u4").tobytes())
        return digest.hexdigest()[:16]

    def left_neighbours(self, nothing: int) -> Tokens:
        """Return (targets,) what is shown left of each; ``nothing`` where a block begins."""
        shown = self.blocks.numpy().copy()
        shown.reshape(-1)[self.places] = self.shown
        before = np.full_like(shown, nothing)
        before[:, 1:] = shown[:, :-1]
        return before.reshape(-1)[self.places]

    def batches(self, rows: int) -> Iterator[Batch]:
        """Yield the corrupted blocks, ``rows`` at a time."""
        time = self.blocks.shape[1]
        for first in range(0, len(self.blocks), rows):
            inputs = self.blocks[first : first + rows].clone()
            targets = torch.full_like(inputs, IGNORED)
            edges = np.array([first * time, (first + len(inputs)) * time])
            here = slice(*np.searchsorted(self.places, edges))
            places = torch.from_numpy(self.places[here].astype(np.int64)) - first * time
            inputs.view(-1)[places] = torch.from_numpy(self.shown[here].astype(np.int64))
            targets.view(-1)[places] = torch.from_numpy(self.answers[here].astype(np.int64))
            yield Batch({"input_ids": inputs}, targets)

    def save(self, folder: Path, **about: str) -> Path:
        """Write ``masks-HASH.safetensors``, as a whole or not at all; ``about`` is its metadata."""
        path = folder / f"masks-{self.hash}.safetensors"
        arrays = {"places": self.places, "shown": self.shown, "answers": self.answers}
        write_whole(path, save(arrays, metadata=about))
        return path


def _ids(parts: list[Tensor]) -> Ids:
    return torch.cat(parts).numpy().astype(np.uint32)


@dataclass(frozen=True)
class Score:
    """Sums over targets."""

    nats: float
    hits: float
    """Targets whose most probable prediction is right; expected number for a guess by chance."""
    targets: int


@EVALUATORS.register("masked_token")
@dataclass(frozen=True, kw_only=True)
class MaskedTokenLoss(Evaluator):
    """Loss, perplexity and accuracy on hidden tokens, with the same masks for every model.

    Softmax is in float32; sums are in float64 and divided once.
    """

    group: ClassVar[str] = "likelihood"

    mask_rate: Annotated[float, Field(gt=0, le=1)] = 0.15
    """Share of ordinary tokens that are asked for; the same for all models, however trained."""
    split: Literal["train", "validation", "test"] = "test"
    seed: int = 0
    """Of the masks, not of the run."""
    batch_size: Count = 32
    """Blocks per forward pass. Changes speed and memory, never the value."""
    limit: Count | None = None
    """Blocks to score, from the first on; all where none is given. Part of the method."""

    @property
    def rule(self) -> MaskedLM:
        """How chosen tokens are shown: 80 % as a mask, 10 % as a random token, 10 % as they are."""
        return MaskedLM(mask_rate=self.mask_rate, mask_share=0.8, random_share=0.1)

    def refusal(self, subject: Subject) -> str | None:
        """Refuse models that do not see to the right of a hidden token."""
        if subject.model.visibility is not Visibility.CAUSAL:
            return None
        return (
            f"{subject.folder.name} is causal: it predicts the next token and fills no masks, so "
            "it has no masked-token loss; causal measures it"
        )

    def check(self, subject: Subject) -> None:
        """See that the split fills a block."""
        self._packed(subject)

    def _packed(self, subject: Subject) -> Packed:
        stream = token_stream(subject.corpus, self.split, subject.tokenizer)
        return pack(stream, subject.block)

    def measure(self, subject: Subject) -> list[Measurement]:
        """Score the model, and what counting and the corruption alone give on the same targets."""
        packed = self._packed(subject)
        blocks = torch.as_tensor(packed.blocks[: self.limit])
        masks = MaskSet.draw(blocks, self.rule, subject.model.vocabulary, self.seed)
        data = f"{subject.corpus.name}/{self.split}"
        saved = masks.save(
            subject.folder / "evaluation" / "masked_token",
            rate=str(self.mask_rate),
            seed=str(self.seed),
            block=str(subject.block),
            data=data,
            tokenizer=subject.tokenizer.hash,
        )
        with full_precision(subject.model.device):
            score = self._score(subject.model, masks)
        checked_nats(score.nats, subject)

        first = "" if self.limit is None else f", first {self.limit} blocks"
        same = {
            "method": (
                f"{100 * self.mask_rate:g}% masked, 80/10/10, blocks of {subject.block}, "
                f"seed {self.seed}{first}"
            ),
            "data": data,
        }
        details = {
            "masks": masks.hash,
            "masks_file": saved.relative_to(subject.folder).as_posix(),
            "block": subject.block,
            "blocks": len(blocks),
            "remainder_tokens": packed.remainder,
        }
        rows = _measurements(score, **same, details=details)
        for name, floor in self._floors(subject, masks).items():
            rows += _measurements(floor, **same, role="baseline", baseline=name)
        return rows

    def _score(self, model: TokenModel, masks: MaskSet) -> Score:
        nats, hits = 0.0, 0
        for batch in masks.batches(self.batch_size):
            inputs, targets = batch.inputs["input_ids"].to(model.device), batch.targets
            asked = (targets != IGNORED).to(model.device)
            answers = targets.to(model.device)[asked]
            logits = model.logits_of(model.hidden(inputs)[asked]).float()
            nats += float(cross_entropy(logits, answers, reduction="none").double().sum())
            hits += int((logits.argmax(-1) == answers).sum())
        return Score(nats, hits, len(masks.answers))

    def _floors(self, subject: Subject, masks: MaskSet) -> dict[str, Score]:
        """Score what counts; the bigram sees the left neighbour, if that is not hidden too."""
        counts = counts_of(subject.corpus, subject.tokenizer)
        rule, answers = self.rule, masks.answers
        floor = ContextFree(
            counts.unigrams,
            subject.model.vocabulary.mask,
            keep_share=1 - rule.mask_share - rule.random_share,
            random_share=rule.random_share,
        )
        commonest = int((answers == counts.unigrams.argmax()).sum())
        guessed = int((answers == floor.guesses(masks.shown)).sum())
        context_free = floor.probabilities(masks.shown, answers)
        before = masks.left_neighbours(subject.model.vocabulary.mask)
        seen = before != subject.model.vocabulary.mask
        bigram = counts.unigram(answers)
        bigram[seen] = counts.bigram(before[seen], answers[seen])
        followed = np.full(len(answers), counts.unigrams.argmax())
        followed[seen] = counts.best_after(before[seen])
        total = len(answers)
        return {
            "uniform": Score(nats_of(counts.uniform(answers)), total / counts.size, total),
            "unigram": Score(nats_of(counts.unigram(answers)), commonest, total),
            "bigram": Score(nats_of(bigram), int((answers == followed).sum()), total),
            "context-free": Score(nats_of(context_free), guessed, total),
        }


def _measurements(score: Score, **same: Any) -> list[Measurement]:
    number = partial(Measurement, count=score.targets, **same)
    loss = score.nats / score.targets
    return [
        number(metric="masked-token loss", unit="nats/target", better="lower", value=loss),
        number(
            metric="masked-token perplexity",
            unit="1/target",
            better="lower",
            value=perplexity(loss),
        ),
        number(
            metric="masked-token accuracy",
            unit="share",
            better="higher",
            value=score.hits / score.targets,
        ),
    ]
