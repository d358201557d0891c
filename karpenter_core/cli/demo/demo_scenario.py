"""Stories: what is done to a cluster, one act after the other, and what must come of each."""

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
    """One act of a story."""

    title: str
    replicas: int
    """How many pods run in the end."""
    begin: Callable[[], Awaitable[None]]
    """Makes it happen."""
    is_done: Callable[[], bool]
    """Whether what should come of it has; asked at every change."""
    report: Callable[[], Sequence[str]] = tuple
    """What there is to say afterwards; raises `DemoFailedError` when it is not as promised."""


class DemoScenario(Protocol):
    """A story on a stage."""

    def steps(self) -> Sequence[DemoStep]:
        """Return its acts."""
        ...


class ScalingScenario:
    """Pods come and go, and nodes follow."""

    def __init__(self, demo_cluster: DemoCluster, cluster_statistics: ClusterStatistics) -> None:
        self._demo_cluster: Final = demo_cluster
        self._cluster_statistics: Final = cluster_statistics

    def steps(self) -> Sequence[DemoStep]:
        """Return its acts."""
        return [self._scale(replicas) for replicas in _SCALES]

    def _scale(self, replicas: int) -> DemoStep:
        return DemoStep(
            title=f"scale nginx to {replicas}",
            replicas=replicas,
            begin=lambda: self._demo_cluster.scale(replicas),
            is_done=lambda: self._cluster_statistics.is_settled_at(replicas),
        )
