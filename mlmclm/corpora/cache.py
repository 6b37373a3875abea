"""Where things that can be made again are kept: token streams and trained tokenizers."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from mlmclm.errors import UserError


def folder() -> Path:
    """Return the cache folder: ``MLMCLM_CACHE``, else the platform's usual place."""
    if chosen := os.environ.get("MLMCLM_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "mlmclm"


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return a cached file, making it first where it is missing.

    Args:
        name: file name, which holds a hash of all that the content depends on.
        make: writes the content to the path that it is given. Two processes may both do it; the
            file appears as a whole. An empty one, which a power cut can leave, is made again.

    Raises:
        UserError: if the cache folder cannot be written to.
    """
    path = folder() / name
    try:
        if not path.is_file() or path.stat().st_size == 0:
            _make(path, make)
    except OSError as error:
        raise UserError(
            f"the cache folder {path.parent} cannot be used ({error.strerror or error}); set "
            "MLMCLM_CACHE to a folder that can be written to"
        ) from error
    return path


def _make(path: Path, make: Callable[[Path], None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    os.close(handle)
    try:
        make(Path(draft))
        Path(draft).replace(path)
    finally:
        Path(draft).unlink(missing_ok=True)
