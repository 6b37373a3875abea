"""What all estimators of likelihood have in common."""

import pytest
import torch

from mlmclm.attention import Visibility
from mlmclm.errors import UserError
from mlmclm.evaluation import EVALUATORS
from mlmclm.evaluation.likelihood import CausalLikelihood, MaskedTokenLoss, PseudoPerplexity

ESTIMATORS = [
    (CausalLikelihood, Visibility.CAUSAL, "1/token", {"uniform", "unigram", "bigram"}),
    (MaskedTokenLoss, Visibility.FULL, "1/target",
     {"uniform", "unigram", "bigram", "context-free"}),
    (PseudoPerplexity, Visibility.FULL, "1/token", {"uniform", "unigram", "bigram"}),
]  # fmt: skip
both = pytest.mark.parametrize(("kind", "visibility", "unit", "floors"), ESTIMATORS)


@both
def test_knowing_nothing_costs_the_vocabulary_size(kind, visibility, unit, floors, lab, value):
    subject = lab.silent(visibility)
    rows = kind().measure(subject)
    size = subject.tokenizer.vocabulary.size
    assert value(rows, unit) == pytest.approx(size, rel=1e-5)
    assert value(rows, unit, baseline="uniform") == pytest.approx(size, rel=1e-9)


@both
def test_baselines_stand_in_the_columns_of_the_model(kind, visibility, unit, floors, lab):
    def column(row):
        return row.metric, row.data, row.method, row.unit, row.better, row.count

    rows = kind().measure(lab.of(visibility))
    columns = [column(row) for row in rows if row.role == "model"]
    assert len(columns) == len(set(columns))
    for name in floors:
        assert [column(row) for row in rows if row.baseline == name] == columns
    assert {row.baseline for row in rows if row.role == "baseline"} == floors


@both
def test_only_models_that_see_as_the_method_asks_are_measured(kind, visibility, unit, floors, lab):
    (other,) = set(Visibility) - {visibility}
    assert kind().refusal(lab.of(visibility)) is None
    assert "run " in kind().refusal(lab.of(other))
    assert EVALUATORS.get(EVALUATORS.name_of(kind())).group == "likelihood"


@both
def test_autocast_around_a_measurement_changes_nothing(kind, visibility, unit, floors, lab, value):
    subject = lab.of(visibility)
    alone = value(kind().measure(subject), unit)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert value(kind().measure(subject), unit) == alone


@both
def test_a_model_that_diverged_is_an_error_and_no_number(kind, visibility, unit, floors, lab):
    subject = lab.of(visibility)
    torch.nn.init.constant_(subject.model.network.get_output_embeddings().weight, torch.nan)
    with pytest.raises(UserError, match="not a number"):
        kind().measure(subject)
