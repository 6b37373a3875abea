"""The program as a user runs it: every command end to end on a small text, and every refusal."""

from __future__ import annotations

import errno
import json
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from typer.testing import CliRunner

from mlmclm import run
from mlmclm.cli import app
from mlmclm.corpora.labelled import load_task
from mlmclm.decoding.memory import Peak
from mlmclm.errors import DivergedError, UserError
from mlmclm.evaluation.likelihood.causal import CausalLikelihood
from mlmclm.run import load_model

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "under", "mat", "and", "it", "saw", "old"]
TASK = [(f"a {kind} day with {word}", kind) for word in WORDS for kind in ("good", "bad")]
QUICK = """
seeds = [0, 1]
[corpus]
name = "TEXT"
block = 16
[budget]
steps = 2
[training]
batch_size = 2
evaluations = 2
precision = "float32"
kernel = "eager"
[evaluation.causal]
limit = 1
[evaluation.masked_token]
limit = 2
[evaluation.pseudo_perplexity]
passages = 1
[evaluation.probe]
tasks = ["toy=TASK"]
[evaluation.fine_tuning]
tasks = ["toy=TASK"]
epochs = 1
learning_rates = [1e-3]
[evaluation.left_to_right]
prompt_tokens = 4
new_tokens = 4
lengths = [2]
repeats = 1
[evaluation.mask_predict]
prompt_tokens = 4
new_tokens = 4
lengths = [2]
repeats = 1
[arms.mlm.objective]
name = "mlm"
[arms.clm.objective]
name = "clm"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a corpus, a task and an experiment file."""
    folder = tmp_path_factory.mktemp("place")
    rng = torch.Generator().manual_seed(0)
    (folder / "text").mkdir()
    for split, lines in (("train", 300), ("validation", 60), ("test", 60)):
        picks = torch.randint(len(WORDS), (lines, 9), generator=rng).tolist()
        text = "".join(" ".join(WORDS[word] for word in line) + "\n" for line in picks)
        (folder / "text" / f"{split}.txt").write_text(text, encoding="utf-8")
    (folder / "task").mkdir()
    for split in ("train", "validation", "test"):
        rows = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in TASK)
        (folder / "task" / f"{split}.jsonl").write_text(rows, encoding="utf-8")
    content = QUICK.replace("TEXT", str(folder / "text")).replace("TASK", str(folder / "task"))
    (folder / "quick.toml").write_text(content, encoding="utf-8")
    return folder


def fake_peak(*arguments: object) -> Peak:
    """Stand in for the child process that measures memory."""
    return Peak(before=2**20, after=2**30, kv_cache=0)


@pytest.fixture(autouse=True)
def _no_child_process(monkeypatch):
    monkeypatch.setattr("mlmclm.evaluation.generation.speed.peak_of", fake_peak)


def call(*arguments: object, code: int = 0):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def refused(*arguments: object) -> str:
    """Run a command that must be refused, and return its one line on stderr."""
    result = call(*arguments, code=2)
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


def pretrain(place, output, *more, objective="mlm", corpus="text", code=0):
    where = ["--corpus", place / corpus] if corpus else []
    return call(
        "pretrain", "--objective", objective, *where, "--steps", 2, "--output", output,
        "--set", "corpus.block=16", "--set", "training.batch_size=2",
        "--set", 'training.precision="float32"', "--set", "training.kernel=eager", *more, code=code,
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(place):
    """One run of each objective."""
    found = {}
    for objective in ("mlm", "clm"):
        found[objective] = place / "runs" / objective
        pretrain(place, found[objective], objective=objective)
    return found


@pytest.fixture(scope="module")
def results(place):
    folder = place / "results"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlmclm.evaluation.generation.speed.peak_of", fake_peak)
        call("compare", place / "quick.toml", "--output", folder)
    return folder


# --- pretrain -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "auto"), [("mlm", AutoModelForMaskedLM), ("clm", AutoModelForCausalLM)]
)
@pytest.mark.parametrize("pair", [(), ("--pair", "classic")])
def test_a_run_opens_with_hugging_face_and_has_the_same_logits(
    place, tmp_path, objective, auto, pair
):
    folder = tmp_path / "run"
    pretrain(place, folder, *pair, objective=objective)
    model, tokenizer, _ = load_model(folder)
    ids = AutoTokenizer.from_pretrained(folder)("the old cat", return_tensors="pt")["input_ids"]
    assert ids[0].tolist() == tokenizer.encode("the old cat")
    with torch.inference_mode():
        theirs = auto.from_pretrained(folder).eval()(input_ids=ids).logits
        torch.testing.assert_close(model.logits(ids), theirs, rtol=1e-4, atol=1e-5)


def test_a_finished_run_is_not_trained_again(place, runs, monkeypatch):
    monkeypatch.setattr(run, "pretrain", None)
    before = (runs["mlm"] / "model.safetensors").stat().st_mtime_ns
    assert "2 steps" in pretrain(place, runs["mlm"]).stdout
    assert (runs["mlm"] / "model.safetensors").stat().st_mtime_ns == before


def test_a_folder_of_another_run_is_left_alone(place, runs):
    before = (runs["mlm"] / "experiment.toml").read_bytes()
    result = pretrain(place, runs["mlm"], "--set", "training.learning_rate=0.5", code=2)
    assert "belongs to another run: training.learning_rate is" in result.stderr
    assert "another seed" not in result.stderr
    assert (runs["mlm"] / "experiment.toml").read_bytes() == before


def test_a_folder_with_other_things_is_left_alone(place, tmp_path):
    (tmp_path / "precious.txt").write_text("x", encoding="utf-8")
    assert "is not a run of mlmclm" in pretrain(place, tmp_path, code=2).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_an_unfinished_run_wants_resume_and_says_so(place, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:

        def stop(*args, **kwargs):
            raise KeyboardInterrupt

        patch.setattr(run, "pretrain", stop)
        result = pretrain(place, folder, code=130)
        assert "goes on from there" in result.stderr
    assert "unfinished run: go on with --resume" in pretrain(place, folder, code=2).stderr
    assert "interrupted: mlmclm pretrain --resume" in refused("evaluate", folder)
    pretrain(place, folder, "--resume")


def test_a_folder_in_use_is_refused(place, runs):
    with run.locked(runs["mlm"]):
        assert "in use by another" in pretrain(place, runs["mlm"], code=2).stderr


def test_too_full_a_disk_is_said_before_training(place, tmp_path, monkeypatch):
    monkeypatch.setattr(run.shutil, "disk_usage", lambda path: SimpleNamespace(free=1))
    assert "0 MiB free" in pretrain(place, tmp_path / "run", code=2).stderr


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"),
     RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"),
     SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")],
)  # fmt: skip
def test_a_disk_that_fills_up_under_a_run_is_said_and_the_run_goes_on(
    place, tmp_path, monkeypatch, error
):
    def fills_up(*args, **kwargs):
        raise error

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(run, "pretrain", fills_up)
        assert f"the disk of {folder} is full" in pretrain(place, folder, code=2).stderr
    pretrain(place, folder, "--resume")


def test_another_fault_while_saving_is_a_bug_and_traces(place, tmp_path, monkeypatch):
    def breaks(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr(run, "pretrain", breaks)
    with pytest.raises(RuntimeError, match="a bug"):
        pretrain(place, tmp_path / "run")


def test_a_text_that_changed_after_training_is_refused(place, tmp_path):
    text, folder = tmp_path / "text", tmp_path / "run"
    shutil.copytree(place / "text", text)
    pretrain(place, folder, "--set", f"corpus.name={text}", corpus=None)
    (text / "test.txt").write_text("the cat sat\n" * 20, encoding="utf-8")
    run.open_text.cache_clear()  # as in another process
    found = refused("-q", "evaluate", folder, "--metric", "masked_token")
    assert "was trained with the text" in found
    assert "has changed since" in found


# --- the other commands -------------------------------------------------------------------------


def test_evaluate_prints_rows_of_what_was_asked_for(runs, place):
    out = call("evaluate", runs["clm"], "--metric", "causal", "--format", "json").stdout
    table = json.loads(out)
    assert "bits/byte" in out
    assert "accuracy" not in out
    assert table


def test_compare_writes_everything_and_does_nothing_twice(place, results, monkeypatch):
    names = {path.name for path in results.iterdir()}
    assert names >= {
        "rows.jsonl", "curves.jsonl", "table.md", "table.csv", "table.tex", "table.json",
        "report.html", "learning-curves.png", "accuracy.png", "generation-time.png",
    }  # fmt: skip
    before = (results / "rows.jsonl").read_bytes()
    monkeypatch.setattr(run, "pretrain", None)
    monkeypatch.setattr(run, "_measure", None)
    call("compare", place / "quick.toml", "--output", results)
    assert (results / "rows.jsonl").read_bytes() == before


def test_every_number_of_compare_says_how_it_was_got(results):
    rows = [json.loads(line) for line in (results / "rows.jsonl").read_text("utf-8").splitlines()]
    assert {row["arm"] for row in rows} == {"mlm", "clm"}
    assert {row["seed"] for row in rows} == {0, 1}
    for row in rows:
        assert row["method"]
        assert row["provenance"]["data_hash"]
        assert row["budget"]["tokens"] == 2 * 2 * 16
    causal = {row["arm"] for row in rows if row["metric"] == "perplexity" and not row["baseline"]}
    assert causal == {"clm"}


def test_both_arms_read_the_same_text(results):
    rows = [json.loads(line) for line in (results / "rows.jsonl").read_text("utf-8").splitlines()]
    assert len({row["provenance"]["data_hash"] for row in rows}) == 1
    assert len({row["budget"]["tokens"] for row in rows}) == 1
    assert len({row["parameters"] for row in rows}) == 1


def test_an_interrupted_compare_goes_on(place, tmp_path, monkeypatch):
    done = []
    output = ["--output", tmp_path / "r"]
    command = ["compare", place / "quick.toml", *output, "--metric", "masked_token"]
    original = run.pretrain

    def second_stops(*args, **kwargs):
        if done:
            raise KeyboardInterrupt
        done.append(1)
        return original(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(run, "pretrain", second_stops)
        call(*command, code=130)
    first = tmp_path / "r" / "runs" / "mlm-seed0" / "run.json"
    stamp = first.stat().st_mtime_ns
    call(*command)
    assert first.stat().st_mtime_ns == stamp
    assert (tmp_path / "r" / "report.html").is_file()


def rows_of(folder):
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text("utf-8").splitlines()]


def test_a_folder_that_compare_did_not_make_is_left_alone(place, tmp_path):
    stranger, damaged, file = tmp_path / "stranger", tmp_path / "damaged", tmp_path / "file"
    for folder, name in ((stranger, "report.html"), (damaged, "arms.json")):
        folder.mkdir()
        (folder / name).write_text("mine", encoding="utf-8")
    file.write_text("mine", encoding="utf-8")
    command = ["compare", place / "quick.toml", "--metric", "masked_token", "--output"]
    assert "is not empty (report.html) and was not made by" in refused("-q", *command, stranger)
    assert "arms.json is damaged" in refused("-q", *command, damaged)
    assert "file is a file: choose another" in refused("-q", *command, file)
    assert [path.name for path in stranger.iterdir()] == ["report.html"]
    assert [path.name for path in damaged.iterdir()] == ["arms.json"]
    assert (stranger / "report.html").read_text("utf-8") == file.read_text("utf-8") == "mine"


def test_another_comparison_in_the_folder_is_left_alone(place, results):
    before = (results / "rows.jsonl").read_bytes()
    command = ["-q", "compare", place / "quick.toml", "--output", results]
    found = refused(*command, "--set", "training.clip=0.5")
    assert "holds another comparison (arms mlm, clm, of other options)" in found
    with run.locked(results):
        assert "is in use by another mlmclm process" in refused(*command)
    assert (results / "rows.jsonl").read_bytes() == before


def test_an_arm_that_diverges_does_not_take_the_others_table(place, tmp_path, monkeypatch):
    original = run.pretrain

    def causal_diverges(job, *args, **kwargs):
        if job.objective.options == {}:
            raise DivergedError("training diverged")
        return original(job, *args, **kwargs)

    monkeypatch.setattr(run, "pretrain", causal_diverges)
    output = tmp_path / "r"
    result = call(
        "compare", place / "quick.toml", "--output", output, "--metric", "likelihood", code=2
    )
    assert "not in the table:" in result.stderr
    assert "clm-seed1: training diverged" in result.stderr
    assert {row["arm"] for row in rows_of(output)} == {"mlm"}


def test_a_measure_that_fails_does_not_take_the_others_rows(place, tmp_path, monkeypatch):
    def fails(self, subject):
        raise UserError("it cannot be measured")

    output = tmp_path / "r"
    command = ["compare", place / "quick.toml", "--output", output, "--metric", "likelihood"]
    with monkeypatch.context() as patch:
        patch.setattr(CausalLikelihood, "measure", fails)
        assert "it cannot be measured" in call(*command, code=2).stderr
    metrics = {row["metric"] for row in rows_of(output)}
    assert "masked-token loss" in metrics
    assert "negative log-likelihood" not in metrics
    call(*command)
    assert "negative log-likelihood" in {row["metric"] for row in rows_of(output)}


def test_evaluate_measures_nothing_where_one_run_cannot_be_measured(runs, monkeypatch):
    monkeypatch.setattr(run, "_measure", None)
    wrong = ["--metric", "likelihood", "--set", "evaluation.causal.context=600"]
    found = refused("-q", "evaluate", runs["mlm"], runs["clm"], *wrong)
    assert "evaluation.causal.context is 600, but clm has only 512 positions" in found


def test_a_task_that_holds_other_sentences_is_measured_again(runs, place, tmp_path):
    task = tmp_path / "task"
    shutil.copytree(place / "task", task)
    command = ["evaluate", runs["clm"], "--metric", "probe", "--task", f"toy={task}"]

    def accuracies():
        load_task.cache_clear()  # as in another process
        out = call("-q", *command, "--format", "csv").stdout
        return [line for line in out.splitlines() if line.startswith("Classification")]

    first = accuracies()
    assert accuracies() == first
    (task / "test.jsonl").write_text(
        json.dumps({"text": "a good day with cat", "label": "bad"}) + "\n", encoding="utf-8"
    )
    assert accuracies() != first


def test_rows_of_speed_name_the_kernel_that_ran(results):
    kernels = {(row["metric"], row["provenance"]["kernel"]) for row in rows_of(results)}
    assert {kernel for metric, kernel in kernels if metric == "throughput"} == {"sdpa"}
    assert {kernel for metric, kernel in kernels if metric == "perplexity"} == {"eager"}


def test_report_makes_the_same_tables_again(results):
    before = (results / "table.md").read_text("utf-8")
    (results / "table.md").unlink()
    assert call("report", results, "--format", "md").stdout.strip() == before.strip()
    assert (results / "table.md").read_text("utf-8") == before


def test_a_folder_in_the_place_of_a_file_is_named(results, tmp_path):
    for name in ("rows.jsonl", "curves.jsonl"):
        shutil.copy(results / name, tmp_path)
    (tmp_path / "table.csv").mkdir()
    assert f"Is a directory: {tmp_path / 'table.csv'}" in refused("report", tmp_path)


def test_compare_takes_finished_runs(runs, tmp_path):
    out = call(
        "compare", runs["mlm"], runs["clm"], "--output", tmp_path, "--metric", "masked_token",
        "--metric", "causal", "--set", "evaluation.causal.limit=1", "--format", "csv",
    ).stdout  # fmt: skip
    assert "mlm" in out
    assert "clm" in out
    assert "are the same configuration with the same seed, 0" in refused(
        "compare", runs["mlm"], runs["mlm"].parent / "." / ".." / "runs" / "mlm"
    )


def test_predict_shows_masks_and_next_tokens(runs):
    masks = call("predict", runs["mlm"], "the [MASK] sat", "--top", 3).stdout.splitlines()
    assert len(masks) == 4
    assert masks[0] == "[MASK] 1"
    assert re.fullmatch(r" +\d+\.\d\d%  '.*'", masks[1])
    assert call("predict", runs["clm"], "the old").stdout.startswith("next token")
    assert "has none" in refused("predict", runs["mlm"], "the cat sat")
    assert "never shown a mask" in refused("predict", runs["clm"], "the [MASK] sat")


@pytest.mark.parametrize("objective", ["mlm", "clm"])
def test_generate_goes_on_from_a_prompt(runs, objective):
    first, again = (
        call("generate", runs[objective], "the old", "--tokens", 5).stdout for _ in range(2)
    )
    assert first.startswith("the old")
    assert first == again


@pytest.mark.parametrize(
    ("kind", "name"),
    [("objectives", "mlm"), ("models", "gpt2-mini"), ("corpora", "wikitext-2"),
     ("tasks", "clinc150"), ("metrics", "pseudo_perplexity")],
)  # fmt: skip
def test_list_names_what_there_is(kind, name):
    assert name in [line.split()[0] for line in call("list", kind).stdout.splitlines()]


def test_check_resolves_and_estimates_without_training(place, monkeypatch):
    monkeypatch.setattr(run, "pretrain", None)
    out = call("check", place / "quick.toml").stdout
    assert "2 arms, seeds 0, 1" in out
    assert re.search(r"2 steps: 64 tokens, 10 targets", out)
    assert re.search(r"about \d+ s a run .* tokens/s, float32, eager", out)
    assert re.search(r"about [\d,]+ MiB", out)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pretrain", "--objective", "mml"], "no objective is called 'mml'; did you mean 'mlm'?"),
        (["pretrain", "--objective", "mlm", "--model", "tinny"], "did you mean 'tiny'?"),
        (["pretrain", "--objective", "mlm", "--corpus", "wikitext-3"], "mean 'wikitext-2'?"),
        (["pretrain", "--objective", "mlm", "--corpus", ""], "must be at least 1 letter"),
        (["pretrain", "--objective", "mlm", "--steps", "1", "--tokens", "5"], "has one unit"),
        (["pretrain", "--objective", "mlm", "--set", "training.learning_rat=1"], "'learning_rate'"),
        (["pretrain", "--objective", "mlm", "--set", "arms.mlm.objective.mask_rate=15"],
         "objective.mask_rate must be at most 1, not 15"),
        (["compare", "--metric", "likelyhood"], "no metric is called 'likelyhood'; did you mean"),
        (["compare", "--task", "banking7", "--metric", "probe"], "did you mean 'banking77'?"),
        (["compare", "nowhere.toml"], "nowhere.toml"),
        (["evaluate", "nowhere"], "there is no run folder nowhere"),
        (["report", "nowhere"], "holds no rows.jsonl"),
        (["predict", "nowhere", "x"], "there is no run folder nowhere"),
        (["pretrain", "--objective", "mlm", "--set", "corpus.block=600"], "512 positions"),
        (["pretrain", "--objective", "mlm", "--set", "search.'training.clip'=[1.0, 2.0]"],
         "pretrain trains one arm, but --set asks for mlm-clip=1.0, mlm-clip=2.0"),
        (["pretrain", "--objective", "mlm", "--set", "arms.b.objective.name=clm"],
         "pretrain trains one arm, but --set asks for mlm, b"),
        (["pretrain", "--objective", "mlm", "--set", "seeds=[3]"], "--seed says which"),
        (["pretrain", "--objective", "mlm", "--set", "evaluation.metrics=[]"],
         "mlmclm evaluate measures"),
        (["pretrain", "--objective", "mlm", "--steps", "1", "--set", "budget.tokens=5"],
         "--set budget.tokens has no effect beside --steps"),
        (["compare", "--model", "mini", "--set", "model=tiny"], "beside --model"),
        (["compare", "--task", "mr", "--set", "evaluation.probe.tasks=['subj']"], "beside --task"),
        (["pretrain"], "Missing option '--objective' ("),
        (["pretrain", "--objectiv", "mlm"], "--objective"),
        (["pretrain", "--objective", "mlm", "--steps", "many"], "Invalid value for '--steps'"),
        (["compare", "--seeds", "0"], "Invalid value for '--seeds'"),
        (["compare", "--format", "pdf"], "'pdf' is not one of 'table', 'md'"),
        (["comparre"], "No such command 'comparre'"),
        (["--verbose"], "--verbose"),
        (["evaluate", "nowhere", "--set", "training.clip=2.0"],
         "--set training.clip has no effect on finished runs"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused("--quiet", *arguments)


def test_options_of_the_other_decoder_are_refused_with_the_reason(runs):
    assert "--iterations has no effect" in refused("generate", runs["clm"], "x", "--iterations", 3)
    assert "--top-k has no effect" in refused("generate", runs["mlm"], "x", "--top-k", 3)


def test_metrics_that_do_not_exist_for_a_run_are_refused_with_the_reason(runs):
    assert "pseudo_perplexity does not exist" in refused(
        "evaluate", runs["clm"], "--metric", "pseudo_perplexity"
    )
    assert "fills masks" in refused("evaluate", runs["clm"], "--metric", "mask_predict")
    assert "sees both sides" in refused("evaluate", runs["mlm"], "--metric", "left_to_right")


def test_a_damaged_run_is_named(runs, tmp_path):
    for name in ("run.json", "experiment.toml", "config.json"):
        (tmp_path / name).write_bytes((runs["clm"] / name).read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    assert "cannot be opened" in refused("predict", tmp_path, "x")
    for config in ("{}", "{"):
        (tmp_path / "config.json").write_text(config, encoding="utf-8")
        assert "cannot be opened" in refused("predict", tmp_path, "x")
    (tmp_path / "run.json").write_text("{", encoding="utf-8")
    assert "run.json is damaged" in refused("predict", tmp_path, "x")


def test_a_run_that_cannot_start_leaves_no_folder(place, tmp_path):
    folder = tmp_path / "run"
    for wrong in ("corpus.block=600", "model=tinny", "budget.tokens=3"):
        pretrain(place, folder, "--set", wrong, code=2)
        assert not folder.exists()
    pretrain(place, folder)
