"""Refuses names of missing objects, and suggests existing, similar ones."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from karpenter_core.cli.name_lists import some_names
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["missing_object", "names_or_none"]

_NEAR: Final = 5


def missing_object(kind: str, name: str, known_names: Iterable[str]) -> BadInputError:
    """Return the error for a name that no object of the kind has; suggests similar ones, or else the first ones."""
    names = sorted(known_names)
    near = get_close_matches(name, names, n=_NEAR)
    hint = f"did you mean {', '.join(near)}?" if near else f"there are {names_or_none(names)}"
    return BadInputError(f'there is no {kind} "{name}"; {hint}')


def names_or_none(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others; "none" without any."""
    return some_names(names, _NEAR) or "none"
