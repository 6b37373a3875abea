from __future__ import annotations

import json
from collections import Counter

import huggingface_hub.constants
import pytest
from datasets import ClassLabel, Dataset, Features, Value

from mlmclm.corpora.labelled import TASKS, load_task
from mlmclm.errors import UserError


def write(folder, **splits):
    for split, rows in splits.items():
        lines = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return f"toy={folder}"


ROWS = [(f"text {number}", ("no", "yes")[number % 2]) for number in range(40)]


@pytest.mark.parametrize(
    ("name", "labels", "sizes"),
    [
        ("mr", 2, (8530, 1066, 1066)),
        ("subj", 2, (8000, 1000, 1000)),
        ("clinc150", 150, (15000, 3000, 4500)),
        ("banking77", 77, (9003, 1000, 3080)),
    ],
)
def test_bundled_tasks_have_the_published_sizes(name, labels, sizes):
    task = load_task(name)
    assert len(task.labels) == labels
    assert tuple(map(len, task.splits.values())) == sizes


def test_clinc150_has_100_training_rows_a_class():
    assert set(Counter(load_task("clinc150").splits["train"].labels).values()) == {100}


def test_a_local_folder_is_a_task(tmp_path):
    task = load_task(write(tmp_path, train=ROWS, valid=ROWS[:4], test=ROWS[4:6]))
    assert task.name == "toy"
    assert task.labels == ("no", "yes")
    assert task.splits["test"].texts == ("text 4", "text 5")
    assert task.splits["test"].labels == (0, 1)


def test_a_missing_validation_split_is_a_tenth_of_train(tmp_path):
    task = load_task(write(tmp_path, train=ROWS, test=ROWS[:2]))
    train, validation = task.splits["train"].texts, task.splits["validation"].texts
    assert len(validation) == 4
    assert sorted(train + validation) == sorted(text for text, _ in ROWS)


def test_hidden_test_labels_make_validation_the_test(tmp_path):
    hidden = [(text, -1) for text, _ in ROWS[:5]]
    numbered = [(text, int(label == "yes")) for text, label in ROWS]
    task = load_task(write(tmp_path, train=numbered, validation=numbered[:6], test=hidden))
    assert task.splits["test"].texts == tuple(text for text, _ in ROWS[:6])
    assert len(task.splits["validation"]) == 4


@pytest.mark.parametrize("labels", [(-1, 1), (-1, 0, 1)])
def test_minus_one_is_a_label_where_others_stand_beside_it(tmp_path, labels):
    rows = [(f"text {number}", labels[number % len(labels)]) for number in range(40)]
    task = load_task(write(tmp_path, train=rows, validation=rows[:6], test=rows[:3]))
    assert task.labels == tuple(map(str, labels))
    assert len(task.splits["train"]) == 40


def test_named_labels_are_used_and_their_minus_one_is_hidden(tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["bad", "good"])})
    for split, labels in (("train", [0, 1] * 20), ("valid", [0, 1]), ("test", [1, -1])):
        texts = [f"text {number}" for number in range(len(labels))]
        table = Dataset.from_dict({"text": texts, "label": labels}, features=features)
        table.to_parquet(tmp_path / f"{split}.parquet")
    task = load_task(f"toy={tmp_path}")
    assert task.labels == ("bad", "good")
    assert task.splits["test"].texts == ("text 0",)


def test_columns_can_be_named(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text("q,kind\n" + "".join(f"{t},{k}\n" for t, k in ROWS), encoding="utf-8")
    assert load_task(f"toy={path}:q:kind").labels == ("no", "yes")
    with pytest.raises(UserError, match=r"no column 'text' or 'sentence' \(it has q, kind\)"):
        load_task(f"toy={path}")


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": [("a", "x")] * 30}, "one label only, 'x'"),
        ({"train": ROWS, "test": [("a", "maybe")]}, "label 'maybe' does not occur in training"),
        ({"train": ROWS, "test": [("  ", "yes")]}, "text with the label 'yes' is empty"),
        ({"train": ROWS[:6]}, "6 training rows, too few to hold out"),
        ({"test": ROWS}, "holds no train.txt"),
    ],
)
def test_sets_that_cannot_be_used_are_refused(tmp_path, splits, message):
    with pytest.raises(UserError, match=message):
        load_task(write(tmp_path, **splits))


def test_unknown_names_and_nameless_paths(tmp_path):
    with pytest.raises(UserError, match="no task is called 'banking7'; did you mean 'banking77'"):
        load_task("banking7")
    for wrong in (str(tmp_path), f"={tmp_path}", "toy="):
        with pytest.raises(UserError, match=f"given as --task NAME=PATH, not '{wrong}'"):
            load_task(wrong)
    with pytest.raises(UserError, match=r"mr is bundled: --task mr=.* needs another name"):
        load_task(f"mr={tmp_path}")
    with pytest.raises(UserError, match="there is no file or folder"):
        load_task("toy=nowhere")
    with pytest.raises(UserError, match="there is no file or folder"):
        load_task(str(tmp_path / "none"))


@pytest.mark.parametrize("name", ["sst2", "trec", "cola"])
def test_unlicensed_sets_offline_say_how_to_give_a_folder(name, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=rf"mr, subj, clinc150, banking77.*--task {name}=FOLDER"):
        load_task(name)


def test_every_task_says_what_it_is():
    assert all(TASKS.get(name).__doc__ for name in TASKS.names())
