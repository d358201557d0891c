"""The metrics of a provider are registered while it is started."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from karpenter_core.provider.kit.provider_metrics import ProviderMetrics


class StillClock:
    """A clock that does not move."""

    def monotonic(self):
        return 0.0


def metrics_of(registry):
    metrics = ProviderMetrics(
        registry, StillClock(), cpu_label="cpu", memory_label="memory", with_reserved=True
    )
    return metrics, metrics.own(Counter("launches", "Launches.", registry=registry))


def test_a_closed_provider_can_be_started_again():
    registry = CollectorRegistry()
    metrics, launches = metrics_of(registry)
    launches.inc()
    metrics.observe_batch("create", 3)
    assert registry.get_sample_value("launches_total") == 1

    metrics.close()
    assert list(registry.collect()) == []

    again, _ = metrics_of(registry)
    assert registry.get_sample_value("launches_total") == 0
    again.close()


def test_two_providers_share_the_metric_of_batch_sizes():
    registry = CollectorRegistry()
    one = ProviderMetrics(
        registry, StillClock(), cpu_label="cpu", memory_label="memory", with_reserved=True
    )
    other = ProviderMetrics(
        registry, StillClock(), cpu_label="cpu", memory_label="memory", with_reserved=True
    )
    one.observe_batch("create", 3)
    one.close()
    other.observe_batch("delete", 5)

    sizes = "karpenter_cloudprovider_batcher_batch_size_sum"
    assert registry.get_sample_value(sizes, {"batcher": "delete"}) == 5
    other.close()
    assert list(registry.collect()) == []
