"""Clocks. All durations are seconds of `time.perf_counter`; devices are waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

import torch


def synchronize(device: torch.device | str) -> None:
    """Wait until the device has done all that was asked of it (nothing to wait for on a CPU)."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


class Timer:
    """Adds up the time spent inside ``with`` blocks.

    >>> timer = Timer()
    >>> with timer:
    ...     pass
    >>> timer.seconds >= 0
    True
    """

    def __init__(
        self, device: torch.device | str = "cpu", clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.device = device
        self.clock = clock
        self.seconds = 0.0

    def __enter__(self) -> Timer:
        synchronize(self.device)
        self._started = self.clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        synchronize(self.device)
        self.seconds += self.clock() - self._started
