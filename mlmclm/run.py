"""One run from start to rows: pretrain it into a folder, open the folder, measure it."""

from __future__ import annotations

import errno
import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from torch import Tensor

import mlmclm
from mlmclm import results
from mlmclm.contracts import Measurement, Provenance, Row
from mlmclm.corpora import Corpus, load_corpus
from mlmclm.corpora.packing import pack, token_stream
from mlmclm.errors import UserError
from mlmclm.evaluation import EVALUATORS, Evaluator, Subject
from mlmclm.experiment import ArmConfig, Experiment
from mlmclm.files import write_whole
from mlmclm.models.presets import load_network
from mlmclm.models.token_model import TokenModel
from mlmclm.provenance import collect, content_hash
from mlmclm.tokenization import TextTokenizer, load_tokenizer
from mlmclm.training.engine import CHECKPOINTS, Outcome, Pretraining, pretrain
from mlmclm.training.options import steps_for
from mlmclm.training.record import RECORD, RunRecord, load_record, save_record

logger = logging.getLogger(__name__)

CONFIG = "experiment.toml"
EVALUATION = "evaluation"
SHORTEST_STEP = 1e-6
"""Seconds; stands for the step that is not timed yet when a budget is looked at."""
PRETRAINING_METRIC = "validation loss"
DISK_FULL = ("No space left", "file write failed", "not enough space", "unexpected pos")
"""What torch and safetensors say when a write fails half way."""


def device() -> torch.device:
    """Return the device that this process computes on."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


# --- text ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """A corpus, its tokenizer and its training blocks."""

    corpus: Corpus
    tokenizer: TextTokenizer
    train: Tensor
    validation: Tensor
    remainder: int


@lru_cache(maxsize=4)
def open_text(corpus: str, tokenizer: str, block: int) -> Text:
    """Read, tokenize and pack a corpus; arms that name the same text share it."""
    source = load_corpus(corpus)
    words = load_tokenizer(tokenizer or None, source)
    train, validation = (
        pack(token_stream(source, split, words), block) for split in ("train", "validation")
    )
    return Text(
        source,
        words,
        torch.as_tensor(train.blocks),
        torch.as_tensor(validation.blocks),
        train.remainder,
    )


def _text_of(arm: ArmConfig) -> Text:
    return open_text(arm.corpus.name, arm.corpus.tokenizer, arm.corpus.block)


def job_of(arm: ArmConfig, seed: int) -> Pretraining:
    """Return what the engine needs to train one arm with one seed."""
    text = _text_of(arm)
    return Pretraining(
        model=arm.model,
        objective=arm.objective,
        vocabulary=text.tokenizer.vocabulary,
        train=text.train,
        validation=text.validation,
        budget=arm.budget,
        options=arm.training,
        seed=seed,
        device=device(),
    )


def check(arm: ArmConfig) -> None:
    """Build what an arm needs once, so that what cannot work is known before anything is trained.

    Raises:
        UserError: if the text, the model or a task is not there, or they do not fit together.
    """
    job, text = job_of(arm, seed=0), _text_of(arm)
    model = job.build("eager").eval()
    steps_for(arm.budget, job.step_cost(seconds=SHORTEST_STEP))
    subject = Subject(
        model=model,
        untrained=lambda: model,
        tokenizer=text.tokenizer,
        corpus=text.corpus,
        block=arm.corpus.block,
        seed=0,
        folder=Path(arm.name),
    )
    for evaluator in arm.evaluators:
        _check(evaluator, subject)


def _check(evaluator: Evaluator, subject: Subject) -> None:
    if evaluator.refusal(subject) is None:
        evaluator.check(subject)


# --- the folder of a run ------------------------------------------------------------------------


def load_arm(folder: Path) -> ArmConfig:
    """Return the arm that a run folder belongs to."""
    return Experiment.load(folder / CONFIG).arms()[0]


def _difference(there: ArmConfig, asked: ArmConfig) -> str:
    """Name the first option in which two arms differ."""
    ours, theirs = json.loads(json.dumps([asked.content, there.content]))
    for table, value in ours.items():
        if value != theirs.get(table):
            if not isinstance(value, dict):
                return f"{table} is {theirs.get(table)!r} there, {value!r} was asked for"
            for key in {**value, **theirs[table]}:
                if value.get(key) != theirs[table].get(key):
                    return (
                        f"{table}.{key} is {theirs[table].get(key)!r} there, "
                        f"{value.get(key)!r} was asked for"
                    )
    return "the seed differs"


def claim(arm: ArmConfig, seed: int, folder: Path) -> None:
    """Make a run folder, or see that the one that is there belongs to this very run.

    Raises:
        UserError: if the folder holds something else; nothing in it is touched.
    """
    config = folder / CONFIG
    if config.is_file():
        there = Experiment.load(config)
        if there.seeds != (seed,) or there.arms()[0].config_hash != arm.config_hash:
            raise UserError(
                f"{folder} belongs to another run: {_difference(there.arms()[0], arm)}; "
                "choose another --output"
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not a run of mlmclm; choose another --output")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(config, arm.to_toml(seeds=[seed]))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder.

    Raises:
        UserError: if one is in it.
    """
    lock = FileLock(folder / ".lock", blocking=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise UserError(f"{folder} is in use by another mlmclm process") from error
    try:
        yield
    finally:
        lock.release()


def _refuse_full_disk(job: Pretraining, folder: Path) -> None:
    """Three checkpoints of weights and two moments: the third is written before the first goes."""
    needed = 4 * job.build("eager").parameters_total * 9
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            f"{folder} has {free / 2**20:,.0f} MiB free, but the checkpoints of this run need "
            f"{needed / 2**20:,.0f} MiB"
        )


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Say so where saving failed because the disk filled up under a run.

    torch and safetensors report it as errors of their own, which only say so in words.

    Raises:
        UserError: in their place.
    """
    try:
        yield
    except (RuntimeError, SafetensorError, OSError) as error:
        full = getattr(error, "errno", None) == errno.ENOSPC or any(
            sign in str(error) for sign in DISK_FULL
        )
        if not full:
            raise
        raise UserError(
            f"the disk of {folder} is full; what the last complete checkpoint holds is kept, and "
            "the run goes on from there once there is room"
        ) from error


def _provenance(arm: ArmConfig, text: Text, dtype: str, kernel: str) -> Provenance:
    return collect(device(), dtype, kernel, text.corpus.hash, text.tokenizer.hash, arm.config_hash)


def _card(record: RunRecord) -> str:
    if record.visibility == record.native:
        opening = "`AutoModelFor...` and `AutoTokenizer` open this folder with the same logits."
    else:
        opening = (
            f"Trained with {record.visibility} attention, which the architecture alone does not "
            "have: open it with `mlmclm`, or pass a 4-D float attention mask."
        )
    return (
        f"---\nlibrary_name: transformers\ntags: [mlmclm, {record.objective}]\n---\n\n"
        f"# {record.trunk}, {record.objective}, seed {record.seed}\n\n"
        f"Pretrained by mlmclm {mlmclm.__version__} on {record.corpus}: "
        f"{record.budget.tokens:,} tokens, {record.budget.targets:,} targets, "
        f"{record.parameters:,} parameters. Validation: {record.validation_loss:.4f} nats per "
        f"target ({record.loss_name}).\n\n{opening}\n\n"
        f"`{CONFIG}` holds every option, `{RECORD}` what was spent and where, `train.jsonl` the "
        "learning curve.\n"
    )


def _record(arm: ArmConfig, seed: int, outcome: Outcome) -> RunRecord:
    text = _text_of(arm)
    return RunRecord(
        arm=arm.name,
        objective=arm.content["objective"]["name"],
        objective_options=arm.objective.options,
        visibility=outcome.model.visibility.value,
        native=outcome.model.native.value,
        trunk=arm.model,
        parameters=outcome.model.parameters_total,
        seed=seed,
        block=arm.corpus.block,
        corpus=text.corpus.name,
        blocks=len(text.train),
        remainder=text.remainder,
        validation_loss=outcome.validation.mean,
        validation_targets=outcome.validation.targets,
        loss_name=arm.objective.loss_name,
        budget=outcome.budget,
        provenance=_provenance(arm, text, outcome.setting.precision, outcome.setting.kernel),
    )


def pretrain_run(arm: ArmConfig, seed: int, folder: Path, alike: Sequence[Path] = ()) -> RunRecord:
    """Train one run to its end, from its last checkpoint if it has one; do nothing if it is done.

    Args:
        arm: what to train.
        seed: of weights, order and corruption.
        folder: of the run.
        alike: of runs that differ by seed only; precision, kernel and number of steps are taken
            from the first that has chosen them.

    Raises:
        UserError: if the folder belongs to another run, is in use, or the disk is too full.
        KeyboardInterrupt: on Ctrl-C, after a checkpoint.
    """
    if not (folder / CONFIG).is_file():
        check(arm)
    claim(arm, seed, folder)
    with locked(folder):
        if (folder / RECORD).is_file():
            return load_record(folder)
        job = job_of(arm, seed)
        _refuse_full_disk(job, folder)
        with _disk_errors(folder):
            outcome = pretrain(
                job, folder, resume=True, label=f"{arm.name} seed {seed}", alike=alike
            )
            record = _record(arm, seed, outcome)
            outcome.model.network.save_pretrained(folder)
            _text_of(arm).tokenizer.save(folder)
            (folder / "README.md").write_text(_card(record), encoding="utf-8")
            save_record(folder, record)
        shutil.rmtree(folder / CHECKPOINTS)
    return record


# --- evaluation ---------------------------------------------------------------------------------


def load_model(folder: Path) -> tuple[TokenModel, TextTokenizer, RunRecord]:
    """Open a finished run for use, in evaluation mode.

    Raises:
        UserError: if it is missing, unfinished or damaged.
    """
    record = load_record(folder)
    arm = load_arm(folder)
    try:
        network, native = load_network(folder, record.provenance.kernel, arm.objective.visibility)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"the model in {folder} cannot be opened: {why}") from error
    tokenizer = load_tokenizer(str(folder))
    model = TokenModel(network, arm.objective.visibility, native, tokenizer.vocabulary)
    return model.to(device()).eval(), tokenizer, record


def load_subject(folder: Path) -> tuple[Subject, RunRecord]:
    """Open a finished run with all that evaluators need."""
    model, _, record = load_model(folder)
    arm = load_arm(folder)
    text = _text_of(arm)
    for what, then, now in (
        ("text", record.provenance.data_hash, text.corpus.hash),
        ("tokenizer", record.provenance.tokenizer_hash, text.tokenizer.hash),
    ):
        if then != now:
            raise UserError(
                f"{folder} was trained with the {what} {then}, but its options now give {now}: "
                f"{arm.corpus.name} or its tokenizer has changed since"
            )
    subject = Subject(
        model=model,
        untrained=lambda: job_of(arm, record.seed).build(record.provenance.kernel).eval(),
        tokenizer=text.tokenizer,
        corpus=text.corpus,
        block=record.block,
        seed=record.seed,
        folder=folder,
    )
    return subject, record


def row_of(
    measurement: Measurement, record: RunRecord, provenance: Provenance, run: str, experiment: str
) -> Row:
    """Put a number beside the run that it belongs to."""
    return Row(
        experiment=experiment,
        arm=record.arm,
        run=run,
        objective=record.objective,
        trunk=record.trunk,
        parameters=record.parameters,
        seed=record.seed,
        budget=record.budget,
        provenance=provenance,
        **{**asdict(measurement), "details": dict(measurement.details)},
    )


def validation_method(record: RunRecord, blocks: int | None) -> str:
    """Say what a validation loss of a run is and how it was taken.

    Args:
        record: of the run.
        blocks: from the first on; None for the whole split.
    """
    options = "".join(f", {name} {value}" for name, value in record.objective_options.items())
    return (
        f"{record.loss_name}{options}, blocks of {record.block}"
        f"{f', first {blocks}' if blocks else ''}, {record.provenance.dtype}"
    )


def training_row(folder: Path, experiment: str) -> Row:
    """Return the row that stands for pretraining itself."""
    record = load_record(folder)
    measurement = Measurement(
        metric=PRETRAINING_METRIC,
        method=validation_method(record, load_arm(folder).training.final_blocks),
        unit="nats/target",
        better="lower",
        value=record.validation_loss,
        count=record.validation_targets,
        data=f"{record.corpus}/validation",
    )
    return row_of(measurement, record, record.provenance, folder.name, experiment)


def _part(folder: Path, evaluator: Evaluator, record: RunRecord) -> Path:
    """Return the file of one finished measurement: named after all that its numbers depend on."""
    name = EVALUATORS.name_of(evaluator)
    key = {
        "evaluator": name,
        "options": asdict(evaluator),
        "inputs": evaluator.inputs_hash,
        "run": record.model_dump(mode="json", exclude={"budget": {"seconds"}}),
        "version": mlmclm.__version__,
    }
    return folder / EVALUATION / f"{name}-{content_hash(json.loads(json.dumps(key)))}.jsonl"


def check_run(folder: Path, evaluators: Sequence[Evaluator], demanded: Iterable[str] = ()) -> None:
    """See that a run opens and can be measured, before the first of several is.

    Args:
        folder: of a finished run.
        evaluators: that will measure it, as far as they fit.
        demanded: names of those that must fit.

    Raises:
        UserError: for the first thing that is wrong.
    """
    subject, _ = load_subject(folder)
    for evaluator in evaluators:
        name = EVALUATORS.name_of(evaluator)
        reason = evaluator.refusal(subject) if name in demanded else None
        if reason is not None:
            raise UserError(f"--metric {name} does not exist for {folder}: {reason}")
        _check(evaluator, subject)


def evaluate_run(
    folder: Path,
    evaluators: Sequence[Evaluator],
    experiment: str = "",
    failures: list[UserError] | None = None,
) -> list[Row]:
    """Measure a run by every evaluator that fits it; what was measured before is read again.

    Args:
        folder: of a finished run.
        evaluators: what to measure; those that do not fit the run are left out.
        experiment: name that the rows carry; the run's own where empty.
        failures: where what cannot be measured is noted, so that the rest is; raised if None.

    Raises:
        UserError: if the run cannot be opened or an option does not fit it.
    """
    record = load_record(folder)
    parts: dict[Evaluator, Path] = {}
    for evaluator in evaluators:
        with _noted(failures):
            parts[evaluator] = _part(folder, evaluator, record)
    missing = [evaluator for evaluator, part in parts.items() if not part.is_file()]
    if missing:
        with _noted(failures):
            subject, _ = load_subject(folder)
            fitting = []
            for evaluator in missing:
                reason = evaluator.refusal(subject)
                if reason is not None:
                    name = EVALUATORS.name_of(evaluator)
                    logger.info("%s: no %s, since %s", folder.name, name, reason)
                    continue
                with _noted(failures):
                    evaluator.check(subject)
                    fitting.append(evaluator)
            for evaluator in fitting:
                with _noted(failures):
                    _measure(subject, record, evaluator, parts[evaluator])
    rows = [training_row(folder, experiment or folder.name)]
    for part in filter(Path.is_file, parts.values()):
        rows += [replace_experiment(row, experiment or folder.name) for row in results.load(part)]
    return rows


@contextmanager
def _noted(failures: list[UserError] | None) -> Iterator[None]:
    """Put what is wrong inside the block on a list, if there is one, instead of raising it."""
    try:
        yield
    except UserError as error:
        if failures is None:
            raise
        failures.append(error)


def replace_experiment(row: Row, experiment: str) -> Row:
    """Return the row under the name of another experiment."""
    return row.model_copy(update={"experiment": experiment})


def _measure(subject: Subject, record: RunRecord, evaluator: Evaluator, part: Path) -> None:
    logger.info("%s: %s", subject.folder.name, EVALUATORS.name_of(evaluator))
    provenance = collect(
        device(),
        str(subject.model.network.dtype).removeprefix("torch."),
        evaluator.kernel or record.provenance.kernel,
        record.provenance.data_hash,
        record.provenance.tokenizer_hash,
        record.provenance.config_hash,
    )
    rows = [
        row_of(each, record, provenance, subject.folder.name, subject.folder.name)
        for each in evaluator.measure(subject)
    ]
    part.parent.mkdir(exist_ok=True)
    results.save(part, rows)
