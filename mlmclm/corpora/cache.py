"""Where things that can be made again are kept: token streams and trained tokenizers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from mlmclm.errors import UserError
from mlmclm.files import replacing


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
            with replacing(path) as draft:
                make(draft)
    except OSError as error:
        raise UserError(
            f"the cache folder {path.parent} cannot be used ({error.strerror or error}); set "
            "MLMCLM_CACHE to a folder that can be written to"
        ) from error
    return path
