"""Serves profiles as text below /debug/pprof (`--enable-profiling`)."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import traceback
import tracemalloc
from typing import TYPE_CHECKING, Final

from karpenter_core.operator.stack_sampler import StackSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["profiling_routes", "shown_arguments", "slow_profiling_routes", "start_profiling"]

_SHOWN: Final = 50


def start_profiling() -> None:
    """Begin to remember where memory was allocated."""
    tracemalloc.start()


def profiling_routes() -> Mapping[str, Callable[[], str]]:
    """Return the pages by path that are written in the event loop."""
    return {
        "/debug/pprof/": _index,
        "/debug/pprof/goroutine": _tasks,
        "/debug/pprof/threadcreate": _threads,
        "/debug/pprof/cmdline": lambda: "\0".join(shown_arguments(sys.argv)),
    }


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command line without the values of plug-ins' options: tokens may be among them."""
    from karpenter_core.operator.options import OPTIONS

    core = {option.flag for option in OPTIONS}
    shown: list[str] = []
    is_known = True
    for argument in arguments:
        if not argument.startswith("-"):
            shown.append(argument if is_known else "...")
            continue
        name, separator, _ = argument.lstrip("-").partition("=")
        is_known = name in core
        shown.append(f"--{name}=..." if separator and not is_known else argument)
    return shown


def slow_profiling_routes() -> Mapping[str, Callable[[Mapping[str, str]], str]]:
    """Return the pages by path that take long: they are written in a thread, and given the query."""
    return {"/debug/pprof/heap": _heap, "/debug/pprof/profile": StackSampler().profile}


def _index() -> str:
    return "".join(f"{path}\n" for path in sorted({*profiling_routes(), *slow_profiling_routes()}))


def _heap(_query: Mapping[str, str]) -> str:
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
