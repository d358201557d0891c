"""Counts the items of each cloud call in a metric that providers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from prometheus_client import Histogram

from karpenter_core.provider.kit.shared_metrics import acquire_metric, release_metric

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["BatchSizeMetric"]

_NAME: Final = "karpenter_cloudprovider_batcher_batch_size"
_BUCKETS: Final = (
    1, 2, 4, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100, 125, 150, 175, 200, 225, 250, 275,
    300, 350, 400, 450, 500, 550, 600, 700, 800, 900, 1000,
)  # fmt: skip  # upstream's


@final
class BatchSizeMetric:
    """The sizes of one provider's batches; callable from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry: Final = registry
        self._sizes: Final = acquire_metric(
            registry,
            _NAME,
            lambda: Histogram(
                _NAME,
                "Number of items in one call to a cloud.",
                ("batcher",),
                buckets=_BUCKETS,
                registry=registry,
            ),
        )

    def observe(self, batcher: str, size: int) -> None:
        """Record the number of items of a call: `create_fleet`, `delete_instances` …."""
        self._sizes.labels(batcher).observe(size)

    def close(self) -> None:
        """Unregister the metric."""
        release_metric(self._registry, _NAME)
