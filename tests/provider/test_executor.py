"""Executors run plug-in code in threads or inline."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from karpenter_core.provider.host.executor import (
    InlineExecutor,
    ThreadExecutor,
    UncommonRaiseError,
)

WHO = contextvars.ContextVar("WHO", default="")


@pytest.mark.parametrize("executor", [InlineExecutor(), ThreadExecutor()])
async def test_results_errors_and_awaitables_come_back(executor):
    async def later():
        await asyncio.sleep(0)
        return threading.current_thread()

    def fail():
        raise KeyError("zone")

    assert await executor.run(lambda: 42) == 42
    assert await executor.run(later) is threading.main_thread()
    with pytest.raises(KeyError):
        await executor.run(fail)
    executor.close()


async def test_a_blocked_lane_does_not_stop_another():
    executor = ThreadExecutor(max_workers=1)
    gate = threading.Event()
    stuck = asyncio.ensure_future(executor.run(gate.wait, lane="slow"))
    behind = asyncio.ensure_future(executor.run(lambda: "behind", lane="slow"))
    assert await executor.run(lambda: "through", lane="fast") == "through"
    assert not behind.done()
    gate.set()
    assert (await stuck, await behind) == (True, "behind")
    executor.close()


async def test_a_lane_runs_as_many_calls_at_once_as_it_has_threads():
    executor = ThreadExecutor(max_workers=3)
    together = threading.Barrier(3, timeout=20)
    places = await asyncio.gather(*(executor.run(together.wait) for _ in range(3)))
    assert sorted(places) == [0, 1, 2]
    executor.close()


async def test_threads_do_not_keep_the_process_alive():
    executor = ThreadExecutor()
    assert await executor.run(lambda: threading.current_thread().daemon)
    executor.close()


async def test_calls_see_the_context_variables_of_their_caller():
    executor = ThreadExecutor()
    WHO.set("provisioning")
    assert await executor.run(WHO.get) == "provisioning"
    executor.close()


async def test_stop_iteration_does_not_hang_the_caller():
    executor = ThreadExecutor()
    with pytest.raises(UncommonRaiseError, match="StopIteration"):
        await executor.run(lambda: next(iter(())))
    executor.close()


async def test_a_closed_executor_refuses():
    executor = ThreadExecutor()
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        await executor.run(lambda: 1)
