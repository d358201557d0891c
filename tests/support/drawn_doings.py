"""Draws what happens next in a story."""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

__all__ = ["do_one"]


async def do_one(
    rng: Random, doings: Mapping[Callable[[], Any], int], tell: Callable[[str], None]
) -> Any:
    """Do one of some things, drawn by its weight, and return its result; `tell` gets its name before."""
    (doing,) = rng.choices(list(doings), weights=list(doings.values()))
    tell(doing.__name__)
    done = doing()
    return await done if isawaitable(done) else done
