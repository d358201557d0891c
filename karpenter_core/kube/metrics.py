"""Metrics of the kube layer, on a registry that the process passes in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["KubeMetrics"]

# 0.001 * 1.5^n, 20 buckets: upstream default of the client metrics
_LATENCY_BUCKETS: Final = tuple(0.001 * 1.5**step for step in range(20))
_RENEWAL_BUCKETS: Final = (2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_PAUSE_BUCKETS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class KubeMetrics:
    """Every series of the kube layer; `client_go_*` keep the reference's names."""

    __slots__ = (
        "clock_offset",
        "events_dropped",
        "gc_pause",
        "informer_age",
        "informer_failures",
        "informer_invalid_objects",
        "informer_objects",
        "informer_relists",
        "leader",
        "lease_renewal_interval",
        "memory_limit",
        "request_duration",
        "requests",
        "tasks",
        "writes",
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        disable_created_metrics()  # the reference exposes no `_created` series
        self._declare_requests(registry)
        self._declare_informers(registry)
        self._declare_process(registry)

    def _declare_requests(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "client_go_request_total",
            "Number of HTTP requests, partitioned by status code and method.",
            ["code", "method"],
            registry=registry,
        )
        self.request_duration = Histogram(
            "client_go_request_duration_seconds",
            "Request latency in seconds by verb, group, version, kind, and subresource.",
            ["verb", "group", "version", "kind", "subresource"],
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.writes = Counter(
            "karpenter_core_writes_total",
            "Writes sent to the API server, by verb, kind, subresource and outcome.",
            ["verb", "kind", "subresource", "outcome"],
            registry=registry,
        )

    def _declare_informers(self, registry: CollectorRegistry) -> None:
        self.informer_relists = Counter(
            "karpenter_core_informer_relists_total",
            "Full lists of a kind, including the first one.",
            ["kind"],
            registry=registry,
        )
        self.informer_failures = Counter(
            "karpenter_core_informer_failures_total",
            "Failed lists, watches and handlers, by kind and step.",
            ["kind", "step"],
            registry=registry,
        )
        self.informer_age = Gauge(
            "karpenter_core_informer_age_seconds",
            "Time since the last list, event or bookmark of a kind; infinite before the first list.",
            ["kind"],
            registry=registry,
        )
        self.informer_invalid_objects = Gauge(
            "karpenter_core_informer_invalid_objects",
            "Invalid objects, which are ignored.",
            ["kind"],
            registry=registry,
        )
        self.informer_objects = Gauge(
            "karpenter_core_informer_objects",
            "Objects in the cache of the informer, by kind.",
            ["kind"],
            registry=registry,
        )

    def _declare_process(self, registry: CollectorRegistry) -> None:
        self.events_dropped = Counter(
            "karpenter_core_events_dropped_total",
            "Kubernetes Events that were not sent: the queue was full, or the API server refused or did not answer.",
            ["cause"],
            registry=registry,
        )
        self.leader = Gauge(
            "leader_election_master_status",
            "1 while this process holds the Lease of that name, 0 while it is a standby.",
            ["name"],
            registry=registry,
        )
        self.lease_renewal_interval = Histogram(
            "karpenter_core_lease_renewal_interval_seconds",
            "Time between two renewals of the leader's Lease; it is lost after 10 s without one.",
            buckets=_RENEWAL_BUCKETS,
            registry=registry,
        )
        self.memory_limit = Gauge(
            "karpenter_core_memory_limit_bytes",
            "The setting `memory-limit`; 0 without a limit.",
            registry=registry,
        )
        self.clock_offset = Gauge(
            "karpenter_core_clock_offset_seconds",
            "How far the API server's clock is ahead of this process's; 0 if unknown or too little to tell.",
            registry=registry,
        )
        self.tasks = Gauge(
            "karpenter_core_asyncio_tasks",
            "Tasks of the event loop that have not ended; a steady rise is a leak.",
            registry=registry,
        )
        self.gc_pause = Histogram(
            "karpenter_core_gc_pause_seconds",
            "Duration of pauses by Python's cyclic garbage collector.",
            ["generation"],
            buckets=_PAUSE_BUCKETS,
            registry=registry,
        )
