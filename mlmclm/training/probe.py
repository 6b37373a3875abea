"""Which precision and which attention kernel are fast depends on the machine: time them, choose.

On CPU, bfloat16 is about four times as fast as float32 where the processor has it (avx512_bf16,
amx) and slower where it has not; CPU flash attention is the slower kernel at short lengths.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import lru_cache

import torch

from mlmclm.timing import synchronize


def seconds_of(action: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    """Return the fastest of ``repeats`` timings after one warm-up."""
    action()
    times = []
    for _ in range(repeats):
        synchronize(device)
        started = time.perf_counter()
        action()
        synchronize(device)
        times.append(time.perf_counter() - started)
    return min(times)


@lru_cache
def fastest_precision(device: torch.device) -> torch.dtype:
    """Return the faster of float32 and bfloat16 for a (1024, 512) by (512, 1024) product."""

    def product(dtype: torch.dtype) -> Callable[[], object]:
        left = torch.ones(1024, 512, dtype=dtype, device=device)
        right = torch.ones(512, 1024, dtype=dtype, device=device)
        return lambda: left @ right

    choices = (torch.float32, torch.bfloat16)
    return min(choices, key=lambda dtype: seconds_of(product(dtype), device, repeats=5))


def fastest(
    choices: Iterable[str], step: Callable[[str], Callable[[], object]], device: torch.device
) -> str:
    """Return the choice whose step takes the least time.

    Args:
        choices: names, the preferred first.
        step: makes, for a name, the action to time.
        device: to wait for.
    """
    return min(choices, key=lambda name: seconds_of(step(name), device))
