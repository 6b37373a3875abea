"""Many runs, one table: train what is missing, measure what is missing, write it all down."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlmclm import results
from mlmclm.contracts import Row
from mlmclm.errors import UserError
from mlmclm.evaluation import Evaluator
from mlmclm.experiment import ArmConfig, Experiment
from mlmclm.report import write_report
from mlmclm.results import CurvePoint
from mlmclm.run import check, evaluate_run, pretrain_run
from mlmclm.training.record import load_record, write_atomically

logger = logging.getLogger(__name__)

ROWS = "rows.jsonl"
CURVES = "curves.jsonl"
RUNS = "runs"
COMMAND = "command.txt"


@dataclass(frozen=True)
class Planned:
    """One run of an experiment."""

    arm: ArmConfig
    seed: int
    folder: Path


def plan(experiment: Experiment, output: Path) -> list[Planned]:
    """Return all runs, seed by seed, so that a stopped experiment has whole comparisons."""
    return [
        Planned(arm, seed, output / RUNS / f"{arm.name}-seed{seed}")
        for seed in experiment.seeds
        for arm in experiment.arms()
    ]


def curve_of(folder: Path) -> Iterator[CurvePoint]:
    """Read the learning curve of a finished run."""
    record = load_record(folder)
    for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines():
        point = json.loads(line)
        yield CurvePoint(
            arm=record.arm,
            run=folder.name,
            objective=record.objective,
            seed=record.seed,
            step=point["steps"],
            tokens=point["tokens"],
            targets=point["targets"],
            flops=point["flops"],
            seconds=point["seconds"],
            loss=point["loss"],
            metric=record.loss_name,
            unit="nats/target",
        )


def compare(
    experiment: Experiment, output: Path, command: str
) -> tuple[list[Row], list[CurvePoint]]:
    """Run an experiment to its end and write ``rows.jsonl``, tables, plots and the report.

    What is there already is not done again; an interrupted experiment goes on where it stopped.

    Raises:
        UserError: if a run cannot be trained or measured, or the folder holds something else.
    """
    runs = plan(experiment, output)
    for arm in experiment.arms():
        check(arm)
    for number, run in enumerate(runs, 1):
        logger.info("run %d of %d: %s", number, len(runs), run.folder.name)
        pretrain_run(run.arm, run.seed, run.folder)
    rows: list[Row] = []
    for run in runs:
        rows += evaluate_run(run.folder, run.arm.evaluators, experiment.name)
    return write(output, rows, [run.folder for run in runs], command)


def compare_runs(
    folders: Sequence[Path], evaluators: Sequence[Evaluator], output: Path, command: str
) -> tuple[list[Row], list[CurvePoint]]:
    """Measure finished runs and write the same files as `compare`.

    Raises:
        UserError: if two runs are of one arm and seed, since nothing tells them apart in a table.
    """
    seen: dict[tuple[str, int], Path] = {}
    for folder in folders:
        record = load_record(folder)
        other = seen.setdefault((record.arm, record.seed), folder)
        if other != folder:
            raise UserError(
                f"{other} and {folder} are both seed {record.seed} of the arm {record.arm!r}: "
                "compare runs that differ in one of the two"
            )
    rows = [row for folder in folders for row in evaluate_run(folder, evaluators, output.name)]
    return write(output, rows, folders, command)


def write(
    output: Path, rows: Sequence[Row], folders: Sequence[Path], command: str
) -> tuple[list[Row], list[CurvePoint]]:
    """Write rows, curves and the report of finished runs."""
    output.mkdir(parents=True, exist_ok=True)
    points = [point for folder in folders for point in curve_of(folder)]
    results.save(output / ROWS, rows)
    results.save(output / CURVES, points)
    write_atomically(output / COMMAND, command + "\n")
    write_report(output, rows, points, command)
    return list(rows), points


def load(output: Path) -> tuple[list[Row], list[CurvePoint], str | None]:
    """Read the rows, curves and command of a finished comparison.

    Raises:
        UserError: if there are none.
    """
    if not (output / ROWS).is_file():
        raise UserError(f"{output} holds no {ROWS}; mlmclm compare makes one")
    curves = results.load_curves(output / CURVES) if (output / CURVES).is_file() else []
    command = output / COMMAND
    text = command.read_text(encoding="utf-8").strip() if command.is_file() else None
    return results.latest(results.load(output / ROWS)), curves, text
