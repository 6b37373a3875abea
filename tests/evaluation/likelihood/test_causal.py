import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from mlmclm.attention import Visibility
from mlmclm.corpora import Corpus
from mlmclm.corpora.packing import passages
from mlmclm.errors import UserError
from mlmclm.evaluation.likelihood.causal import (
    CausalLikelihood,
    Window,
    inputs_and_targets,
    windows,
)
from mlmclm.evaluation.likelihood.counting import counts_of


def test_the_windows_of_the_docstring():
    document = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7])
    parts = list(windows(7, context=4, stride=2))
    assert parts == [Window(0, 4, 0), Window(2, 6, 4), Window(3, 7, 6)]
    shown, asked = inputs_and_targets(document, parts[1])
    assert (shown.tolist(), asked.tolist()) == ([2, 3, 4, 5], [-100, -100, 5, 6])


@pytest.mark.parametrize("context", [1, 2, 5, 8])
def test_windows_score_every_token_once_and_from_enough_context(context):
    for tokens, stride in itertools.product(range(20), range(1, context + 1)):
        scored = []
        for window in windows(tokens, context, stride):
            assert 0 <= window.start <= window.fresh < window.stop <= tokens
            for position in range(window.fresh, window.stop):
                seen = position - window.start + 1
                assert min(position + 1, context - stride + 1) <= seen <= context
                scored.append(position + 1)
        assert scored == list(range(1, tokens + 1))


class Bigram:
    """A model whose every conditional is known: a table of logits by the token before."""

    device = torch.device("cpu")
    visibility = Visibility.CAUSAL
    positions = 1000

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary
        size = vocabulary.size
        self.table = torch.randn(size, size, generator=torch.Generator().manual_seed(0))

    def nats(self, input_ids, targets, real):
        assert real is None or not (targets[~real] != -100).any()
        logits = self.table[input_ids].flatten(0, 1)
        return cross_entropy(logits, targets.flatten(), ignore_index=-100, reduction="sum")


@pytest.mark.parametrize(("context", "stride"), [(1, 1), (7, 3), (32, 32), (1000, None)])
def test_known_conditionals_give_their_product(context, stride, lab, corpus, tokenizer, value):
    model = Bigram(tokenizer.vocabulary)
    rows = CausalLikelihood(context=context, stride=stride).measure(
        lab.of(Visibility.CAUSAL, model=model)
    )
    share = model.table.double().softmax(-1)
    texts = [[1, *tokenizer.encode(text)] for text in corpus.documents("test")]
    pairs = [pair for ids in texts for pair in itertools.pairwise(ids)]
    assert tokenizer.vocabulary.end == 1
    nats = -sum(math.log(share[pair]) for pair in pairs)
    assert value(rows, "nats/token") == pytest.approx(nats / len(pairs), rel=1e-6)


def test_one_window_costs_what_hugging_face_says(lab, value):
    short = Corpus("short", lab.causal.corpus.splits | {"test": (" the cat sleeps . \n",)})
    subject = lab.of(Visibility.CAUSAL, corpus=short)
    (text,) = passages(short, "test", subject.tokenizer)
    ids = torch.tensor([[1, *text.tokens.tolist()]])
    with torch.inference_mode():
        theirs = float(subject.model.network(input_ids=ids, labels=ids).loss)
    assert len(text.tokens) < subject.block
    assert value(CausalLikelihood().measure(subject), "nats/token") == pytest.approx(
        theirs, rel=1e-5
    )


def test_a_wide_stride_costs_context_and_so_nats_of_a_model_that_uses_it(lab, value):
    """Slow and obvious: one forward pass for each token of a document."""
    subject = lab.causal
    nats = count = 0
    with torch.inference_mode():
        for text in passages(subject.corpus, "test", subject.tokenizer):
            ids = [1, *text.tokens.tolist()]
            for place in range(1, len(ids)):
                shown = torch.tensor([ids[max(0, place - 9) : place]])
                nats -= subject.model.logits(shown)[0, -1].log_softmax(-1)[ids[place]].item()
                count += 1
    found = CausalLikelihood(context=9, stride=1).measure(subject)
    assert value(found, "nats/token") == pytest.approx(nats / count, rel=1e-5)
    wide = CausalLikelihood(context=9, stride=9).measure(subject)
    assert value(wide, "nats/token") != pytest.approx(nats / count, rel=1e-4)


def test_the_batch_size_changes_nothing(lab, value):
    short = tuple(f" the old cat {'sleeps ' * n}. \n" for n in range(40))
    subject = lab.of(
        Visibility.CAUSAL, corpus=Corpus("ragged", lab.causal.corpus.splits | {"test": short})
    )
    one, eight, all_ = (
        value(CausalLikelihood(batch_size=size).measure(subject), "nats/token")
        for size in (1, 8, 1000)
    )
    assert one == pytest.approx(eight, abs=1e-4)
    assert one == pytest.approx(all_, abs=1e-4)


def test_units_are_of_the_original_text(lab, corpus, value):
    rows = CausalLikelihood().measure(lab.causal)
    text = "".join(corpus.documents("test"))
    counts = {row.unit: row.count for row in rows if row.role == "model"}
    assert counts["bits/byte"] == len(text.encode("utf-8"))
    assert counts["nats/word"] == len(text.replace("\n", "<eol> ").split())
    nats = value(rows, "nats/token") * counts["nats/token"]
    assert value(rows, "nats/word") * counts["nats/word"] == pytest.approx(nats)
    assert 2 ** value(rows, "bits/byte") == pytest.approx(math.exp(nats / counts["bits/byte"]))
    assert math.log(value(rows, "1/word")) == pytest.approx(value(rows, "nats/word"))


def test_context_stride_and_limit_are_part_of_the_method(lab):
    assert {row.method for row in CausalLikelihood().measure(lab.causal)} == {
        "left to right, context 32, stride 16"
    }
    limited = CausalLikelihood(context=8, stride=8, limit=2).measure(lab.causal)
    assert {(row.method, row.data) for row in limited} == {
        ("left to right, context 8, stride 8, first 2 documents", "made-up/test")
    }
    size = len("".join(lab.causal.corpus.documents("test")[:2]).encode("utf-8"))
    assert {row.count for row in limited if row.unit == "bits/byte"} == {size}


def test_the_bigram_baseline_starts_from_the_end_token_too(lab, corpus, tokenizer, value):
    counts = counts_of(corpus, tokenizer)
    texts = [[1, *tokenizer.encode(text)] for text in corpus.documents("test")]
    pairs = np.array([pair for ids in texts for pair in itertools.pairwise(ids)])
    nats = -np.log(counts.bigram(pairs[:, 0], pairs[:, 1])).mean()
    rows = CausalLikelihood().measure(lab.causal)
    assert value(rows, "nats/token", baseline="bigram") == pytest.approx(nats)


def test_a_context_or_stride_that_does_not_fit_is_refused_with_both_numbers(lab):
    with pytest.raises(UserError, match=r"context is 65, but run has only 64 positions"):
        CausalLikelihood(context=65).measure(lab.causal)
    with pytest.raises(UserError, match=r"stride must be at most the context, 32, not 33"):
        CausalLikelihood(stride=33).measure(lab.causal)


def test_a_loss_beyond_a_float_is_an_infinite_perplexity(lab, value):
    hopeless = SimpleNamespace(
        device=torch.device("cpu"), visibility=Visibility.CAUSAL, positions=64,
        vocabulary=lab.causal.tokenizer.vocabulary, nats=lambda *_: torch.tensor(1e9),
    )  # fmt: skip
    rows = CausalLikelihood().measure(lab.of(Visibility.CAUSAL, model=hopeless))
    assert value(rows, "1/word") == math.inf
