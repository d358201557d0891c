"""Lets worker threads call functions on the event loop.

The state belongs to the event loop: a thread that read it during a change would see half of the
change, and could make the loop lose the other half. So threads call the loop instead.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["on_loop"]

T = TypeVar("T")


def on_loop(function: Callable[[], T]) -> Callable[[], T]:
    """Return the function as one that any thread may call; it runs on the current event loop.

    Called on the loop's own thread it runs at once, elsewhere the caller waits for its turn.
    """
    loop = asyncio.get_running_loop()
    home = threading.get_ident()

    def call() -> T:
        if threading.get_ident() == home:
            return function()
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:  # the caller's to see
                answer.set_exception(error)

        loop.call_soon_threadsafe(run)
        return answer.result()

    return call
