"""Every log line of a reconcile names its controller and object."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
import structlog

from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.reconciling.reconciler import (
    DONE,
    ControllerRuntime,
    Reconciler,
    log_failure,
)
from karpenter_core.errors import NodeClassNotReadyError, ThrottledError
from karpenter_core.operator.clock import SystemClock


@pytest.mark.parametrize(
    ("key", "shown"),
    [("web-1", "web-1"), (("example.com", "ExampleClass", "web"), "example.com/ExampleClass/web")],
    ids=["a name", "a key of several parts"],
)
async def test_the_log_names_the_object_as_a_reader_would(key, shown):
    """Not as Python prints it."""
    seen = []
    looked = asyncio.Event()

    async def reconcile(_key):
        seen.append(structlog.contextvars.get_contextvars()["Object"])
        looked.set()
        return DONE

    runtime = ControllerRuntime(
        clock=SystemClock(), new_id=map(str, count()).__next__, metrics=Metrics()
    )
    reconciler = Reconciler("example", reconcile, runtime=runtime, log_field="Object")
    reconciler.wake(key)
    running = asyncio.create_task(reconciler.run())
    await looked.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert seen == [shown]


@pytest.mark.parametrize(
    "error",
    [ThrottledError("CreateTags waits its turn"), NodeClassNotReadyError("web has no subnets")],
    ids=["a rate limit", "a NodeClass that is to be mended"],
)
def test_an_expected_wait_is_no_failure(error):
    with structlog.testing.capture_logs() as lines:
        log_failure(structlog.get_logger(), error, retry_seconds=1.0)
    assert [(line["log_level"], line["error"]) for line in lines] == [("info", str(error))]
