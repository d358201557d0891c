"""The metrics of a started provider: those of all clouds and its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from karpenter_core.provider.kit.batch_sizes import BatchSizeMetric
from karpenter_core.provider.kit.offering_series import OfferingSeries

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    from karpenter_core.clock import Clock

__all__ = ["ProviderMetrics"]

C = TypeVar("C", bound="Collector")


class ProviderMetrics:
    """The metrics of one started provider; a cloud adds its own; callable from any thread."""

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Clock,
        *,
        cpu_label: str,
        memory_label: str,
        with_reserved: bool,
    ) -> None:
        """`cpu_label` and `memory_label` are the cloud's labels for the size of an instance type.

        `with_reserved` is the feature gate ReservedCapacity.
        """
        self._registry: Final = registry
        self._own: Final[list[Collector]] = []
        self._batch_sizes: Final = BatchSizeMetric(registry)
        self.offerings: Final = OfferingSeries(
            registry,
            clock,
            cpu_label=cpu_label,
            memory_label=memory_label,
            with_reserved=with_reserved,
        )

    def own(self, metric: C) -> C:
        """Return a metric of the cloud, which `close` unregisters."""
        self._own.append(metric)
        return metric

    def observe_batch(self, batcher: str, size: int) -> None:
        """Record the number of items of a call: `create_fleet`, `delete_instances` …."""
        self._batch_sizes.observe(batcher, size)

    def close(self) -> None:
        """Unregister all metrics, so that a provider can be started again."""
        for metric in self._own:
            self._registry.unregister(metric)
        self._own.clear()
        self._batch_sizes.close()
        self.offerings.close()
