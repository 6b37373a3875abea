"""Toy tasks in a folder each, a tokenizer for their words, and subjects to measure on them."""

import json
import random

import pytest

from mlmclm.attention import Visibility
from mlmclm.contracts import Vocabulary
from mlmclm.corpora import Corpus
from mlmclm.corpora.labelled import load_task
from mlmclm.evaluation import Subject
from mlmclm.evaluation.classification.features import encode
from mlmclm.evaluation.classification.route import Material
from mlmclm.models.presets import Knobs, build
from mlmclm.tokenization import load_tokenizer

WORDS = [
    "the",
    "cat",
    "of",
    "rain",
    "sees",
    "an",
    "old",
    "boat",
    "and",
    "then",
    "it",
    "sleeps",
    "under",
    "my",
    "bridge",
]
SIZES = {"train": 96, "validation": 60, "test": 80}


def sentence(rng, verdict):
    words = rng.choices(WORDS, k=rng.randint(2, 12))
    words.insert(rng.randint(0, len(words)), verdict)
    return " ".join(words)


def rows(rng, count, truth):
    """Make sentences that say "good" or "bad"; a share of ``truth`` have the label they ask for."""
    for _ in range(count):
        verdict = rng.choice(("good", "bad"))
        label = verdict if rng.random() < truth else rng.choice(("bad", "good", "good"))
        yield sentence(rng, verdict), label


@pytest.fixture
def toy(tmp_path):
    """Write a task, by default one that a single word decides; return what ``--task`` takes."""

    def write(name="toy", truth=1.0, train_size=96, **splits):
        rng = random.Random(name)
        folder = tmp_path / name
        folder.mkdir()
        for split, size in {**SIZES, "train": train_size}.items():
            found = splits.get(split) or rows(rng, size, truth)
            lines = [json.dumps({"text": text, "label": label}) for text, label in found]
            (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
        return f"{name}={folder}"

    return write


@pytest.fixture(scope="session")
def corpus():
    rng = random.Random(0)
    lines = [sentence(rng, verdict) for verdict in ("good", "bad") * 20]
    return Corpus("made-up", {"train": tuple(lines)})


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory, corpus):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLMCLM_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_tokenizer(None, corpus)


@pytest.fixture
def vocabulary():
    return Vocabulary(size=97, pad=0, end=1, mask=2, unknown=3)


@pytest.fixture
def lab(tmp_path, tokenizer, corpus):
    """Make subjects over tiny models, with anything changed."""

    def of(visibility=Visibility.FULL, preset="tiny", knobs=None, **changes):
        def untrained():
            found = build(preset, visibility, tokenizer.vocabulary, 0, knobs or Knobs())
            return found.eval()

        fields = {
            "model": changes.pop("model", None) or untrained(), "untrained": untrained,
            "tokenizer": tokenizer, "corpus": corpus, "block": 32, "seed": 7,
            "folder": tmp_path / "run",
        }  # fmt: skip
        return Subject(**fields | changes)

    return of


@pytest.fixture
def material(tokenizer):
    """Encode a whole task."""

    def of(spec):
        task = load_task(spec)
        encoded = {name: encode(tokenizer, s.texts, 32) for name, s in task.splits.items()}
        return Material(len(task.labels), task.splits, encoded)

    return of
