"""Many runs, one table: train what is missing, measure what is missing, write it all down."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlmclm import results
from mlmclm.contracts import Row
from mlmclm.errors import DivergedError, UserError
from mlmclm.evaluation import Evaluator
from mlmclm.experiment import ArmConfig, Experiment
from mlmclm.files import write_whole
from mlmclm.report import write_report
from mlmclm.results import CurvePoint
from mlmclm.run import (
    check,
    check_run,
    evaluate_run,
    load_arm,
    locked,
    pretrain_run,
    validation_method,
)
from mlmclm.training.record import load_record

logger = logging.getLogger(__name__)

ROWS = "rows.jsonl"
CURVES = "curves.jsonl"
RUNS = "runs"
COMMAND = "command.txt"
CLAIM = "arms.json"
"""Which comparison a results folder belongs to."""


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
    """Read the learning curve of a finished run.

    Raises:
        UserError: if it is missing or damaged.
    """
    record = load_record(folder)
    method = validation_method(record, load_arm(folder).training.validation_blocks)
    path = folder / "train.jsonl"
    try:
        points = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise UserError(f"the learning curve {path} cannot be read: {error}") from error
    for point in points:
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
            method=method,
            unit="nats/target",
            data=f"{record.corpus}/validation",
        )


def arm_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Return what to call the arm of each run, so that one name means one configuration.

    Runs that were trained by different options may carry the same name (every `mlmclm pretrain`
    calls its arm after the objective); then each configuration is called after the folder of its
    first run, less the seed.

    Raises:
        UserError: if two runs are of one configuration and seed, since nothing tells them apart.
    """
    seen: dict[tuple[str, str, int], Path] = {}
    groups: dict[tuple[str, str], list[Path]] = {}
    for folder in folders:
        record = load_record(folder)
        config = record.provenance.config_hash
        other = seen.setdefault((record.arm, config, record.seed), folder)
        if other != folder:
            raise UserError(
                f"{other} and {folder} are the same configuration with the same seed, "
                f"{record.seed}: compare runs that differ in one of the two"
            )
        groups.setdefault((record.arm, config), []).append(folder)
    shared = Counter(arm for arm, _ in groups)
    short = {
        group: re.sub(r"-seed\d+$", "", runs[0].resolve().name) for group, runs in groups.items()
    }
    taken = Counter(short.values())
    names = {}
    for group, runs in groups.items():
        name = group[0]
        if shared[name] > 1:
            name = short[group] if taken[short[group]] == 1 else str(runs[0])
        names.update(dict.fromkeys(runs, name))
    return names


def measure(
    folders: Sequence[Path],
    evaluators: Mapping[Path, Sequence[Evaluator]],
    experiment: str,
    failures: list[UserError] | None = None,
) -> tuple[list[Row], list[CurvePoint]]:
    """Return the rows and curves of finished runs; numbers that are there are not measured again.

    Args:
        folders: of the runs.
        evaluators: folder to what is measured there.
        experiment: name that the rows carry.
        failures: see `evaluate_run`.
    """
    rows: list[Row] = []
    points: list[CurvePoint] = []
    for folder, arm in arm_names(folders).items():
        named = {"arm": arm}
        found = evaluate_run(folder, evaluators[folder], experiment, failures)
        rows += [row.model_copy(update=named) for row in found]
        points += [point.model_copy(update=named) for point in curve_of(folder)]
    return rows, points


def compare(experiment: Experiment, output: Path, command: str) -> list[Row]:
    """Run an experiment to its end and write ``rows.jsonl``, tables, plots and the report.

    What is there already is not done again; an interrupted experiment goes on where it stopped. A
    run that diverges or cannot be measured does not keep the others from the table.

    Raises:
        UserError: if the folder holds something else or is in use; after the table is written, if
            something is missing in it.
    """
    runs = plan(experiment, output)
    for arm in experiment.arms():
        check(arm)
    failures: list[UserError] = []
    with _claimed(output, {run.arm.name: run.arm.config_hash for run in runs}):
        finished = {}
        for number, run in enumerate(runs, 1):
            logger.info("run %d of %d: %s", number, len(runs), run.folder.name)
            alike = [other.folder for other in runs if other.arm == run.arm]
            try:
                pretrain_run(run.arm, run.seed, run.folder, alike)
            except DivergedError as error:
                failures.append(UserError(f"{run.folder}: {error}"))
            else:
                finished[run.folder] = run.arm.evaluators
        rows, points = measure(list(finished), finished, experiment.name, failures)
        if rows:
            write(output, rows, points, command)
    if failures:
        raise UserError("\n".join(["not in the table:", *map(str, failures)]))
    return rows


def compare_runs(
    folders: Sequence[Path], evaluators: Sequence[Evaluator], output: Path, command: str
) -> list[Row]:
    """Measure finished runs and write the same files as `compare`.

    Raises:
        UserError: see `arm_names` and `compare`.
    """
    names = arm_names(folders)
    for folder in folders:
        check_run(folder, evaluators)
    failures: list[UserError] = []
    arms = {names[folder]: load_record(folder).provenance.config_hash for folder in folders}
    with _claimed(output, arms):
        rows, points = measure(folders, dict.fromkeys(folders, evaluators), output.name, failures)
        write(output, rows, points, command)
    if failures:
        raise UserError("\n".join(["not in the table:", *map(str, failures)]))
    return rows


@contextmanager
def _claimed(output: Path, arms: Mapping[str, str]) -> Iterator[None]:
    """Keep a results folder for one experiment and one process.

    Args:
        output: the folder.
        arms: name to hash of all that its weights depend on. More seeds or other metrics are the
            same experiment; an arm of another configuration is another one.

    Raises:
        UserError: if it holds another experiment, or is in use; nothing in it is touched.
    """
    path = output / CLAIM
    if output.exists() and not output.is_dir():
        raise UserError(f"{output} is a file: choose another --output")
    try:
        there = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError as error:
        raise UserError(
            f"{path} is damaged ({error}); it says which comparison {output} holds: "
            "choose another --output"
        ) from error
    strange = [] if there is not None else _contents(output)
    if strange:
        raise UserError(
            f"{output} is not empty ({strange[0]}) and was not made by mlmclm compare: "
            "choose another --output"
        )
    if there is not None and there != dict(arms):
        raise UserError(
            f"{output} holds another comparison (arms {', '.join(there)}"
            f"{', of other options' if there.keys() == arms.keys() else ''}): "
            "choose another --output"
        )
    output.mkdir(parents=True, exist_ok=True)
    with locked(output):
        write_whole(path, json.dumps(arms, indent=2) + "\n")
        yield


def _contents(folder: Path) -> list[str]:
    """Return what a folder holds, hidden files apart."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path.name for path in found if not path.name.startswith("."))


def write(output: Path, rows: Sequence[Row], points: Sequence[CurvePoint], command: str) -> None:
    """Write rows, curves and the report of finished runs."""
    results.save(output / ROWS, rows)
    results.save(output / CURVES, points)
    write_whole(output / COMMAND, command + "\n")
    write_report(output, rows, points, command)


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
    return results.load(output / ROWS), curves, text
