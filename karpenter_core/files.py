"""Replaces files in whole."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Final

__all__ = ["replace_file"]

_PARTIAL: Final = ".partial"
"""End of the name of a file that is being written."""
_ABANDONED_SECONDS: Final = 3600.0
"""Age at which nobody writes such a file any more: its process was killed."""


def replace_file(path: Path, body: bytes) -> None:
    """Replace a file, or make it, readable for its owner alone.

    It has the old content or the new one at any time, and the old one where the disk is full. What
    processes left that were killed meanwhile is removed, so that a folder does not fill up with it.

    Raises:
        OSError: it cannot be written.
    """
    prefix = f".{path.name}."
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=_PARTIAL)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _remove_abandoned(temporary, prefix)
            file.write(body)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _remove_abandoned(made: Path, prefix: str) -> None:
    """Remove partial files that are much older than one that was just made."""
    with suppress(OSError):
        now = made.stat().st_mtime
        for partial in made.parent.glob(f"{escape(prefix)}*{_PARTIAL}"):
            if now - partial.stat().st_mtime > _ABANDONED_SECONDS:
                partial.unlink(missing_ok=True)
