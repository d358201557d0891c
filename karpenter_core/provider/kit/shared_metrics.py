"""Shares metrics of one name between the providers of a process.

A registry accepts each name once. The first provider that needs such a metric creates it, the
others get the same one, and the last that releases it removes it from the registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar, cast
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

__all__ = ["acquire_metric", "release_metric"]

C = TypeVar("C", bound="Collector")


@dataclass(slots=True)
class _SharedMetric:
    metric: Collector
    holders: int = 0


_lock: Final = Lock()
_shared: Final[WeakKeyDictionary[CollectorRegistry, dict[str, _SharedMetric]]] = WeakKeyDictionary()


def acquire_metric(registry: CollectorRegistry, name: str, make: Callable[[], C]) -> C:
    """Return the metric of a name; the first caller's `make` creates and registers it.

    All callers for one name have to pass an equal metric.
    """
    with _lock:
        metrics = _shared.setdefault(registry, {})
        if name not in metrics:
            metrics[name] = _SharedMetric(make())
        metrics[name].holders += 1
        return cast("C", metrics[name].metric)


def release_metric(registry: CollectorRegistry, name: str) -> None:
    """Release a metric."""
    with _lock:
        held = _shared.get(registry, {}).get(name)
        if held is None:
            return
        held.holders -= 1
        if not held.holders:
            del _shared[registry][name]
            registry.unregister(held.metric)
