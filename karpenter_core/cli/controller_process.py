"""Runs the controller in this process; commands fill its dashboard."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Final

from karpenter_core.cli.dashboard.content import ClusterContent
from karpenter_core.operator.launcher import run_from_command_line
from karpenter_core.operator.loop_watch import LoopWatch
from karpenter_core.operator.worker_threads import WorkerThreads

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run_controller"]

THREADS_END_SECONDS: Final = 1.0


def run_controller(arguments: Sequence[str]) -> int:
    """Run until a signal asks for the end; return the exit code."""
    return asyncio.run(_run(arguments))


async def _run(arguments: Sequence[str]) -> int:
    threads = WorkerThreads()
    async with LoopWatch():
        code = await run_from_command_line(arguments, os.environ, dashboard=ClusterContent())
    if stuck := await threads.end(within_seconds=THREADS_END_SECONDS):
        print(
            f"karpenter: threads still wait and are left behind: {', '.join(stuck)}",
            file=sys.stderr,
            flush=True,
        )
        sys.stdout.flush()
        os._exit(code)
    return code
