"""What happens beside the training loop: clock, learning curve, progress, Ctrl-C, NaN."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mlmclm.contracts import Budget, LossSum
from mlmclm.errors import DivergedError
from mlmclm.models.flops import Flops
from mlmclm.timing import synchronize
from mlmclm.training.pretrainer import Pretrainer

logger = logging.getLogger(__name__)


class Stopwatch(TrainerCallback):
    """Seconds of training over all resumptions of a run; validation and saving are left out."""

    def __init__(self, pretrainer: Pretrainer, flops: Flops, tokens_per_step: int) -> None:
        self.pretrainer = pretrainer
        self.flops = flops
        self.tokens_per_step = tokens_per_step
        self._started: float | None = None

    def start(self) -> None:
        """Let the clock run."""
        synchronize(self.pretrainer.model.device)
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Stop the clock and add what it shows to the run's seconds."""
        if self._started is not None:
            synchronize(self.pretrainer.model.device)
            self.pretrainer.seconds_spent += time.perf_counter() - self._started
            self._started = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do something that is not training."""
        was_running = self._started is not None
        self.stop()
        yield
        if was_running:
            self.start()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start with the first batch."""
        self.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop where the weights are about to be saved, and the time so far with them."""
        if control.should_save:
            self.stop()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on once they are on disk."""
        self.start()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop with the last."""
        self.stop()

    def budget(self, steps: int) -> Budget:
        """Return what has been spent after so many steps."""
        tokens = steps * self.tokens_per_step
        targets = int(self.pretrainer.targets_seen)
        running = 0.0 if self._started is None else time.perf_counter() - self._started
        return Budget(
            steps=steps,
            tokens=tokens,
            targets=targets,
            flops=self.flops.total(tokens, targets),
            seconds=float(self.pretrainer.seconds_spent) + running,
        )


class Curve(TrainerCallback):
    """Appends a point of the learning curve to a file at even step intervals, and at the end."""

    def __init__(
        self,
        watch: Stopwatch,
        path: Path,
        validate: Callable[[], LossSum],
        points: int,
    ) -> None:
        self.watch = watch
        self.path = path
        self.validate = validate
        self.points = points
        self._before = LossSum()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Drop points beyond the step that a resumed run goes on from."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        kept = [line for line in lines if _step_of(line) <= state.global_step]
        self.path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        self._before = self.watch.pretrainer.seen

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Measure where a point is due."""
        due = {round(part * state.max_steps / self.points) for part in range(1, self.points + 1)}
        if state.global_step in due:
            with self.watch.paused():
                self._add(state.global_step, args.learning_rate)

    def _add(self, step: int, rate: float) -> None:
        seen = self.watch.pretrainer.seen
        since = LossSum(seen.nats - self._before.nats, seen.targets - self._before.targets)
        self._before = seen
        loss = self.validate().mean
        refuse_divergence(loss, step, rate)
        point = {**self.watch.budget(step).model_dump(), "training_loss": since.mean, "loss": loss}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(point, allow_nan=False) + "\n")
        logger.info("step %d: training loss %.3f, validation loss %.3f", step, since.mean, loss)


def _step_of(line: str) -> float:
    """Return the step of a point; a line that a killed process left half written has none."""
    try:
        return float(json.loads(line)["steps"])
    except json.JSONDecodeError:
        return float("inf")


def refuse_divergence(loss: float, step: int, rate: float) -> None:
    """Stop a run whose loss is no longer a number.

    Raises:
        DivergedError: if ``loss`` is infinite or NaN.
    """
    if not math.isfinite(loss):
        raise DivergedError(
            f"training diverged: the loss was no longer finite at step {step}; "
            f"lower training.learning_rate (it is {rate:g})"
        )


class Divergence(TrainerCallback):
    """Looks at the summed training loss from time to time: NaN and infinity stay in a sum."""

    def __init__(self, pretrainer: Pretrainer, every: int) -> None:
        self.pretrainer = pretrainer
        self.every = every

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Stop where the loss diverged."""
        if state.global_step % self.every == 0:
            loss = float(self.pretrainer.nats_seen)
            refuse_divergence(loss, state.global_step, args.learning_rate)


class StepTimes(TrainerCallback):
    """Seconds between the ends of steps, of a run that is made to time them only."""

    def __init__(self, device: torch.device, most: float) -> None:
        self.device = device
        self.most = most
        """Seconds after which no further step is begun."""
        self.seconds: list[float] = []
        self._last: float | None = None

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note the time since the last step; the first one warms up."""
        synchronize(self.device)
        now = time.perf_counter()
        if self._last is not None:
            self.seconds.append(now - self._last)
        self._last = now
        control.should_training_stop = sum(self.seconds) >= self.most


class Progress(TrainerCallback):
    """A bar on stderr with loss, tokens/s and time left; nothing where stderr is no terminal."""

    def __init__(self, watch: Stopwatch, label: str) -> None:
        self.watch = watch
        self.label = label
        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._shown = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar."""
        self.bars.disable = not self.bars.console.is_terminal
        self.task = self.bars.add_task(self.label, total=state.max_steps, note="")
        self.bars.start()
        self._before = self.watch.pretrainer.seen

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Update twice a second at most, since reading the loss waits for the device."""
        now = time.perf_counter()
        if self.bars.disable or now - self._shown < 0.5:
            return
        self._shown = now
        seen = self.watch.pretrainer.seen
        spent = self.watch.budget(state.global_step)
        loss = (seen.nats - self._before.nats) / max(1, seen.targets - self._before.targets)
        self._before = seen
        note = f"loss {loss:.3f}, {spent.tokens / spent.seconds:,.0f} tokens/s"
        self.bars.update(self.task, completed=state.global_step, note=note)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar."""
        self.bars.stop()


class Marker(TrainerCallback):
    """Marks a checkpoint as complete once every file of it is on disk."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the mark."""
        mark = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / self.name
        with mark.open("w", encoding="utf-8") as file:
            file.write(f"{state.global_step}\n")
            file.flush()
            os.fsync(file.fileno())


class Interruption(TrainerCallback):
    """Turns the first Ctrl-C into: finish the step, save, stop. A second one is not caught."""

    def __init__(self) -> None:
        self.stopped = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Catch Ctrl-C inside the block."""

        def handler(number: int, frame: FrameType | None) -> None:
            self.stopped = True
            signal.signal(signal.SIGINT, before)
            logger.warning("stopping after this step; press Ctrl-C again to stop at once")

        before = signal.signal(signal.SIGINT, handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ask for a checkpoint and for the end."""
        if self.stopped and state.global_step < state.max_steps:
            control.should_save = True
            control.should_training_stop = True
