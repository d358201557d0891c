"""Log what blocks the event loop, while it does."""

from __future__ import annotations

import asyncio
import time

import structlog

from karpenter_core.operator.loop_watch import LoopWatch


async def list_servers(seconds):
    time.sleep(seconds)  # noqa: ASYNC251 - the mistake


def watched(work):
    async def main():
        async with LoopWatch(blocked_seconds=0.2, period_seconds=0.02):
            await work()

    with structlog.testing.capture_logs() as logs:
        asyncio.run(main())
    return logs


def test_a_call_that_blocks_the_loop_is_logged_once_with_its_place():
    (line,) = watched(lambda: list_servers(0.8))
    assert line["log_level"] == "error"
    assert line["event"].startswith("the event loop is blocked")
    assert 0.2 <= line["seconds"] < 0.8
    assert line["calls"][0].startswith(f"list_servers ({__file__}:")


def test_each_blocking_call_is_logged():
    async def work():
        for _ in range(2):
            await list_servers(0.5)
            await asyncio.sleep(0.1)

    assert len(watched(work)) == 2


def test_a_loop_that_runs_is_not_logged():
    assert watched(lambda: asyncio.sleep(0.5)) == []
