"""Tunes Python's cyclic garbage collector for large caches.

Decoding creates millions of objects that are all kept. The collector would traverse them again and
again without finding garbage, which costs three to five times the decoding itself. So it is paused
while a page is decoded, the objects of the first sync are frozen (excluded from collection), and the
thresholds are raised for the rest of the run.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from prometheus_client import Histogram

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.clock import Clock
    from karpenter_core.kube.metrics import KubeMetrics

__all__ = ["freeze_after_sync", "gc_paused", "tune_gc"]

_THRESHOLDS: Final = (50_000, 20, 50)


@contextmanager
def gc_paused() -> Generator[None]:
    """Keep the collector off for the block; blocks may be nested. Never hold one over an await."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def tune_gc(
    *, clock: Clock | None = None, metrics: KubeMetrics | None = None
) -> Callable[[], None]:
    """Set the thresholds of a long-running controller and measure pauses; returns the undo.

    The undo also gives back what `freeze_after_sync` froze.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    callback = _pause_observer(clock, metrics) if clock and metrics else None
    if callback:
        gc.callbacks.append(callback)

    def undo() -> None:
        gc.set_threshold(*before)
        gc.unfreeze()
        if callback:
            gc.callbacks.remove(callback)

    return undo


def freeze_after_sync() -> None:
    """Take everything alive out of the collector's sight; call once, after the first full sync."""
    gc.collect()
    gc.freeze()


def _pause_observer(clock: Clock, metrics: KubeMetrics) -> Callable[[str, JsonObject], None]:
    started = 0.0
    # Made beforehand: `labels` takes a lock, which the code that is interrupted may hold.
    pauses: list[Histogram] = [metrics.gc_pause.labels(str(generation)) for generation in range(3)]

    def observe(phase: str, info: JsonObject) -> None:
        nonlocal started
        if phase == "start":
            started = clock.monotonic()
        else:
            pauses[int(info["generation"])].observe(clock.monotonic() - started)

    return observe
