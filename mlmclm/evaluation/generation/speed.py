"""How long it takes to write: time to the first token, between tokens, and over several lengths.

Both families write the same number of new tokens behind the same prompt, and nothing stops early,
so that times at one length stand side by side. What was done in that time differs: one pass a token
with a cache against T passes over everything, and the texts are not equally good. Quality is not
measured here.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mlmclm import seeds
from mlmclm.contracts import Count, Measurement
from mlmclm.corpora.packing import token_stream
from mlmclm.decoding.base import Decoder
from mlmclm.decoding.left_to_right import LeftToRightDecoder
from mlmclm.decoding.mask_predict import MaskPredictDecoder
from mlmclm.decoding.memory import cache_bytes, peak_of
from mlmclm.errors import UserError
from mlmclm.evaluation.base import EVALUATORS, Evaluator, Subject
from mlmclm.models.token_model import TokenModel
from mlmclm.timing import synchronize

STABLE = 1.2
"""Warm-up ends when two runs in a row differ by less than this factor."""
MOST_WARM_UPS = 8
MIB = 2**20
CONTENTS = {
    False: ("whole process", "all resident memory, Python and libraries included,"),
    True: ("device memory", "what torch allocated on the device,"),
}
"""How peak memory is measured on a CUDA device or not: in the method, and in full."""


@dataclass(frozen=True)
class Timed:
    """One generation: seconds from its start at which tokens arrived."""

    arrivals: tuple[float, ...]
    counts: tuple[int, ...]
    """How many tokens arrived at each."""

    @property
    def total(self) -> float:
        """Seconds until the last token."""
        return self.arrivals[-1]

    @property
    def per_token(self) -> float:
        """Seconds until the last token over the number of tokens, the same for every decoder."""
        return self.total / sum(self.counts)

    @property
    def between(self) -> list[float]:
        """Seconds between tokens after the first; none where all come together."""
        return [b - a for a, b in pairwise(self.arrivals)]


def timed(
    write: Callable[[Callable[[int], None]], object],
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> Timed:
    """Run a generation once and note when its tokens arrive."""
    arrivals: list[float] = []
    counts: list[int] = []

    def arrived(tokens: int) -> None:
        synchronize(device)
        arrivals.append(clock() - started)
        counts.append(tokens)

    synchronize(device)
    started = clock()
    write(arrived)
    return Timed(tuple(arrivals), tuple(counts))


def warmed_up(run: Callable[[], Timed], least: int) -> int:
    """Run until two in a row take about the same; return how many runs that took."""
    before = run().total
    most = max(least, MOST_WARM_UPS)
    for number in range(2, most + 1):
        now = run().total
        if number >= least and max(now, before) < STABLE * min(now, before):
            return number
        before = now
    return most


@contextmanager
def _kernel(model: TokenModel, name: str) -> Iterator[None]:
    """Let a model use another attention implementation inside the block."""
    before = model.network.config._attn_implementation
    model.network.set_attn_implementation(name)
    try:
        yield
    finally:
        model.network.set_attn_implementation(before)


@dataclass(frozen=True, kw_only=True)
class Speed(Evaluator):
    """Seconds of one decoder, batch 1, warm-up left out."""

    group: ClassVar[str] = "generation"
    kernel: ClassVar[str | None] = "sdpa"

    prompt_tokens: Count = 32
    """First tokens of a validation document, the end token before it being one."""
    new_tokens: Count = 64
    """How many are written; nothing stops earlier."""
    lengths: tuple[Count, ...] = (16, 32, 64, 128, 256)
    """Numbers of new tokens for the curve of time against length."""
    repeats: Count = 5
    """Timed runs of each length."""
    warm_up: Count = 2
    """Untimed runs at least; more until two in a row agree."""

    @property
    @abstractmethod
    def decoder(self) -> Decoder:
        """What is timed."""

    def refusal(self, subject: Subject) -> str | None:
        """Return why the decoder does not fit the run."""
        return self.decoder.refusal(subject.model)

    def check(self, subject: Subject) -> None:
        """See that there is a prompt, room for it and the longest text, and the kernel."""
        self._prompt(subject)
        if self.kernel not in subject.model.kernels:
            raise UserError(
                f"generation is timed under {self.kernel} attention, which "
                f"{type(subject.model.network).__name__} does not have: leave evaluation."
                f"{EVALUATORS.name_of(self)} out"
            )
        longest, room = max(self.new_tokens, *self.lengths, 0), subject.model.positions
        if self.prompt_tokens + longest > room:
            name = "new_tokens" if longest == self.new_tokens else "lengths"
            raise UserError(
                f"evaluation.{EVALUATORS.name_of(self)}.{name} asks for {longest} tokens behind a "
                f"prompt of {self.prompt_tokens}, but the model has {room} positions: use at most "
                f"{room - self.prompt_tokens}"
            )

    def measure(self, subject: Subject) -> list[Measurement]:
        """Time the decoder at one length in detail, and at several in total."""
        prompt = self._prompt(subject)
        lengths = sorted({self.new_tokens, *self.lengths})
        with _kernel(subject.model, str(self.kernel)):
            runs = {length: self._runs(subject, prompt, length) for length in lengths}
            return [
                *self._in_detail(runs[self.new_tokens], subject),
                self._memory(subject, prompt),
                *(self._in_total(length, runs[length], subject) for length in self.lengths),
            ]

    def _prompt(self, subject: Subject) -> Tensor:
        """Return (1, prompt_tokens): how a validation document begins, the same in all runs.

        A document that is shorter runs on into the next.
        """
        tokens = token_stream(subject.corpus, "validation", subject.tokenizer).tokens
        if len(tokens) < self.prompt_tokens:
            raise UserError(
                f"{subject.corpus.name}/validation has {len(tokens)} tokens, too few for a prompt "
                f"of {self.prompt_tokens}"
            )
        starts = np.flatnonzero(tokens == subject.tokenizer.vocabulary.end)
        starts = starts[starts + self.prompt_tokens <= len(tokens)]
        rng = seeds.generator(0, "prompt")
        start = int(starts[int(torch.randint(len(starts), (1,), generator=rng))])
        return torch.from_numpy(tokens[start : start + self.prompt_tokens].astype(np.int64))[None]

    def _runs(self, subject: Subject, prompt: Tensor, new_tokens: int) -> list[Timed]:
        device = subject.model.device
        prompt = prompt.to(device)

        def run() -> Timed:
            return timed(
                lambda arrived: self.decoder.generate(
                    subject.model, prompt, new_tokens, arrived=arrived
                ),
                device,
            )

        warmed_up(run, self.warm_up)
        return [run() for _ in range(self.repeats)]

    def _frame(self, subject: Subject, length: int) -> Measurement:
        """Return what all measurements at one length have in common."""
        return Measurement(
            metric="",
            method=f"prompt {self.prompt_tokens}, new {length}, batch 1, greedy",
            unit="",
            better="lower",
            value=0.0,
            count=1,
            data=f"{subject.corpus.name}/validation",
            details={
                "decoder": self.decoder.describe(subject.model),
                "threads": torch.get_num_threads(),
                "dtype": str(subject.model.network.dtype).removeprefix("torch."),
                "new_tokens": length,
            },
        )

    def _memory(self, subject: Subject, prompt: Tensor) -> Measurement:
        model, frame = subject.model, self._frame(subject, self.new_tokens)
        peak = peak_of(model, self.decoder, prompt[0].tolist(), self.new_tokens)
        kept = self.prompt_tokens + self.new_tokens - 1 if self.decoder.cached(model) else 0
        where, contains = CONTENTS[model.device.type == "cuda"]
        more = {
            "contains": f"{contains} of a process that only loads the model and generates",
            "before_generating_mib": peak.before / MIB,
            "kv_cache_bytes": peak.kv_cache,
            "kv_cache_bytes_by_formula": cache_bytes(
                model.network.config, kept, model.network.dtype.itemsize
            ),
        }
        return replace(
            frame,
            metric="peak memory",
            method=f"{frame.method}, {where}",
            unit="MiB",
            value=peak.after / MIB,
            details={**frame.details, **more},
        )

    def _in_detail(self, runs: list[Timed], subject: Subject) -> Iterator[Measurement]:
        frame = self._frame(subject, self.new_tokens)
        each = [run.per_token for run in runs]
        between = [gap for run in runs for gap in run.between]
        totals = [run.total for run in runs]
        more = {
            "arrival": "one by one" if between else "all together",
            "totals_s": totals,
            "p90_s": float(np.quantile(totals, 0.9)),
        }
        frame = replace(frame, details={**frame.details, **more})
        numbers: list[tuple[str, str, float, int]] = [
            ("time to first token", "s", median(run.arrivals[0] for run in runs), len(runs)),
            ("time per token, median", "s/token", median(each), len(each)),
            ("time per token, p90", "s/token", float(np.quantile(each, 0.9)), len(each)),
            ("forward passes", "passes", float(self.decoder.passes(self.new_tokens)), 1),
        ]
        if between:
            numbers += [
                ("time between tokens, median", "s", median(between), len(between)),
                ("time between tokens, p90", "s", float(np.quantile(between, 0.9)), len(between)),
            ]
        for metric, unit, value, count in numbers:
            yield replace(frame, metric=metric, unit=unit, value=value, count=count)
        yield replace(
            frame,
            metric="throughput",
            unit="tokens/s",
            better="higher",
            value=self.new_tokens / median(totals),
            count=len(runs),
        )

    def _in_total(self, length: int, runs: list[Timed], subject: Subject) -> Measurement:
        totals = [run.total for run in runs]
        frame = self._frame(subject, length)
        more = {"totals_s": totals, "p90_s": float(np.quantile(totals, 0.9))}
        return replace(
            frame,
            metric="generation time",
            unit="s",
            value=median(totals),
            count=len(totals),
            details={**frame.details, **more},
        )


@EVALUATORS.register("left_to_right")
@dataclass(frozen=True, kw_only=True)
class LeftToRightSpeed(Speed):
    """Seconds of writing left to right with a KV cache."""

    cache: bool = True
    """Keep keys and values of earlier positions."""

    @property
    def decoder(self) -> Decoder:
        """Greedy decoding."""
        return LeftToRightDecoder(cache=self.cache)


@EVALUATORS.register("mask_predict")
@dataclass(frozen=True, kw_only=True)
class MaskPredictSpeed(Speed):
    """Seconds of writing by Mask-Predict; all tokens arrive together."""

    iterations: Count = 10
    """Passes over the whole text."""

    @property
    def decoder(self) -> Decoder:
        """The most probable token everywhere."""
        return MaskPredictDecoder(iterations=self.iterations)
