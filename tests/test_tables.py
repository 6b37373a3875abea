"""What stands beside what, what is bold, and what is flagged."""

from __future__ import annotations

import math

import pytest
from made_up import (
    DECODERS,
    LEFT_TO_RIGHT,
    MASKED,
    PROVENANCE,
    TEST,
    classification,
    curves,
    everything,
    generation,
    row,
    runs,
    shared,
)

from mlmclm.errors import UserError
from mlmclm.tables import (
    MISSING,
    Column,
    Comparison,
    Line,
    Table,
    by_seed,
    comparison,
    readable,
    separated,
)

ACCURACY = {"metric": "accuracy", "unit": "share", "better": "higher", "data": "mr/test"}


def tables(found: Comparison) -> list[Table]:
    return [table for section in found.sections for table in section.tables]


def line_of(found: Comparison, metric: str, unit: str) -> tuple[Table, Line]:
    return next(
        (table, line)
        for table in tables(found)
        for line in table.lines
        if (line.key[0], line.key[3]) == (metric, unit)
    )


def cell(found: Comparison, metric: str, unit: str, column: str):
    table, line = line_of(found, metric, unit)
    return line.cells[[each.label for each in table.columns].index(column)]


def notes(found: Comparison) -> str:
    return "\n".join(
        note
        for section in found.sections
        for note in (*section.notes, *(note for table in section.tables for note in table.notes))
    )


def test_two_methods_never_share_a_line_and_likelihood_methods_not_even_a_table():
    found = comparison(everything())
    keys = {each.column for each in everything()}
    shown = [line.key for table in tables(found)[1:] for line in table.lines
             if table.columns[0].role == "model"]  # fmt: skip
    assert sorted(shown) == sorted(keys)
    likelihood = next(section for section in found.sections if section.title == "Likelihood")
    for table in likelihood.tables:
        assert len({line.key[2] for line in table.lines}) == 1


def test_a_masked_loss_leaves_the_causal_arm_empty_and_says_why():
    found = comparison(everything())
    assert cell(found, "masked-token loss", "nats/target", "clm").text == MISSING
    assert cell(found, "negative log-likelihood", "bits/byte", "mlm").value is None
    assert "never ranked against one" in notes(found)
    assert "likelihood ranks none of them" in notes(found)


def test_likelihood_lines_that_rank_arms_are_named():
    found = comparison([*runs("a", (1.0, 2.0, 3.0)), *runs("b", (2.0, 3.0, 4.5))])
    assert "Lines that rank arms: negative log-likelihood (nats/token)" in notes(found)


def test_columns_are_arms_then_untrained_then_shared_baselines():
    table, _ = line_of(comparison(classification()), "accuracy", "share")
    assert [column.label for column in table.columns] == [
        "mlm", "clm", "mlm from scratch", "clm from scratch", "majority class", "TF-IDF",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "flag"),
    [
        (6.19, ()),
        (6.2, ("does not beat context-free",)),
        (6.8, ("does not beat unigram", "does not beat context-free")),
        (math.inf, ("does not beat unigram", "does not beat context-free")),
    ],
)
def test_an_arm_is_flagged_with_every_baseline_that_it_does_not_beat(value, flag):
    loss = {"metric": "masked-token loss", "method": MASKED, "unit": "nats/target"}
    rows = runs("mlm", (value,) * 3, **loss)
    rows += shared(("mlm",), "unigram", 6.77, **loss) + shared(
        ("mlm",), "context-free", 6.2, **loss
    )
    found = comparison(rows)
    assert cell(found, "masked-token loss", "nats/target", "mlm").flags == flag
    assert cell(found, "masked-token loss", "nats/target", "unigram").flags == ()
    assert ("⚠ mlm: does not beat context-free" in notes(found)) == bool(flag)


def test_higher_is_better_where_the_row_says_so():
    share = {"metric": "masked-token accuracy", "unit": "share", "better": "higher"}
    rows = runs("mlm", (0.20, 0.21, 0.20), **share) + shared(("mlm",), "unigram", 0.05, **share)
    assert cell(comparison(rows), "masked-token accuracy", "share", "mlm").flags == ()


def test_a_constant_classifier_is_flagged_with_the_number_of_runs():
    rows = runs("mlm", (0.5, 0.5, 0.7), **ACCURACY)
    rows[0] = rows[0].model_copy(update={"details": {"constant_output": True}})
    found = comparison(rows)
    assert cell(found, "accuracy", "share", "mlm").flags == ("constant output (1 of 3 runs)",)
    assert "constant output" not in notes(comparison(rows[1:]))


@pytest.mark.parametrize(
    ("words", "own", "flags"),
    [(0.6, 0.5, ()), (0.72, 0.5, ("does not beat TF-IDF (2 of 3 runs)",)),
     (0.6, 0.70, ("does not beat its own from scratch (1 of 3 runs)",)),
     (0.9, 0.9, ("does not beat TF-IDF", "does not beat its own from scratch"))],
)  # fmt: skip
def test_pretraining_must_beat_counting_words_and_no_pretraining(words, own, flags):
    rows = runs("mlm", (0.70, 0.71, 0.73), **ACCURACY)
    rows += runs("mlm", (own,) * 3, role="untrained", baseline="from scratch", **ACCURACY)
    rows += shared(("mlm",), "TF-IDF", words, **ACCURACY)
    rows += shared(("mlm",), "majority class", 0.5, **ACCURACY)
    assert cell(comparison(rows), "accuracy", "share", "mlm").flags == flags


@pytest.mark.parametrize(
    ("clm", "bold", "reading"),
    [((0.60, 0.61, 0.59), True, "mlm better"), ((0.80, 0.81, 0.79), False, "clm better"),
     ((0.60, 0.72, 0.69), False, "no significant difference")],
)  # fmt: skip
def test_bold_is_what_is_significantly_better(clm, bold, reading):
    rows = runs("mlm", (0.70, 0.71, 0.691), **ACCURACY) + runs("clm", clm, **ACCURACY)
    found = comparison(rows)
    assert cell(found, "accuracy", "share", "mlm").best == bold
    assert tables(found)[-1].lines[0].cells[-1].text == reading


def test_lower_is_better_for_a_loss():
    found = comparison([*runs("a", (4.0, 4.1, 4.2)), *runs("b", (4.5, 4.6, 4.71))])
    assert cell(found, "negative log-likelihood", "nats/token", "a").best
    assert not cell(found, "negative log-likelihood", "nats/token", "b").best


def test_correction_for_many_tests_takes_the_bold_away():
    def rows(tasks: int):
        for task in range(tasks):
            changes = ACCURACY | {"data": f"task{task}/test"}
            yield from runs("mlm", (0.70, 0.71, 0.69), **changes)
            yield from runs("clm", (0.66, 0.68, 0.65), **changes)

    alone, many = (comparison(list(rows(tasks))) for tasks in (1, 10))
    assert cell(alone, "accuracy", "share", "mlm").best
    assert not cell(many, "accuracy", "share", "mlm").best
    assert many.contrasts[0].p == pytest.approx(10 * alone.contrasts[0].p)


def test_one_seed_is_never_bold_and_says_so():
    found = comparison([row("mlm", **ACCURACY), row("clm", value=0.1, **ACCURACY)])
    assert not cell(found, "accuracy", "share", "mlm").best
    assert "n = 1" in notes(found)
    assert tables(found)[-1].lines[0].cells[-1].text == "no test (n = 1)"


def test_the_best_of_three_must_beat_both():
    rows = runs("a", (0.70, 0.71, 0.69), **ACCURACY) + runs("b", (0.50, 0.51, 0.491), **ACCURACY)
    assert cell(comparison(rows), "accuracy", "share", "a").best
    rows += runs("c", (0.72, 0.68, 0.67), **ACCURACY)
    assert not cell(comparison(rows), "accuracy", "share", "a").best


def test_different_numbers_of_seeds_are_given_per_cell():
    found = comparison([*runs("a", (1.0, 2.0, 3.0)), *runs("b", (2.0, 3.0))])
    assert cell(found, "negative log-likelihood", "nats/token", "a").text.endswith("(n = 3)")
    assert cell(found, "negative log-likelihood", "nats/token", "b").text.endswith("(n = 2)")
    assert "n as given" in notes(found)


def test_a_shared_baseline_is_one_number_until_runs_disagree():
    rows = runs("clm", (1.0, 2.0, 3.0)) + shared(("clm", "mlm"), "unigram", 6.79)
    assert (
        cell(comparison(rows), "negative log-likelihood", "nats/token", "unigram").text == "6.790"
    )
    rows[-1] = rows[-1].model_copy(update={"value": 6.99})
    changed = cell(comparison(rows), "negative log-likelihood", "nats/token", "unigram")
    assert changed.value == pytest.approx((6.79 + 6.79 + 6.89) / 3)
    assert "±" in changed.text


def test_runs_of_one_seed_count_once():
    assert by_seed([row(value=1.0), row(value=3.0, run="again")]) == {0: 2.0}


def test_infinite_perplexity_is_shown():
    rows = runs("clm", (math.inf, 1e300, math.inf), metric="perplexity", unit="1/word")
    assert cell(comparison(rows), "perplexity", "1/word", "clm").text == "inf"


@pytest.mark.parametrize(
    ("name", "unit", "apart"),
    [("data_hash", "nats/token", ", text {}"), ("data_hash", "bits/byte", ", text {}"),
     ("tokenizer_hash", "nats/token", ", tokenizer {}"), ("tokenizer_hash", "bits/byte", "")],
)  # fmt: skip
def test_what_counts_other_tokens_or_another_text_shares_no_line(name, unit, apart):
    other = PROVENANCE.model_copy(update={name: "other one"})
    rows = [row("a", unit=unit), row("b", unit=unit, provenance=other)]
    ends = [getattr(each.provenance, name)[:6] for each in rows]
    assert [each.method for each in separated(rows)[0]] == [
        LEFT_TO_RIGHT + apart.format(end) for end in ends
    ]
    assert bool(comparison(rows).contrasts) == (not apart)


@pytest.mark.parametrize("unit", ["1/token", "1/word"])
def test_the_lines_of_a_pseudo_perplexity_depend_on_the_tokenizer(unit):
    other = PROVENANCE.model_copy(update={"tokenizer_hash": "other"})
    both = {"metric": "pseudo-perplexity", "unit": unit}
    rows = [row("a", **both), row("b", provenance=other, **both)]
    assert not comparison(rows).contrasts
    perplexity = [each.model_copy(update={"metric": "perplexity"}) for each in rows]
    assert bool(comparison(perplexity).contrasts) == (unit == "1/word")


def test_curves_are_kept_apart_as_the_rows_of_their_runs_are():
    other = PROVENANCE.model_copy(update={"tokenizer_hash": "other"})
    rows = [
        row(arm, metric="validation loss", data="x/validation", provenance=provenance)
        for arm, provenance in (("mlm", PROVENANCE), ("clm", other))
    ]
    points = [point for point in curves() if point.seed == 0]
    found, drawn = separated(rows, points)
    assert [each.method for each in found] == [
        f"{LEFT_TO_RIGHT}, tokenizer {end}" for end in ("eeeeee", "other")
    ]
    assert {(each.arm, each.method) for each in drawn} == {
        ("mlm", "blocks of 128, tokenizer eeeeee"),
        ("clm", "blocks of 128, tokenizer other"),
    }
    assert separated(found, drawn) == (found, drawn)


def test_tasks_of_one_name_and_other_sentences_share_no_line():
    rows = [
        row(arm, value=value, details={"task_hash": task}, **ACCURACY)
        for arm, value, task in (("a", 0.5, "1" * 16), ("b", 0.6, "2" * 16))
    ]
    assert {each.method for each in separated(rows)[0]} == {
        f"{LEFT_TO_RIGHT}, sentences 111111", f"{LEFT_TO_RIGHT}, sentences 222222",
    }  # fmt: skip
    assert separated(rows[:1])[0] == rows[:1]


def test_rows_of_other_texts_stay_as_they_are_where_nothing_stands_beside_them():
    other = PROVENANCE.model_copy(update={"data_hash": "other"})
    rows = [row("a"), row("b", provenance=other, data="elsewhere/test")]
    assert separated(rows) == (rows, [])


def test_classification_may_differ_in_tokenizer():
    other = PROVENANCE.model_copy(update={"data_hash": "other", "tokenizer_hash": "other"})
    rows = [row("a", **ACCURACY), row("b", provenance=other, **ACCURACY)]
    assert separated(rows) == (rows, [])


def test_no_rows_are_an_error():
    with pytest.raises(UserError, match="no rows"):
        comparison([])


def test_training_block_holds_means_over_runs_and_says_what_is_matched():
    rows = everything()
    rows += runs("mlm", (4.5, 4.6, 4.7), metric="validation loss", method="masked-token loss")
    found = comparison(rows)
    (table,) = found.sections[0].tables
    values = {line.labels[0]: line.cells for line in table.lines}
    assert [each.text for each in values["targets"]] == ["1,474,560", "9,753,600"]
    assert values["tokens/s"][0].value == pytest.approx(
        sum(9_830_400 / seconds for seconds in (74.2, 75.2, 76.2)) / 3
    )
    assert "Equal in all arms (to 1 %): parameters, steps, tokens" in notes(found)
    masked, causal = values["final validation loss: masked-token loss (nats/token)"]
    assert masked.value == pytest.approx(4.6)
    assert causal.text == MISSING


def test_many_arms_stand_below_one_another_and_what_is_alike_is_said_once():
    rows = [
        row(f"rate={index}", metric="validation loss", method="loss", value=4.0 + index)
        for index in range(16)
    ]
    (table,) = comparison(rows).sections[0].tables
    turned = readable(table)
    assert [line.labels for line in turned.lines] == [(f"rate={index}",) for index in range(16)]
    place = turned.columns.index(Column("final validation loss: loss (nats/token)", "quantity"))
    assert [line.cells[place].value for line in turned.lines] == [4.0 + n for n in range(16)]
    assert "tokens" not in turned.headings
    assert "tokens 9,830,400;" in turned.notes[-1]
    (few,) = comparison(rows[:2]).sections[0].tables
    assert readable(few) == few


def test_equal_lengths_of_generation_are_neighbours_in_numeric_order():
    found = comparison(generation((128, 16)))
    methods = [line.key[2] for line in tables(found)[1].lines if line.key[0] == "generation time"]
    decoders = sorted(decoder for decoder, *_ in DECODERS.values())
    assert methods == [f"{each}, {n} new tokens" for n in (16, 128) for each in decoders]


def test_unknown_metrics_stand_under_other():
    found = comparison(runs("a", (1.0, 2.0, 3.0), metric="novelty"))
    assert found.sections[-1].title == "Other"


def test_provenance_names_every_commit_and_warns_of_mixed_devices():
    other = PROVENANCE.model_copy(update={"commit": "fedcba", "device": "cuda"})
    lines = comparison([row("a"), row("b", provenance=other)], "mlmclm compare x").provenance
    assert "commit 0123456789abcdef, fedcba;" in lines[0]
    assert f"data {'d' * 12};" in lines[0]
    assert "device" in lines[1]
    assert lines[-1] == "Reproduce: mlmclm compare x"


def test_row_order_does_not_change_the_measures():
    rows = everything()
    one, two = comparison(rows), comparison([*rows[:1], *rows[:0:-1]])
    assert {line.key for table in tables(one) for line in table.lines} == {
        line.key for table in tables(two) for line in table.lines
    }
    assert cell(one, "perplexity", "1/word", "clm") == cell(two, "perplexity", "1/word", "clm")
    assert Column("mlm").label == "mlm"
    assert line_of(one, "perplexity", "1/word")[1].key[1] == TEST


def test_each_arm_says_how_it_wrote():
    rows = [
        row(arm=arm, metric="throughput", unit="tokens/s", method="m", details={"decoder": decoder})
        for arm, decoder in (("mlm", "Mask-Predict, T = 10"), ("clm", "left to right, KV cache"))
    ]
    (section,) = [each for each in comparison(rows).sections if each.title == "Generation"]
    (note,) = [each for each in section.notes if each.startswith("Written by")]
    assert "clm: left to right, KV cache; mlm: Mask-Predict, T = 10" in note


def test_the_training_block_shows_the_precision_of_training_not_of_evaluation():
    trained = row(metric="validation loss", unit="nats/target", provenance=provenance("bfloat16"))
    measured = row(provenance=provenance("float32"))
    section = comparison([trained, measured]).sections[0]
    (line,) = [each for each in section.tables[0].lines if each.labels == ("dtype",)]
    assert line.cells[0].text == "bfloat16"


def provenance(dtype):
    return row().provenance.model_copy(update={"dtype": dtype})
