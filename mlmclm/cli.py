"""The command line: parse, call one function, print. Results go to stdout, notes to stderr.

torch and transformers take seconds to import, so each command imports what it needs by itself and
``--help`` answers at once.
"""

from __future__ import annotations

import errno
import logging
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from mlmclm import __version__
from mlmclm.errors import UserError

if TYPE_CHECKING:
    from mlmclm.contracts import Row

DISK_ERRORS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
)
"""What the user can mend: no room or no right, and a name that cannot be made where it stands."""

UsageError: Any = typer.BadParameter.__base__
"""A command line that does not parse; typer has no public name for it."""


def _fail(message: str) -> typer.Exit:
    typer.secho(f"error: {message}", fg="red", err=True)
    return typer.Exit(2)


class Commands(TyperGroup):
    """Shows what the user can fix as one message, exit code 2. Any other exception traces."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Parse a command line, run it, and end the process."""
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except UsageError as error:
            where = error.ctx.command_path if error.ctx else "mlmclm"
            code = _fail(f"{error.format_message().rstrip('.')} ({where} --help)").exit_code
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            raise _fail(str(error)) from error
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                raise
            where = f": {error.filename}" if error.filename else ""
            raise _fail(f"{error.strerror}{where}") from error
        except KeyboardInterrupt as error:
            typer.secho(
                "stopped; what was finished is kept, and the same command goes on from there "
                "(pretrain: with --resume)",
                err=True,
            )
            raise typer.Exit(130) from error


app = typer.Typer(
    cls=Commands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="What changes when a language model learns to fill masks (MLM, BERT-style) instead of "
    "predicting the next token (CLM, GPT-style), all else equal?",
)


class Format(StrEnum):
    """How a table is printed."""

    table = "table"
    md = "md"
    csv = "csv"
    tex = "tex"
    json = "json"


class Kind(StrEnum):
    """What can be listed."""

    everything = "everything"
    objectives = "objectives"
    models = "models"
    corpora = "corpora"
    tasks = "tasks"
    metrics = "metrics"


Objectives = Annotated[
    list[str] | None, typer.Option("--objective", help="Pretraining objective; repeat to compare.")
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        help="tiny, mini, small, medium, base; bert-mini, gpt2-mini, ...; "
        "a config.json; a hub id (architecture only).",
    ),
]
CorpusName = Annotated[
    str | None,
    typer.Option(
        "--corpus", help="wikitext-2, a local file or folder, or a hub data set (NAME:CONFIG)."
    ),
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="Any key of an experiment file, as KEY=VALUE.")
]
Metrics = Annotated[
    list[str] | None, typer.Option("--metric", help="A metric or a group of them; repeatable.")
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--task", help="mr, subj, clinc150, banking77, NAME=FOLDER or a hub data set; repeatable."
    ),
]
Shape = Annotated[Format, typer.Option("--format", help="How to print the table.")]
Run = Annotated[Path, typer.Argument(help="Folder of a finished run.", show_default=False)]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mlmclm {__version__}")
        raise typer.Exit


@app.callback()
def prepare(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr.")] = False,
) -> None:
    """Set up notes; without a command, show the help."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr, force=True)
    logging.getLogger("mlmclm").setLevel(logging.WARNING if quiet else logging.INFO)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("DATASETS_VERBOSITY", "critical")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


SETTLED_BY = {
    "corpus": "corpus.name",
    "tokenizer": "corpus.tokenizer",
    "model": "model",
    "pair": "pair",
    "seed": "seeds",
    "seeds": "seeds",
    "metric": "evaluation.metrics",
    "task": "evaluation.*.tasks",
    **dict.fromkeys(("steps", "epochs", "tokens", "targets", "flops", "seconds"), "budget*"),
}
"""Option to the key of an experiment file that it sets."""


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse(context: typer.Context, names: Iterable[str], why: str) -> None:
    """Refuse options that something else has settled, instead of passing over them.

    Raises:
        UserError: if one of them is on the command line.
    """
    for name in names:
        if _given(context, name):
            raise UserError(f"--{name.replace('_', '-')} has no effect {why}")


def _refuse_doubled(context: typer.Context, sets: Sequence[str]) -> None:
    """Refuse ``--set`` of what an option on the same command line sets too."""
    from mlmclm.experiment import refuse_without_effect

    for name, keys in SETTLED_BY.items():
        if _given(context, name):
            refuse_without_effect(sets, keys, f"beside --{name}, which says the same")


def _refuse_unread(context: typer.Context, sets: Sequence[str]) -> None:
    """Refuse ``--set`` of what one training does not depend on."""
    from mlmclm.experiment import refuse_without_effect

    _refuse_doubled(context, sets)
    refuse_without_effect(sets, "seeds", "here: --seed says which")
    refuse_without_effect(sets, "evaluation*", "here: mlmclm evaluate measures")


def _refuse_untrained(context: typer.Context, sets: Sequence[str]) -> None:
    """Refuse ``--set`` of what the measuring of finished runs does not depend on."""
    from mlmclm.experiment import refuse_without_effect

    _refuse_doubled(context, sets)
    why = "on finished runs, which are only measured: --set takes evaluation.… here"
    refuse_without_effect(sets, "[!e]*", why)


def _overrides(
    sets: Sequence[str] | None, corpus: str | None, tokenizer: str, tasks: Sequence[str] | None
) -> list[str]:
    """Turn the options of a command into ``KEY=VALUE`` of an experiment file."""
    import json

    found = list(sets or [])
    if corpus is not None:
        found.append(f"corpus.name={json.dumps(corpus)}")
    if tokenizer:
        found.append(f"corpus.tokenizer={json.dumps(tokenizer)}")
    if tasks:
        from mlmclm.evaluation import EVALUATORS

        for name in EVALUATORS.names():
            if EVALUATORS.get(name).group == "classification":
                found.append(f"evaluation.{name}.tasks={json.dumps(list(tasks))}")
    return found


def _budget(**amounts: float | None) -> dict[str, float]:
    given = {unit: amount for unit, amount in amounts.items() if amount is not None}
    if len(given) > 1:
        raise UserError(f"a budget has one unit, not {' and '.join(f'--{unit}' for unit in given)}")
    return given


@app.command()
def pretrain(
    context: typer.Context,
    objective: Annotated[str, typer.Option("--objective", help="mlm or clm; see mlmclm list.")],
    model: Model = "tiny",
    pair: Annotated[
        str | None,
        typer.Option(
            "--pair",
            help="classic: BERT for full visibility, GPT-2 for "
            "causal, of the size that --model names.",
        ),
    ] = None,
    corpus: CorpusName = None,
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", help="A tokenizer.json, its folder or a hub id.")
    ] = "",
    steps: Annotated[int | None, typer.Option(help="Budget in optimizer steps.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Budget in passes over the text.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Budget in input tokens.")] = None,
    targets: Annotated[int | None, typer.Option(help="Budget in predicted tokens.")] = None,
    flops: Annotated[
        float | None, typer.Option(help="Budget in floating-point operations.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Budget in seconds of training.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, order, corruption.", min=0)] = 0,
    output: Annotated[
        Path | None, typer.Option(help="Run folder [runs/MODEL-OBJECTIVE-seedN].")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with an interrupted run.")] = False,
    set_: Sets = None,
) -> None:
    """Pretrain one model into a folder that Hugging Face opens."""
    from mlmclm.experiment import default_experiment
    from mlmclm.run import pretrain_run
    from mlmclm.training.record import RECORD

    _refuse_unread(context, set_ or ())
    budget = _budget(
        steps=steps, epochs=epochs, tokens=tokens, targets=targets, flops=flops, seconds=seconds
    )
    sets = [f"budget.{unit}={amount}" for unit, amount in budget.items()]
    sets += [*_overrides(set_, corpus, tokenizer, None), "evaluation.metrics=[]"]
    experiment = default_experiment(model, [objective], 1, pair, sets)
    arm, *more = experiment.arms()
    if more:
        names = ", ".join(each.name for each in (arm, *more))
        raise UserError(
            f"pretrain trains one arm, but --set asks for {names}; mlmclm compare trains several"
        )
    folder = output or Path("runs") / f"{experiment.name}-{arm.name}-seed{seed}"
    if not resume and (folder / "experiment.toml").is_file() and not (folder / RECORD).is_file():
        raise UserError(
            f"{folder} holds an unfinished run: go on with --resume, or choose another --output"
        )
    record = pretrain_run(arm, seed, folder)
    typer.echo(
        f"{folder}: {record.budget.steps:,} steps, {record.budget.tokens:,} tokens, "
        f"{record.budget.targets:,} targets in {record.budget.seconds:.1f} s; "
        f"validation {record.loss_name} {record.validation_loss:.4f} nats/target"
    )


def _print_table(rows: Sequence[Row], shape: Format, command: str | None) -> None:
    from rich.console import Console

    from mlmclm import report, tables

    found = tables.comparison(rows, command)
    if shape is Format.table:
        console = Console()
        if not console.is_terminal:
            console = Console(width=120)
        console.print(report.as_rich(found))
        return
    writers = {
        Format.md: report.as_markdown,
        Format.csv: report.as_csv,
        Format.tex: report.as_latex,
        Format.json: report.as_json,
    }
    typer.echo(writers[shape](found), nl=False)


@app.command()
def evaluate(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    metric: Metrics = None,
    task: Tasks = None,
    set_: Sets = None,
    format_: Shape = Format.table,
) -> None:
    """Measure runs; numbers that a run already has are not measured again."""
    from mlmclm.comparison import measure
    from mlmclm.experiment import default_experiment
    from mlmclm.run import check_run

    _refuse_untrained(context, set_ or ())
    experiment = default_experiment(
        overrides=_overrides([*_metric_sets(metric), *(set_ or [])], None, "", task)
    )
    evaluators = experiment.arms()[0].evaluators
    for run in runs:
        check_run(run, evaluators, metric or ())
    rows, _ = measure(runs, dict.fromkeys(runs, evaluators), "")
    _print_table(rows, format_, None)


def _metric_sets(metrics: Sequence[str] | None) -> list[str]:
    import json

    return [f"evaluation.metrics={json.dumps(metrics)}"] if metrics else []


@app.command()
def compare(
    context: typer.Context,
    what: Annotated[
        list[Path] | None,
        typer.Argument(
            help="An experiment file, or folders of finished runs; the default "
            "comparison where nothing is given.",
            show_default=False,
        ),
    ] = None,
    objective: Objectives = None,
    model: Model = "tiny",
    pair: Annotated[str | None, typer.Option("--pair", help="rotary or classic.")] = None,
    corpus: CorpusName = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = 3,
    metric: Metrics = None,
    task: Tasks = None,
    set_: Sets = None,
    smoke: Annotated[
        bool,
        typer.Option(
            "--smoke",
            help="A few steps and sentences: tests the machinery, its numbers mean nothing.",
        ),
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Results folder [results/NAME].")] = None,
    format_: Shape = Format.table,
) -> None:
    """Train, measure and compare; finished parts are never done twice."""
    from mlmclm import comparison
    from mlmclm.experiment import Experiment, default_experiment

    _refuse_doubled(context, set_ or ())
    sets = _overrides([*_metric_sets(metric), *(set_ or [])], corpus, "", task)
    command = shlex.join(["mlmclm", *sys.argv[1:]])
    folders = [path for path in what or [] if path.is_dir()]
    if folders and len(folders) < len(what or []):
        raise UserError(f"there is no run folder {next(p for p in what or [] if not p.is_dir())}")
    if what:
        fixed = ["objective", "model", "pair", "seeds", "smoke", *(["corpus"] if folders else [])]
        settled = "folders of finished runs" if folders else "an experiment file"
        _refuse(context, fixed, f"beside {settled}, which settles it")
    if folders:
        _refuse_untrained(context, set_ or ())
        evaluators = default_experiment(overrides=sets).arms()[0].evaluators
        target = output or Path("results") / "-".join(["compare", *(path.name for path in folders)])
        rows = comparison.compare_runs(folders, evaluators, target, command)
    else:
        if what and len(what) > 1:
            raise UserError(f"one experiment file at a time, not {len(what)}; or run folders")
        if what:
            experiment = Experiment.load(what[0], sets)
        else:
            arms = objective or ("mlm", "clm")
            experiment = default_experiment(model, arms, seeds, pair, sets, smoke=smoke)
        target = output or Path("results") / experiment.name
        rows = comparison.compare(experiment, target, command)
    _print_table(rows, format_, command)
    typer.echo(f"written to {target}: open {target / 'report.html'}", err=True)


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="Folder with rows.jsonl.")],
    format_: Shape = Format.table,
) -> None:
    """Write tables, plots and the page again from the rows, and print the table."""
    from mlmclm import comparison
    from mlmclm.report import write_report

    rows, curves, command = comparison.load(results)
    write_report(results, rows, curves, command)
    _print_table(rows, format_, command)


@app.command()
def predict(
    run: Run,
    text: Annotated[str, typer.Argument(help='"The weather is [MASK] today", or a beginning.')],
    top: Annotated[int, typer.Option(help="How many tokens.", min=1)] = 5,
) -> None:
    """Show what a run predicts: for each [MASK], or for the next token."""
    from mlmclm.evaluation.prediction import predictions
    from mlmclm.run import load_model

    model, tokenizer, _ = load_model(run)
    for place, candidates in predictions(model, tokenizer, text, top):
        typer.echo(place)
        for token, probability in candidates:
            typer.echo(f"  {probability:7.2%}  {token!r}")


@app.command()
def generate(
    context: typer.Context,
    run: Run,
    prompt: Annotated[str, typer.Argument(help="Text to go on from; may be empty.")] = "",
    tokens: Annotated[int, typer.Option(help="New tokens.", min=1)] = 40,
    temperature: Annotated[
        float, typer.Option(help="0 takes the most probable token.", min=0)
    ] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k best only.", min=1)] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the best that add up to p.", min=0, max=1)
    ] = None,
    iterations: Annotated[int, typer.Option(help="Passes of Mask-Predict.", min=1)] = 10,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Write on: left to right, or by Mask-Predict where everything is visible."""
    from dataclasses import fields

    from mlmclm.decoding.left_to_right import LeftToRightDecoder
    from mlmclm.decoding.mask_predict import MaskPredictDecoder
    from mlmclm.evaluation.prediction import continue_text
    from mlmclm.run import load_model

    decoders = (
        LeftToRightDecoder(temperature=temperature, top_k=top_k, top_p=top_p),
        MaskPredictDecoder(iterations=iterations),
    )
    model, tokenizer, _ = load_model(run)
    for decoder in decoders:
        if reason := decoder.refusal(model):
            _refuse(context, (field.name for field in fields(decoder)), f"for {run}: {reason}")
    typer.echo(continue_text(model, tokenizer, prompt, tokens, decoders, seed))


@app.command(name="list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")] = Kind.everything) -> None:
    """List what an experiment file or an option can name."""
    from mlmclm.catalogue import entries

    kinds = [each for each in Kind if each is not Kind.everything]
    for each in kinds if kind is Kind.everything else [kind]:
        if kind is Kind.everything:
            typer.echo(each.value)
        for name, summary in entries(each.value):
            typer.echo(f"{'  ' if kind is Kind.everything else ''}{name:20} {summary}")


@app.command()
def check(
    experiment: Annotated[Path, typer.Argument(help="An experiment file.")], set_: Sets = None
) -> None:
    """Resolve an experiment and estimate its size, cost, memory and time; trains nothing."""
    from mlmclm.experiment import Experiment
    from mlmclm.forecast import forecast

    for line in forecast(Experiment.load(experiment, set_ or ())):
        typer.echo(line)


def main() -> None:
    """Run the program."""
    app()
