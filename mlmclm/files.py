"""Files that appear as a whole: a killed process leaves the old one or the new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which takes the place of ``path`` when the block ends well.

    Two processes may do it at once: each has a draft of its own. Missing folders are made.

    Raises:
        OSError: if it cannot be written; it names ``path``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.chmod(0o666 & ~_umask())  # a draft is for its owner only
        draft.replace(path)
    except OSError as error:
        error.filename = str(path)  # a write that fails names no file
        raise
    finally:
        draft.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file in place of what was there; text as UTF-8."""
    with replacing(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
