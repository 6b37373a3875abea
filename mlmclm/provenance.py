"""Where a number comes from: code, versions, machine and data, all of it in every row."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import mlmclm
from mlmclm.contracts import Provenance

PACKAGE = Path(__file__).parent
UNKNOWN = "unknown"
RECORDED = (
    "torch",
    "transformers",
    "tokenizers",
    "datasets",
    "accelerate",
    "scikit-learn",
    "numpy",
)
"""Packages whose version can change a number."""


def content_hash(content: bytes | str | Mapping[str, Any]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of some content.

    Text counts as UTF-8, and a mapping as its JSON with sorted keys, so that order is no content.

    Raises:
        TypeError: if a mapping holds something that JSON does not have.
    """
    if isinstance(content, Mapping):
        content = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if isinstance(content, str):
        content = content.encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git answers, or None where there is no git or it refuses."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return answer.stdout.decode().strip() if answer.returncode == 0 else None


def commit_of(folder: Path) -> str:
    """Return the commit that the code in ``folder`` belongs to.

    ``-dirty`` is appended where the folder differs from it, and the answer is ``unknown`` where
    git is missing, or where the folder is tracked by no checkout: an installed copy may lie
    inside the checkout of something else.
    """
    tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if tracked is None or commit is None:
        return UNKNOWN
    return f"{commit}-dirty" if _git(folder, "status", "--porcelain", "--", ".") else commit


@lru_cache
def _commit() -> str:
    """Return the commit once per process: what was imported is what it was at the start."""
    return commit_of(PACKAGE)


@lru_cache
def _versions() -> dict[str, str]:
    installed = {name: metadata.version(name) for name in RECORDED}
    return {
        "python": platform.python_version(),
        "mlmclm": mlmclm.__version__,
        **installed,
        "torch": torch.__version__,  # with the build, as in 2.13.0+cpu: a package may not tell it
    }


def device_name(device: torch.device | str) -> str:
    """Return kind and name of a device, such as ``cuda (NVIDIA H200)`` or ``cpu (x86_64)``."""
    kind = torch.device(device).type
    if kind == "cuda":
        return f"{kind} ({torch.cuda.get_device_name(device)})"
    return f"{kind} ({platform.processor() or platform.machine() or UNKNOWN})"


def collect(
    device: torch.device | str,
    dtype: str,
    kernel: str,
    data_hash: str,
    tokenizer_hash: str,
    config_hash: str,
) -> Provenance:
    """Describe the code, the machine and the inputs of a measurement that is made now.

    Args:
        device: that the model runs on.
        dtype: of the computation, such as ``bfloat16``.
        kernel: attention implementation.
        data_hash: of the corpus.
        tokenizer_hash: of the tokenizer.
        config_hash: of the resolved arm.
    """
    return Provenance(
        commit=_commit(),
        versions=dict(_versions()),
        platform=platform.platform(),
        device=device_name(device),
        threads=torch.get_num_threads(),
        dtype=dtype,
        kernel=kernel,
        data_hash=data_hash,
        tokenizer_hash=tokenizer_hash,
        config_hash=config_hash,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
