"""Counts what a process holds: objects by class, items of containers, cached calls, local variables.

Nothing is listed by hand: every instance of the project's classes that the collector knows is
visited, so that a new cache is counted from the day on which it is written. A name says where
the items are:

    Ledger._nominations          items of an attribute, summed over all instances
    Ledger                       instances of a class
    compile_catalogue()          results that a function with an unbounded cache keeps
    run() seen                   items of a local variable of a task that runs
    karpenter_core.x.TABLE       items of a variable of a module
    type dict                    objects of a type of Python's own
"""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
from collections import Counter
from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING, Final

from karpenter_core.operator.memory_limit import resident_bytes, return_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry

__all__ = [
    "count_held", "count_held_by", "count_open_files", "count_series", "count_tasks", "settled_memory",
]  # fmt: skip

PREFIX: Final = "karpenter_"
BUILTIN: Final = (dict, list, set, tuple, frozenset)
_CACHE: Final = type(functools.lru_cache(len))


def count_held() -> Counter[str]:
    """Return the number of items under each name, after a full collection."""
    gc.collect()
    held: Counter[str] = Counter()
    for each in gc.get_objects():
        _count_object(each, held)
    for module in [found for name, found in sys.modules.items() if name.startswith(PREFIX)]:
        for name, value in vars(module).items():
            if not name.startswith("__"):
                held[f"{module.__name__}.{name}"] = _size(value)
    for name, value in _local_variables():
        held[name] += _size(value)
    return Counter({sys.intern(name): count for name, count in held.items() if count})


def count_held_by(found: object) -> Counter[str]:
    """Return the number of items under each name of one object, without looking at all others."""
    held: Counter[str] = Counter()
    _count_object(found, held)
    return held


def _count_object(each: object, held: Counter[str]) -> None:
    kind = type(each)
    if kind in BUILTIN:
        held[f"type {kind.__name__}"] += 1
    elif kind is _CACHE:
        if each.cache_info().maxsize is None:  # a bound is all that one can ask for
            held[f"{getattr(each, '__qualname__', '?')}()"] += each.cache_info().currsize
    elif str(kind.__module__).startswith(PREFIX):  # Cython's types have a descriptor there
        held[kind.__qualname__] += 1
        for name, value in _attributes(each):
            held[f"{kind.__qualname__}.{name}"] += _size(value)


def count_tasks() -> int:
    """Return the number of tasks of the running loop."""
    return len(asyncio.all_tasks())


def count_open_files() -> int:
    """Return the number of open file descriptors of this process (Linux)."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def count_series(registry: CollectorRegistry) -> Counter[str]:
    """Return the number of series of each metric."""
    return Counter({f"series {each.name}": len(each.samples) for each in registry.collect()})


def settled_memory() -> int:
    """Return the resident bytes of this process, once free memory has been returned (Linux)."""
    gc.collect()
    return_memory()
    return resident_bytes()


def _attributes(found: object) -> Iterator[tuple[str, object]]:
    yield from getattr(found, "__dict__", {}).items()
    for kind in type(found).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(found, name):
                yield name, getattr(found, name)


def _size(value: object) -> int:
    if isinstance(value, asyncio.Queue):
        return value.qsize()
    return (
        len(value) if isinstance(value, Sized) and not isinstance(value, (str, bytes, type)) else 0
    )


def _local_variables() -> Iterator[tuple[str, object]]:
    """Yield the local variables of the project's coroutines that tasks run."""
    for task in asyncio.all_tasks():
        coroutine = task.get_coro()
        while (frame := getattr(coroutine, "cr_frame", None)) is not None:
            if PREFIX in Path(frame.f_code.co_filename).as_posix():
                for name, value in frame.f_locals.items():
                    yield f"{frame.f_code.co_qualname}() {name}", value
            coroutine = coroutine.cr_await
