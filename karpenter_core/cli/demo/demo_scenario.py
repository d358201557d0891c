"""Steps of the demo: a change of the cluster, and a check of its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from karpenter_core.cli.demo.cluster_statistics import ClusterStatistics
    from karpenter_core.cli.demo.demo_cluster import DemoCluster

__all__ = ["DemoScenario", "DemoStep", "ScalingScenario"]

_SCALES: Final = (50, 500, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStep:
    """One step of a demo."""

    title: str
    replicas: int
    """Number of running pods at the end."""
    begin: Callable[[], Awaitable[None]]
    """Starts the step."""
    is_done: Callable[[], bool]
    """Returns whether the expected state is reached; called at every change."""
    report: Callable[[], Sequence[str]] = tuple
    """Returns the lines to print afterwards; raises `DemoFailedError` if the result is wrong."""
    skipped: str = ""
    """Reason to skip the step; empty if it is not skipped."""


class DemoScenario(Protocol):
    """A demo."""

    def steps(self) -> Sequence[DemoStep]:
        """Return the steps."""
        ...


class ScalingScenario:
    """Scales pods up and down."""

    def __init__(self, demo_cluster: DemoCluster, cluster_statistics: ClusterStatistics) -> None:
        self._demo_cluster: Final = demo_cluster
        self._cluster_statistics: Final = cluster_statistics

    def steps(self) -> Sequence[DemoStep]:
        """Return the steps."""
        return [self._scale(replicas) for replicas in _SCALES]

    def _scale(self, replicas: int) -> DemoStep:
        return DemoStep(
            title=f"scale nginx to {replicas}",
            replicas=replicas,
            begin=lambda: self._demo_cluster.scale(replicas),
            is_done=lambda: self._cluster_statistics.is_settled_at(replicas),
        )
