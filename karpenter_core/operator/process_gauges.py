"""Exports the role, clock and memory limit of a process, and its sync.

They are read when they are scraped, so that they hold for standbys and observers too, in which no
controller of the leader runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from karpenter_core.controllers.metrics.process_metrics import Metrics
    from karpenter_core.kube.informers import Informers
    from karpenter_core.kube.metrics import KubeMetrics
    from karpenter_core.kube.server_clock import ServerClock
    from karpenter_core.operator.settings import Settings

__all__ = ["ShownProcess", "show_process"]


class ShownProcess(Protocol):
    """The parts of a process that its gauges read."""

    @property
    def settings(self) -> Settings: ...  # noqa: D102 - as in `Process`
    @property
    def metrics(self) -> Metrics: ...  # noqa: D102
    @property
    def kube_metrics(self) -> KubeMetrics: ...  # noqa: D102
    @property
    def clock(self) -> ServerClock: ...  # noqa: D102
    @property
    def informers(self) -> Informers: ...  # noqa: D102
    @property
    def is_leading(self) -> bool: ...  # noqa: D102


def show_process(process: ShownProcess) -> None:
    """Give the gauges of a process their values."""
    settings, clock, informers = process.settings, process.clock, process.informers
    metrics, kube_metrics = process.metrics, process.kube_metrics
    kube_metrics.memory_limit.set(max(settings.memory_limit, 0))
    kube_metrics.clock_offset.set_function(lambda: clock.offset_seconds)
    if not settings.observe:  # an observer is no standby, and alone it is no missing leader
        leader = kube_metrics.leader.labels(settings.leader_election_name)
        leader.set_function(lambda: float(process.is_leading))
    started = clock.monotonic()
    metrics.cluster_state_synced.set_function(lambda: float(informers.synced))
    metrics.cluster_state_unsynced_time.set_function(
        lambda: 0.0 if informers.synced else clock.monotonic() - started
    )
