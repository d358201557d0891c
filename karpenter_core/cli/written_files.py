"""Turns errors of writing a file or a folder into one clear error."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["writes_to"]


@contextmanager
def writes_to(path: Path) -> Generator[None]:
    """Name the file or folder if the block cannot write it.

    Raises:
        BadInputError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror or error}") from error
