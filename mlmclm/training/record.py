"""What a finished run says of itself: ``run.json``, written last, without which it is no run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mlmclm.contracts import Budget, Provenance, Strict
from mlmclm.errors import UserError
from mlmclm.files import write_whole

RECORD = "run.json"


class RunRecord(Strict):
    """The facts of a finished run that its configuration does not hold."""

    arm: str
    objective: str
    objective_options: dict[str, Any]
    visibility: str
    """Who sees whom in training. The folder alone does the same where ``native`` is equal."""
    native: str
    """Who sees whom where the network is opened without a mask."""
    trunk: str
    parameters: int
    seed: int
    block: int
    corpus: str
    blocks: int
    """Training blocks in the corpus."""
    remainder: int
    """Tokens at the end of the training split that fill no block and were not read."""
    validation_loss: float
    """Nats per target over the validation split, or its first `final_blocks`, in the precision of
    training."""
    validation_targets: int
    loss_name: str
    budget: Budget
    provenance: Provenance


def save_record(folder: Path, record: RunRecord) -> None:
    """Write ``run.json``."""
    write_whole(folder / RECORD, record.model_dump_json(indent=2) + "\n")


def load_record(folder: Path) -> RunRecord:
    """Read ``run.json``.

    Raises:
        UserError: if the folder is missing, holds an unfinished run or a damaged record.
    """
    if not folder.is_dir():
        raise UserError(f"there is no run folder {folder}")
    path = folder / RECORD
    if not path.is_file():
        hint = (
            f"it was interrupted: mlmclm pretrain --resume --output {folder} goes on with it"
            if (folder / "experiment.toml").is_file()
            else "runs are made by mlmclm pretrain"
        )
        raise UserError(f"{folder} is not a finished run (it has no {RECORD}); {hint}")
    try:
        return RunRecord.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is damaged: {str(error).splitlines()[0]}") from error
