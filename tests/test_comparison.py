"""What the runs of a comparison are called, and what they are compared as."""

from __future__ import annotations

import pytest
from made_up import PROVENANCE

from mlmclm.comparison import arm_names
from mlmclm.contracts import Budget
from mlmclm.errors import UserError
from mlmclm.training.record import RunRecord, save_record

BUDGET = Budget(steps=1, tokens=1, targets=1, flops=1.0, seconds=1.0)


def finished(folder, *, arm="mlm", seed=0, config="a"):
    folder.mkdir(parents=True)
    save_record(
        folder,
        RunRecord(
            arm=arm, objective="mlm", objective_options={}, visibility="full", native="full",
            trunk="tiny", parameters=1, seed=seed, block=8, corpus="x", blocks=1, remainder=0,
            validation_loss=1.0, validation_targets=1, loss_name="loss", budget=BUDGET,
            provenance=PROVENANCE.model_copy(update={"config_hash": config}),
        ),
    )  # fmt: skip
    return folder


def test_an_arm_keeps_its_name_where_it_means_one_configuration(tmp_path):
    runs = [
        finished(tmp_path / "mlm-seed0"),
        finished(tmp_path / "mlm-seed1", seed=1),
        finished(tmp_path / "clm-seed0", arm="clm", config="b"),
    ]
    assert list(arm_names(runs).values()) == ["mlm", "mlm", "clm"]


def test_configurations_that_share_a_name_are_called_after_their_folders(tmp_path):
    runs = [
        finished(tmp_path / "low-seed0"),
        finished(tmp_path / "low-seed1", seed=1),
        finished(tmp_path / "high-seed0", config="b"),
    ]
    assert list(arm_names(runs).values()) == ["low", "low", "high"]


def test_folders_that_share_a_name_too_are_called_by_their_paths(tmp_path):
    runs = [finished(tmp_path / "a" / "run"), finished(tmp_path / "b" / "run", config="b")]
    assert list(arm_names(runs).values()) == [str(run) for run in runs]


def test_one_configuration_and_seed_twice_is_refused_with_both_folders(tmp_path):
    runs = [finished(tmp_path / "a"), finished(tmp_path / "b")]
    with pytest.raises(UserError, match=r"a and .*b are the same configuration with the same seed"):
        arm_names(runs)
