"""The workload of a simulation: initial objects, replicas over time, pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.manifests import ManifestEntry

__all__ = ["PodArrival", "ReplicaChange", "ScaledDeployment", "Workload"]


@dataclass(frozen=True, slots=True, order=True)
class ReplicaChange:
    """A number of replicas, from a time on (seconds since the start)."""

    at: float
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledDeployment:
    """A Deployment whose replicas change."""

    namespace: str
    name: str
    where: str
    """The place where it was read, for messages."""
    changes: tuple[ReplicaChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodArrival:
    """A pod that runs for a time and ends, such as one of a Job."""

    at: float
    """Seconds since the start."""
    namespace: str
    name: str
    where: str
    pod: JsonObject
    """Labels, annotations and spec; pods of one shape share it."""
    run_seconds: float | None = None
    """Time from its start to its end; None = it stays."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """Everything that users of the simulated cluster do."""

    manifests: tuple[ManifestEntry, ...] = ()
    """Objects that are there at first: Deployments, budgets, DaemonSets."""
    deployments: tuple[ScaledDeployment, ...] = ()
    arrivals: tuple[PodArrival, ...] = ()
    """Sorted by time."""
    is_drawn: bool = False
    """Whether the seed decides about a part of it."""

    def merged(self, other: Workload) -> Workload:
        """Return both together."""
        return Workload(
            manifests=(*self.manifests, *other.manifests),
            deployments=(*self.deployments, *other.deployments),
            arrivals=tuple(sorted((*self.arrivals, *other.arrivals), key=lambda each: each.at)),
            is_drawn=self.is_drawn or other.is_drawn,
        )
