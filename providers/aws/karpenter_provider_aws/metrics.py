"""Declares the provider's metrics.

Metric names are those that Karpenter's dashboards and alerts read; `docs/reference/metrics.md` has
a row for each. One set is declared for each started provider. The core counts received and
acknowledged interruptions and the conditions of NodeClasses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from prometheus_client import Counter

from karpenter_core.provider.kit.provider_metrics import ProviderMetrics
from karpenter_provider_aws.labels import INSTANCE_CPU, INSTANCE_MEMORY
from karpenter_provider_aws.sdk_metrics import SdkMetrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from karpenter_core.clock import Clock

__all__ = ["AwsMetrics"]


@final
class AwsMetrics(ProviderMetrics):
    """One method for each thing that happens; callable from any thread."""

    def __init__(self, registry: CollectorRegistry, clock: Clock, *, with_reserved: bool) -> None:
        """`with_reserved` is the feature gate ReservedCapacity."""
        super().__init__(
            registry,
            clock,
            cpu_label=INSTANCE_CPU,
            memory_label=INSTANCE_MEMORY,
            with_reserved=with_reserved,
        )
        self._launch_failures: Final = self.own(
            Counter(
                "karpenter_cloudprovider_instance_launch_failures_total",
                "Offerings in which a launch failed, by reason.",
                ("zone", "zone_id", "capacity_type", "reason"),
                registry=registry,
            )
        )
        self._termination_failures: Final = self.own(
            Counter(
                "karpenter_cloudprovider_instance_termination_failures_total",
                "Failed terminations of instances.",
                ("zone", "zone_id"),
                registry=registry,
            )
        )
        self._unhealthy: Final = self.own(
            Counter(
                "karpenter_interruption_instance_status_unhealthy_total",
                "Instances that status checks or scheduled events newly report as unhealthy.",
                ("category",),
                registry=registry,
            )
        )
        self.sdk: Final = SdkMetrics(registry)
        for collector in self.sdk.collectors:
            self.own(collector)

    def count_launch_failure(
        self, *, zone: str, zone_id: str, capacity_type: str, reason: str
    ) -> None:
        """Count an offering that a launch could not have; `reason` as in the condition `Launched`."""
        self._launch_failures.labels(zone, zone_id, capacity_type, reason).inc()

    def count_termination_failure(self, *, zone: str, zone_id: str) -> None:
        """Count an instance that could not be terminated."""
        self._termination_failures.labels(zone, zone_id).inc()

    def count_unhealthy(self, category: str) -> None:
        """Count an instance that is newly found unhealthy."""
        self._unhealthy.labels(category).inc()
