"""One pretraining run: the stock Hugging Face Trainer around a `Pretrainer`, not subclassed.

Trainer owns the loop, accumulation, resume and devices. What it reports as ``eval_loss`` is a mean
of batch means and is not used; its NaN filter and its column filter are off: both hide faults.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from mlmclm import seeds
from mlmclm.contracts import IGNORED, Batch, Budget, LossSum, Vocabulary
from mlmclm.errors import UserError
from mlmclm.files import write_whole
from mlmclm.models.flops import Flops, training_flops
from mlmclm.models.presets import Knobs, build
from mlmclm.models.token_model import TokenModel
from mlmclm.objectives import Objective
from mlmclm.training.callbacks import (
    Curve,
    Divergence,
    Interruption,
    Marker,
    Progress,
    StepTimes,
    Stopwatch,
)
from mlmclm.training.data import TrainingRows, collate
from mlmclm.training.options import BudgetOptions, StepCost, TrainingOptions, steps_for
from mlmclm.training.pretrainer import Pretrainer
from mlmclm.training.probe import fastest, fastest_precision

CHECKPOINTS = "checkpoints"
SETTING = "setting.json"
COMPLETE = "complete"
TIMED_STEPS = 40
TIMED_SECONDS = 10.0
"""How long steps are timed, where a budget is given in seconds: whichever comes first."""


@dataclass(frozen=True)
class Setting:
    """What the probe chose. Kept in the run folder: resumed, or of other seed, it is the same."""

    precision: str
    kernel: str
    steps: int


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """Everything that one run is a function of, apart from the machine."""

    model: str
    """Preset, config or hub id."""
    objective: Objective
    vocabulary: Vocabulary
    train: Tensor
    """(blocks, time) tokens."""
    validation: Tensor
    """(blocks, time) tokens."""
    budget: BudgetOptions
    options: TrainingOptions
    seed: int
    device: torch.device

    @property
    def block(self) -> int:
        """Tokens in a block."""
        return int(self.train.shape[1])

    def build(self, kernel: str) -> TokenModel:
        """Make the model with the weights that the run starts from.

        Raises:
            UserError: if it has fewer positions than a block has tokens.
        """
        knobs = Knobs(
            dropout=self.options.dropout,
            initializer_range=self.options.initializer_range,
            kernel=kernel,
        )
        model = build(self.model, self.objective.visibility, self.vocabulary, self.seed, knobs)
        if self.block > model.positions:
            raise UserError(
                f"corpus.block is {self.block} tokens, but the model {self.model!r} has "
                f"{model.positions} positions: use a block of at most {model.positions}"
            )
        return model.to(self.device)

    def rows(self, steps: int) -> TrainingRows:
        """Return the rows of a run of so many steps."""
        size = steps * self.options.batch_size
        return TrainingRows(self.train, self.objective, self.vocabulary, self.seed, size)

    @cached_property
    def flops(self) -> Flops:
        """Cost per token and target, by formula."""
        return training_flops(self.build("eager"), self.block)

    def step_cost(self, seconds: float | None = None) -> StepCost:
        """Return what a step takes in each unit."""
        tokens = self.options.batch_size * self.block
        targets = tokens * self.objective.target_share(self.block)
        return StepCost(
            tokens=tokens,
            targets=targets,
            flops=self.flops.total(tokens, targets),
            epochs=self.options.batch_size / len(self.train),
            seconds=seconds,
        )


def one_step(job: Pretraining, kernel: str, precision: torch.dtype) -> Callable[[], None]:
    """Return an action that does all that a step of the run does, on a model of its own."""
    options = job.options
    pretrainer = Pretrainer(job.build(kernel)).train()
    optimizer = torch.optim.AdamW(pretrainer.parameters(), options.learning_rate, fused=True)
    rows = job.rows(1)
    size = options.batch_size // options.accumulation

    def step() -> None:
        for start in range(0, options.batch_size, size):
            batch = collate([rows[row] for row in range(start, start + size)])
            batch = {name: value.to(job.device) for name, value in batch.items()}
            low = precision is torch.bfloat16
            with torch.autocast(job.device.type, torch.bfloat16, enabled=low):
                loss = pretrainer(**batch)["loss"]
            loss.backward()
        torch.nn.utils.clip_grad_norm_(pretrainer.parameters(), options.clip)
        optimizer.step()
        optimizer.zero_grad()

    return step


def choose_setting(job: Pretraining) -> Setting:
    """Time what is left to ``auto``, and turn the budget into steps."""
    options = job.options
    names = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    automatic = options.precision == "auto"
    precision = fastest_precision(job.device) if automatic else names[options.precision]

    kernel: str = options.kernel
    if kernel == "auto":
        kernel = fastest(
            job.build("eager").kernels, lambda kernel: one_step(job, kernel, precision), job.device
        )
    setting = Setting(str(precision).removeprefix("torch."), kernel, steps=TIMED_STEPS)
    seconds = _seconds_per_step(job, setting) if job.budget.unit == "seconds" else None
    return replace(setting, steps=steps_for(job.budget, job.step_cost(seconds)))


def _seconds_per_step(job: Pretraining, setting: Setting) -> float:
    """Return the median over some steps that are made as the run will make them, and forgotten."""
    times = StepTimes(job.device, TIMED_SECONDS)
    with TemporaryDirectory() as folder:
        arguments = _arguments(job, setting, Path(folder), save="no")
        pretrainer = Pretrainer(job.build(setting.kernel))
        _trainer(job, setting, pretrainer, arguments, [times]).train()
    return median(times.seconds)


def validation_batches(job: Pretraining, blocks: Tensor, size: int = 32) -> Iterator[Batch]:
    """Yield the validation blocks, corrupted the same way each time and for each run.

    The masks of row ``k`` depend on nothing but ``k``: neither the run's seed nor the batch size.
    """
    for start in range(0, len(blocks), size):
        items = []
        for row in range(start, min(start + size, len(blocks))):
            rng = seeds.generator(0, "validation", row)
            tokens = blocks[row].to(torch.long)[None]
            items.append(job.objective.corrupt(tokens, job.vocabulary, rng))
        yield Batch(
            {"input_ids": torch.cat([item.inputs["input_ids"] for item in items])},
            torch.cat([item.targets for item in items]),
        )


@torch.inference_mode()
def validation_loss(
    job: Pretraining, model: TokenModel, blocks: Tensor, precision: str = "float32"
) -> LossSum:
    """Return the summed loss of the objective over validation blocks, dropout off."""
    was_training = model.training
    model.eval()
    total = LossSum()
    low = precision == "bfloat16"
    with torch.autocast(job.device.type, torch.bfloat16, enabled=low):
        for batch in validation_batches(job, blocks):
            targets = batch.targets.to(job.device)
            nats = model.nats(batch.inputs["input_ids"].to(job.device), targets)
            total += LossSum(nats.item(), int((targets != IGNORED).sum()))
    model.train(was_training)
    return total


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint that was written to its end."""
    found = [
        path for path in (folder / CHECKPOINTS).glob("checkpoint-*") if (path / COMPLETE).is_file()
    ]
    return max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _arguments(
    job: Pretraining, setting: Setting, folder: Path, save: str = "steps"
) -> TrainingArguments:
    options = job.options
    arguments = TrainingArguments(
        output_dir=str(folder / CHECKPOINTS),
        max_steps=setting.steps,
        per_device_train_batch_size=options.batch_size // options.accumulation,
        gradient_accumulation_steps=options.accumulation,
        learning_rate=options.learning_rate,
        warmup_steps=math.ceil(options.warmup_share * setting.steps),
        lr_scheduler_type=options.schedule,
        weight_decay=options.weight_decay,
        adam_beta1=options.betas[0],
        adam_beta2=options.betas[1],
        max_grad_norm=options.clip,
        optim="adamw_torch_fused",
        bf16=setting.precision == "bfloat16",
        use_cpu=job.device.type == "cpu",
        train_sampling_strategy="sequential",
        save_strategy=save,
        save_steps=max(1, math.ceil(setting.steps / options.checkpoints)),
        save_total_limit=2,
        logging_strategy="no",
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        report_to=[],
        disable_tqdm=True,
        seed=seeds.derive(job.seed, "dropout") % 2**31,
        dataloader_pin_memory=job.device.type == "cuda",
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # DataParallel would copy the counts of `Pretrainer`
    return arguments


@dataclass(frozen=True)
class Outcome:
    """A finished run."""

    model: TokenModel
    budget: Budget
    validation: LossSum
    setting: Setting


def _setting_of(job: Pretraining, folder: Path, alike: Sequence[Path]) -> Setting:
    chosen = (place / SETTING for place in (folder, *alike))
    there = next((path for path in chosen if path.is_file()), None)
    setting = choose_setting(job) if there is None else _load_setting(there)
    write_whole(folder / SETTING, json.dumps(vars(setting)))
    return setting


def _load_setting(path: Path) -> Setting:
    try:
        return Setting(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{path} is damaged ({error}); without it, the run is begun with what is fastest now"
        ) from error


def _trainer(
    job: Pretraining,
    setting: Setting,
    pretrainer: Pretrainer,
    arguments: TrainingArguments,
    callbacks: list[TrainerCallback],
) -> Trainer:
    trainer = Trainer(
        model=pretrainer,
        args=arguments,
        train_dataset=job.rows(setting.steps),
        data_collator=collate,
        callbacks=callbacks,
    )
    trainer.remove_callback(PrinterCallback)  # it writes to stdout, which is for results
    return trainer


def pretrain(
    job: Pretraining,
    folder: Path,
    *,
    resume: bool = False,
    label: str = "",
    alike: Sequence[Path] = (),
) -> Outcome:
    """Train one run and leave its curve in ``folder/train.jsonl``.

    Args:
        job: what to train.
        folder: of the run; exists.
        resume: go on from the last checkpoint, if there is one.
        label: what the progress bar calls the run.
        alike: folders of runs that differ by seed only, whose setting is taken over.

    Raises:
        KeyboardInterrupt: after Ctrl-C, with a checkpoint of the last finished step on disk.
        UserError: if the loss stops being a number, or the disk is full.
    """
    setting = _setting_of(job, folder, alike)
    pretrainer = Pretrainer(job.build(setting.kernel))
    watch = Stopwatch(pretrainer, job.flops, job.options.batch_size * job.block)
    validate = _validator(job, pretrainer, setting)
    interruption = Interruption()
    callbacks: list[TrainerCallback] = [
        interruption,  # before the watch, which books the time where a checkpoint is due
        watch,
        Divergence(pretrainer, every=1 if job.device.type == "cpu" else 20),
        Curve(watch, folder / "train.jsonl", validate, job.options.evaluations),
        Progress(watch, label),
        Marker(COMPLETE),
    ]
    trainer = _trainer(job, setting, pretrainer, _arguments(job, setting, folder), callbacks)
    start = last_checkpoint(folder) if resume else None
    with interruption.listening():
        trainer.train(resume_from_checkpoint=str(start) if start else None)
    if trainer.state.global_step < setting.steps:
        raise KeyboardInterrupt
    pretrainer.model.eval()
    last = job.validation[: job.options.final_blocks]
    total = validation_loss(job, pretrainer.model, last, setting.precision)
    return Outcome(pretrainer.model, watch.budget(setting.steps), total, setting)


def _validator(job: Pretraining, pretrainer: Pretrainer, setting: Setting) -> Callable[[], LossSum]:
    blocks = job.validation[: job.options.validation_blocks]
    return lambda: validation_loss(job, pretrainer.model, blocks, setting.precision)
