import itertools
import math

import numpy as np
import pytest
import torch

from mlmclm.corpora import Corpus
from mlmclm.errors import UserError
from mlmclm.evaluation.likelihood.counting import counts_of
from mlmclm.evaluation.likelihood.pseudo_perplexity import PseudoPerplexity, one_mask_each


def test_each_copy_hides_one_token_and_asks_for_it(tokenizer):
    end, mask = tokenizer.vocabulary.end, tokenizer.vocabulary.mask
    batch = one_mask_each(torch.tensor([50, 60]), tokenizer.vocabulary)
    assert batch.inputs["input_ids"].tolist() == [[end, mask, 60, end], [end, 50, mask, end]]
    assert batch.targets.tolist() == [[-100, 50, -100, -100], [-100, -100, 60, -100]]


def test_it_is_what_a_naive_loop_finds(lab, value):
    subject, estimator = lab.masked, PseudoPerplexity(passages=3)
    end, mask = subject.tokenizer.vocabulary.end, subject.tokenizer.vocabulary.mask
    nats = tokens = words = 0
    for line in estimator.sample(subject):
        ids = [end, *line.tokens.tolist(), end]
        for place in range(1, len(ids) - 1):
            shown = torch.tensor([[*ids[:place], mask, *ids[place + 1 :]]])
            with torch.inference_mode():
                logits = subject.model.network(input_ids=shown).logits[0, place]
            nats -= logits.double().log_softmax(-1)[ids[place]].item()
        tokens += len(line.tokens)
        words += len(subject.tokenizer.decode(ids[1:-1]).replace("\n", "<eol>").split())
    rows = estimator.measure(subject)
    assert value(rows, "1/token") == pytest.approx(math.exp(nats / tokens), rel=1e-5)
    assert value(rows, "1/word") == pytest.approx(math.exp(nats / words), rel=1e-5)


def test_copies_per_forward_pass_change_nothing(lab, value):
    one, many = (
        math.log(value(PseudoPerplexity(rows=rows).measure(lab.masked), "1/token"))
        for rows in (1, 64)
    )
    assert one == pytest.approx(many, abs=1e-4)


def test_lines_are_running_text_that_fits_a_block(lab, corpus):
    text = "".join(corpus.documents("test"))
    for line in PseudoPerplexity(passages=1000).sample(lab.masked):
        assert 8 <= len(line.tokens) <= 30
        shown = lab.masked.tokenizer.decode(line.tokens.tolist())
        assert shown in text
        assert shown.endswith("\n")
        assert "Title" not in shown


def test_the_sample_depends_on_its_seed_and_its_size_is_stated(lab):
    def drawn(**options):
        lines = PseudoPerplexity(split="train", **options).sample(lab.masked)
        return [tuple(line.tokens.tolist()) for line in lines]

    assert drawn(passages=5) == drawn(passages=5) != drawn(passages=5, seed=1)
    assert len(drawn(passages=5)) == 5
    every = len(drawn(passages=10_000))
    (method,) = {
        row.method for row in PseudoPerplexity(split="train", passages=10_000).measure(lab.masked)
    }
    assert method == f"original, one mask at a time, {every} passages of 8 to 30 tokens, seed 0"


def test_no_line_that_fits_is_an_error_that_says_what_was_looked_for(lab):
    short = Corpus("short", lab.masked.corpus.splits | {"test": (" the \n", " cat \n")})
    with pytest.raises(UserError, match="short/test has no line of 8 to 30 tokens"):
        PseudoPerplexity().check(lab.of(corpus=short))


def test_the_bigram_baseline_sees_the_left_neighbour(lab, value):
    subject, estimator = lab.masked, PseudoPerplexity(passages=4)
    counts, end = counts_of(subject.corpus, subject.tokenizer), subject.tokenizer.vocabulary.end
    nats = tokens = 0
    for line in estimator.sample(subject):
        ids = [end, *line.tokens.tolist()]
        for before, token in itertools.pairwise(ids):
            nats -= math.log(counts.bigram(np.array([before]), np.array([token]))[0])
        tokens += len(line.tokens)
    found = value(estimator.measure(subject), "1/token", baseline="bigram")
    assert found == pytest.approx(math.exp(nats / tokens))
