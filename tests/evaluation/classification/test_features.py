import random
from types import SimpleNamespace

import pytest
import torch

from mlmclm.attention import Visibility
from mlmclm.corpora.labelled import LabelledSplit
from mlmclm.errors import UserError
from mlmclm.evaluation.classification.features import (
    POOLINGS,
    Encoded,
    batches_of,
    by_length,
    encode,
    longest_of,
    part_of,
    pooled,
)
from mlmclm.models.presets import build
from mlmclm.seeds import generator

HIDDEN = torch.tensor([[[1.0, 2], [3, 4], [90, 90]], [[5, 6], [7, 8], [9, 10]]])
REAL = torch.tensor([[True, True, False], [True, True, True]])


def made_up(count, longest=30):
    rng = random.Random(0)
    return Encoded(
        tuple(tuple(rng.choices(range(4, 97), k=rng.randint(1, longest))) for _ in range(count)), 0
    )


def flat(batches):
    return [place for batch in batches for place in batch]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("first", [[1.0, 2], [5, 6]]),
        ("last", [[3.0, 4], [9, 10]]),
        ("mean", [[2.0, 3], [7, 8]]),
    ],
)
def test_poolings_take_the_states_that_they_name_and_no_padding(name, expected):
    assert torch.equal(POOLINGS.get(name)(HIDDEN, REAL), torch.tensor(expected))


@pytest.mark.parametrize("preset", ["tiny", "bert-tiny", "gpt2-tiny"])
@pytest.mark.parametrize("pooling", POOLINGS.names())
@pytest.mark.parametrize("visibility", list(Visibility))
def test_a_text_has_the_same_features_alone_and_beside_longer_ones(
    visibility, pooling, preset, vocabulary
):
    model = build(preset, visibility, vocabulary, 0).eval()
    encoded = made_up(7)
    together = pooled(model, encoded, POOLINGS.get(pooling))
    alone = pooled(model, encoded, POOLINGS.get(pooling), size=1)
    assert together.shape == (7, 128)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_features_come_in_the_order_of_the_texts(vocabulary):
    model = build("tiny", Visibility.FULL, vocabulary, 0).eval()
    encoded = made_up(9)
    found = pooled(model, encoded, POOLINGS.get("mean"), size=4)
    for ids, each in zip(encoded.ids, found, strict=True):
        own = model.hidden(torch.tensor([ids]))[0].mean(0)
        torch.testing.assert_close(each, own, atol=1e-5, rtol=1e-5)


def test_features_are_float32_whatever_the_model_computes_in(vocabulary):
    model = build("tiny", Visibility.FULL, vocabulary, 0).eval().to(torch.bfloat16)
    assert pooled(model, made_up(2), POOLINGS.get("mean")).dtype is torch.float32


def test_batches_are_padded_on_the_right():
    tokens, real = Encoded(((5, 6, 7), (8,), (9, 9)), 0).batch([1, 0], pad=4)
    assert tokens.tolist() == [[8, 4, 4], [5, 6, 7]]
    assert real.tolist() == [[True, False, False], [True, True, True]]


def test_texts_begin_with_the_end_token_and_what_is_cut_is_counted(tokenizer):
    texts = ["the cat", "the old boat sees the rain", "the old boat sees my bridge"]
    whole = [(tokenizer.vocabulary.end, *tokenizer.encode(text)) for text in texts]
    found = encode(tokenizer, texts, len(whole[0]))
    assert found.ids == tuple(each[: len(whole[0])] for each in whole)
    assert found.truncated == 2
    assert encode(tokenizer, texts, 99) == Encoded(tuple(whole), 0)


@pytest.mark.parametrize("size", [1, 4, 64])
def test_batches_by_length_hold_each_text_once_and_the_short_ones_first(size):
    encoded = made_up(21)
    batches = by_length(encoded, size)
    assert sorted(flat(batches)) == list(range(21))
    assert max(map(len, batches)) <= size
    lengths = [len(encoded.ids[place]) for place in flat(batches)]
    assert lengths == sorted(lengths)


@pytest.mark.parametrize(("count", "size"), [(21, 4), (100, 3), (5, 64)])
def test_random_batches_hold_each_text_once(count, size):
    batches = list(batches_of(made_up(count), size, generator(0)))
    assert sorted(flat(batches)) == list(range(count))
    assert max(map(len, batches)) <= size


def test_random_batches_depend_on_their_generator_alone():
    def drawn(seed, state):
        torch.manual_seed(state)
        return list(batches_of(made_up(50), 4, generator(seed)))

    assert drawn(0, 1) == drawn(0, 2)
    assert drawn(0, 1) != drawn(1, 1)


def test_random_batches_are_of_similar_length_in_random_order():
    encoded = made_up(64)  # one stretch
    batches = [
        [len(encoded.ids[place]) for place in batch]
        for batch in batches_of(encoded, 8, generator(0))
    ]
    assert sorted(flat(batches)) == flat(sorted(map(sorted, batches)))
    assert batches != sorted(batches)


def test_which_texts_meet_in_a_batch_changes_from_epoch_to_epoch():
    encoded = Encoded(((5,),) * 40, 0)
    one, two = ({frozenset(b) for b in batches_of(encoded, 4, generator(e))} for e in (0, 1))
    assert not one & two


SPLIT = LabelledSplit(tuple(f"text {n}" for n in range(50)), tuple(n % 3 for n in range(50)))


def test_a_part_is_the_same_at_each_call_and_keeps_texts_and_labels_together():
    part = part_of(SPLIT, 20, "toy")
    assert part == part_of(SPLIT, 20, "toy")
    pairs = list(zip(part.texts, part.labels, strict=True))
    assert len(set(pairs)) == 20
    assert set(pairs) < set(zip(SPLIT.texts, SPLIT.labels, strict=True))


def test_a_larger_part_contains_the_smaller_and_no_limit_is_all():
    small, large, whole = (part_of(SPLIT, limit, "toy").texts for limit in (20, 30, None))
    assert set(small) < set(large) < set(whole)
    assert sorted(whole) == sorted(SPLIT.texts)
    assert whole != SPLIT.texts  # sources may be sorted by label


def test_a_part_with_one_label_is_refused_with_its_size():
    lonely = LabelledSplit(SPLIT.texts, (0,) * 50)
    with pytest.raises(UserError, match=r"task toy: the 7 training sentences .* there are 50"):
        part_of(lonely, 7, "toy")


@pytest.mark.parametrize(("wanted", "longest"), [(None, 32), (20, 20), (100, 100), (9999, 512)])
def test_texts_are_cut_to_the_block_unless_told_and_always_to_the_positions(wanted, longest):
    subject = SimpleNamespace(block=32, model=SimpleNamespace(positions=512))
    assert longest_of(subject, wanted) == longest


def test_a_block_beyond_the_positions_is_cut_to_them():
    assert longest_of(SimpleNamespace(block=99, model=SimpleNamespace(positions=64)), None) == 64
