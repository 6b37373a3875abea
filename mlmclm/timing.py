"""Clocks. Devices are waited for, since they work on after a call returns."""

from __future__ import annotations

import torch


def synchronize(device: torch.device | str) -> None:
    """Wait until the device has done all that was asked of it (nothing to wait for on a CPU)."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
