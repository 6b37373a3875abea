"""Made-up rows and curves: two arms, three seeds, all kinds of numbers, with known answers."""

from __future__ import annotations

import math
from typing import Any

from mlmclm.contracts import Budget, Provenance, Row
from mlmclm.results import CurvePoint

SEEDS = (0, 1, 2)
MASKED = "15% masked, 80/10/10, seed 0"
LEFT_TO_RIGHT = "left to right, context 128, stride 64"
TEST = "wikitext-2/test"

PROVENANCE = Provenance(
    commit="0123456789abcdef",
    versions={"torch": "2.13.0", "transformers": "5.24.0"},
    platform="Linux x86_64",
    device="cpu (2 cores)",
    threads=2,
    dtype="bfloat16",
    kernel="sdpa",
    data_hash="d" * 64,
    tokenizer_hash="e" * 64,
    config_hash="f" * 64,
    created="2026-12-01T12:00:00Z",
)


def row(arm: str = "clm", seed: int = 0, value: float = 4.5, **changes: Any) -> Row:
    """Return one row of a causal likelihood, with any field changed."""
    share = 0.15 if arm == "mlm" else 127 / 128
    fields: dict[str, Any] = {
        "experiment": "tiny", "arm": arm, "run": f"{arm}-seed{seed}", "objective": arm,
        "trunk": "tiny", "parameters": 1_581_696, "seed": seed, "metric": "negative log-likelihood",
        "method": LEFT_TO_RIGHT, "unit": "nats/token", "better": "lower", "value": float(value),
        "count": 1000, "data": TEST, "role": "model", "baseline": "", "details": {},
        "budget": Budget(steps=1200, tokens=9_830_400, targets=int(9_830_400 * share),
                         flops=4.512e13 * (1 + share / 10), seconds=74.2 + seed),
        "provenance": PROVENANCE,
    }  # fmt: skip
    return Row(**fields | changes)


def runs(arm: str, values: tuple[float, ...], **changes: Any) -> list[Row]:
    """Return one row per seed."""
    return [row(arm, seed, value, **changes) for seed, value in enumerate(values)]


def shared(arms: tuple[str, ...], name: str, value: float, **changes: Any) -> list[Row]:
    """Return a baseline as each run measures it again."""
    changes |= {"role": "baseline", "baseline": name}
    return [row(arm, seed, value, **changes) for arm in arms for seed in SEEDS]


def _causal() -> list[Row]:
    rows = []
    for unit, scale in (("nats/token", 1.0), ("nats/word", 1.19), ("bits/byte", 0.3495)):
        rows += runs("clm", tuple(scale * each for each in (4.612, 4.598, 4.631)), unit=unit)
        for name, value in (("uniform", 9.011), ("unigram", 6.79), ("bigram", 4.84)):
            rows += shared(("clm",), name, scale * value, unit=unit)
    for unit in ("1/token", "1/word"):
        power = 1.0 if unit == "1/token" else 1.19
        changes: dict[str, Any] = {"metric": "perplexity", "unit": unit}
        rows += runs("clm", tuple(math.exp(power * x) for x in (4.612, 4.598, 4.631)), **changes)
        for name, value in (("uniform", 9.011), ("unigram", 6.79), ("bigram", 4.84)):
            rows += shared(("clm",), name, math.exp(power * value), **changes)
    return rows


def _masked() -> list[Row]:
    loss: dict[str, Any] = {"metric": "masked-token loss", "method": MASKED, "unit": "nats/target"}
    rows = runs("mlm", (6.312, 6.287, 6.335), **loss)
    for name, value in (("uniform", 9.011), ("unigram", 6.77), ("context-free", 6.196)):
        rows += shared(("mlm",), name, value, **loss)
    perplexity = loss | {"metric": "masked-token perplexity", "unit": "1/target"}
    rows += runs("mlm", tuple(map(math.exp, (6.312, 6.287, 6.335))), **perplexity)
    for name, value in (("uniform", 9.011), ("unigram", 6.77), ("context-free", 6.196)):
        rows += shared(("mlm",), name, math.exp(value), **perplexity)
    accuracy = loss | {"metric": "masked-token accuracy", "unit": "share", "better": "higher"}
    rows += runs("mlm", (0.2012, 0.2051, 0.1987), **accuracy)
    rows += shared(("mlm",), "context-free", 0.1702, **accuracy)
    pseudo = {"metric": "pseudo-perplexity", "method": "one mask at a time, 200 passages"}
    return rows + runs("mlm", (812.4, 790.2, 845.9), unit="1/word", **pseudo)


TASKS = {
    "mr/test": ((0.701, 0.694, 0.698), (0.652, 0.649, 0.655), 0.5, 0.722),
    "subj/test": ((0.872, 0.869, 0.875), (0.868, 0.874, 0.861), 0.5, 0.905),
    "clinc150/test": ((0.671, 0.662, 0.669), (0.702, 0.699, 0.708), 0.0067, 0.871),
}
METHODS = {"linear probe, mean pooling": 0.0, "fine-tuning, mean pooling": 0.041}


def classification() -> list[Row]:
    """Return accuracies of both arms, untrained models and baselines."""
    rows = []
    for method, gain in METHODS.items():
        for data, (mlm, clm, majority, tfidf) in TASKS.items():
            same: dict[str, Any] = {"metric": "accuracy", "method": method, "unit": "share"}
            same |= {"better": "higher", "data": data}
            for arm, values in (("mlm", mlm), ("clm", clm)):
                rows += runs(arm, tuple(value + gain for value in values), **same)
                weaker = tuple(value - 0.09 for value in values)
                rows += runs(arm, weaker, role="untrained", baseline="from scratch", **same)
            rows += shared(("mlm", "clm"), "majority class", majority, **same)
            rows += shared(("mlm", "clm"), "TF-IDF", tfidf, **same)
    return rows


DECODERS = {
    "clm": ("left to right, KV cache", lambda n: 0.004 + 0.0031 * n, lambda n: n),
    "mlm": ("Mask-Predict, 10 passes", lambda n: 0.02 + 0.0007 * n, lambda n: 10),
}


def generation(lengths: tuple[int, ...] = (16, 32, 64, 128)) -> list[Row]:
    """Return speeds of both arms at several lengths."""
    rows = []
    for arm, (decoder, seconds, passes) in DECODERS.items():
        for length in lengths:
            time = seconds(length)
            same: dict[str, Any] = {"data": "wikitext-2/validation prompts",
                                    "method": f"{decoder}, {length} new tokens",
                                    "details": {"new_tokens": length}}  # fmt: skip
            for metric, unit, better, value in (
                ("time to first token", "s", "lower", 0.0043 if arm == "clm" else time),
                ("time per token, median", "s/token", "lower", time / length),
                ("throughput", "tokens/s", "higher", length / time),
                ("forward passes", "passes", "lower", passes(length)),
                ("generation time", "s", "lower", time),
                ("peak memory", "MiB", "lower", 412.0),
            ):
                spread = 0.0 if metric == "forward passes" else 0.03
                values = tuple(value * (1 + spread * (seed - 1)) for seed in SEEDS)
                rows += runs(arm, values, metric=metric, unit=unit, better=better, **same)
    return rows


def everything() -> list[Row]:
    """Return all of the above."""
    return [*_masked(), *_causal(), *classification(), *generation()]


def curves() -> list[CurvePoint]:
    """Return a learning curve for each run."""
    points = []
    for arm, metric, end in (("mlm", "masked-token loss", 6.3),
                             ("clm", "negative log-likelihood", 4.6)):  # fmt: skip
        for seed in SEEDS:
            for step in range(0, 1201, 100):
                loss = end + (9.01 - end) * math.exp(-step / 250) + 0.02 * (seed - 1)
                points.append(
                    CurvePoint(
                        arm=arm, run=f"{arm}-seed{seed}", objective=arm, seed=seed, step=step,
                        tokens=step * 8192, targets=step * 1229, flops=step * 3.7e10,
                        seconds=step * 0.06, loss=loss, metric=metric, method="blocks of 128",
                        unit="nats/target", data="wikitext-2/validation",
                    )
                )  # fmt: skip
    return points
