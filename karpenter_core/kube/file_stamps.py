"""Tells when files such as certificates are replaced in place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FileStamp", "read_stamps"]

FileStamp: TypeAlias = "tuple[str, int, int, int]"


def read_stamps(paths: Iterable[str]) -> tuple[FileStamp, ...]:
    """Return stamps that differ when one of the files was replaced; links are followed."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: str) -> FileStamp:
    try:
        status = Path(path).stat()
    except OSError:
        return (path, 0, 0, 0)
    return (path, status.st_ino, status.st_mtime_ns, status.st_size)
