"""What an experiment will take, before it is run: a few steps are timed, nothing is trained.

Time is that of pretraining alone: evaluation comes on top. Memory is weights, gradients and
optimizer by size, and what one step keeps for its backward pass by looking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from mlmclm.experiment import ArmConfig, Experiment
from mlmclm.run import check, job_of
from mlmclm.training.engine import Pretraining, Setting, choose_setting, one_step
from mlmclm.training.probe import seconds_of

STATE_BYTES = 16
"""Bytes for each weight: itself, its gradient and two moments, all float32."""


def kept_for_backward(job: Pretraining, setting: Setting) -> int:
    """Return the bytes that a micro-batch keeps between its forward and its backward pass."""
    options = job.options
    batch = options.batch_size // options.accumulation
    job = replace(job, options=options.model_copy(update={"batch_size": batch, "accumulation": 1}))
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    step = one_step(job, setting.kernel, getattr(torch, setting.precision))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        step()
    return sum(seen.values())


def _lines(arm: ArmConfig, runs: int) -> Iterator[str]:
    job = job_of(arm, seed=0)
    setting = choose_setting(job)
    model = job.build(setting.kernel)
    step = seconds_of(
        one_step(job, setting.kernel, getattr(torch, setting.precision)), job.device, repeats=5
    )
    cost = job.step_cost()
    parameters = model.parameters_total
    memory = STATE_BYTES * parameters + kept_for_backward(job, setting)
    seconds = setting.steps * step
    yield f"{arm.name}: {arm.model}, {type(model.network).__name__}, {parameters:,} parameters"
    yield (
        f"  {setting.steps:,} steps: {setting.steps * cost.tokens:,.0f} tokens, "
        f"{setting.steps * cost.targets:,.0f} targets, {setting.steps * cost.epochs:.2f} epochs, "
        f"{setting.steps * cost.flops:.3g} FLOPs"
    )
    yield (
        f"  about {seconds:,.0f} s a run ({cost.tokens / step:,.0f} "
        f"tokens/s, {setting.precision}, {setting.kernel}), {runs * seconds:,.0f} s for "
        f"{runs} seeds; about {memory / 2**20:,.0f} MiB beside the program itself"
    )
    yield "  " + arm.to_toml().replace("\n", "\n  ").rstrip()


def forecast(experiment: Experiment) -> Iterator[str]:
    """Yield the lines that `mlmclm check` prints."""
    arms = experiment.arms()
    seeds = ", ".join(map(str, experiment.seeds))
    yield f"{experiment.name}: {len(arms)} arms, seeds {seeds}"
    for arm in arms:
        check(arm)
    for arm in arms:
        yield from _lines(arm, len(experiment.seeds))
