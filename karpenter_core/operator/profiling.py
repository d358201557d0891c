"""Serves profiles as text below /debug/pprof (`--enable-profiling`)."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import traceback
import tracemalloc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["profiling_routes", "start_profiling"]

_SHOWN: Final = 50


def start_profiling() -> None:
    """Begin to remember where memory was allocated."""
    tracemalloc.start()


def profiling_routes() -> Mapping[str, Callable[[], str]]:
    """Return the pages by path."""
    return {
        "/debug/pprof/heap": _heap,
        "/debug/pprof/goroutine": _tasks,
        "/debug/pprof/threadcreate": _threads,
        "/debug/pprof/cmdline": lambda: "\0".join(sys.argv),
    }


def _heap() -> str:
    statistics = tracemalloc.take_snapshot().statistics("lineno")
    return "\n".join(str(line) for line in statistics[:_SHOWN])


def _tasks() -> str:
    out = io.StringIO()
    for task in sorted(asyncio.all_tasks(), key=lambda item: item.get_name()):
        task.print_stack(file=out)
    return out.getvalue()


def _threads() -> str:
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the documented way
    parts: list[str] = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        parts.append(f"{thread.name}\n{stack}")
    return "\n".join(parts)
