"""Worker threads call functions on the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from karpenter_core.operator.loop_calls import on_loop


async def test_a_thread_gets_its_answer_from_the_loop():
    """The function runs on the loop's thread for every caller."""
    home = threading.get_ident()
    ask = on_loop(threading.get_ident)

    assert ask() == home
    assert await asyncio.to_thread(ask) == home


async def test_error_of_the_function_reaches_the_thread():
    """It is the caller's to handle; the loop goes on."""

    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await asyncio.to_thread(on_loop(fail))
