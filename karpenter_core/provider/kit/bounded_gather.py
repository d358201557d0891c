"""Runs a coroutine function for many items, a bounded number at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

__all__ = ["gather_bounded"]

_T = TypeVar("_T")
_R = TypeVar("_R")


async def gather_bounded(
    function: Callable[[_T], Awaitable[_R]], items: Iterable[_T], *, at_once: int
) -> list[_R]:
    """Call a function for each item, for `at_once` of them at a time; return the results in order.

    The first error is raised at once, while the other calls go on; a cancellation cancels all.
    """
    turns = asyncio.Semaphore(at_once)

    async def in_turn(item: _T) -> _R:
        async with turns:
            return await function(item)

    return await asyncio.gather(*map(in_turn, items))
