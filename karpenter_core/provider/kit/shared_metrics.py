"""Shares metrics of one name between the providers of a process.

A registry takes each name once. The first provider that needs such a metric makes it, the others are
given the same one, and the last that lets go takes it out of the registry.
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
    """Return the metric of a name; `make` makes and registers it for the first that asks.

    All who ask under one name ask for the same metric.
    """
    with _lock:
        metrics = _shared.setdefault(registry, {})
        if name not in metrics:
            metrics[name] = _SharedMetric(make())
        metrics[name].holders += 1
        return cast("C", metrics[name].metric)


def release_metric(registry: CollectorRegistry, name: str) -> None:
    """Let go of a metric that was held."""
    with _lock:
        held = _shared.get(registry, {}).get(name)
        if held is None:
            return
        held.holders -= 1
        if not held.holders:
            del _shared[registry][name]
            registry.unregister(held.metric)
