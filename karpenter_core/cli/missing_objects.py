"""Refuses names of objects that do not exist, with names that are nearly the same."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["missing_object"]

_NEAR: Final = 5


def missing_object(kind: str, name: str, known_names: Iterable[str]) -> BadInputError:
    """Return the error for a name that no object of the kind has; suggests similar ones."""
    near = get_close_matches(name, sorted(known_names), n=_NEAR)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return BadInputError(f'there is no {kind} "{name}"{hint}')
