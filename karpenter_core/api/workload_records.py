"""Records of workloads, Services and PodDisruptionBudgets.

These objects own, select or protect pods.
"""

from __future__ import annotations

from collections.abc import Mapping

from karpenter_core.api.records import LabelSelector, PodShape, Record

__all__ = [
    "DaemonSetView",
    "PodDisruptionBudgetView",
    "PodTemplateView",
    "ServiceView",
    "WorkloadView",
]


class DaemonSetView(Record, frozen=True, kw_only=True, eq=False):
    """One DaemonSet: the shape of the pods it would put on a node."""

    uid: str
    namespace: str
    name: str
    resource_version: int = 0
    template: PodShape


class PodDisruptionBudgetView(Record, frozen=True, kw_only=True, eq=False):
    """One PodDisruptionBudget; the two amounts stay as written (`1`, `50%`)."""

    uid: str
    namespace: str
    name: str
    resource_version: int = 0
    selector: LabelSelector | None = None
    min_available: str | None = None
    max_unavailable: str | None = None
    unhealthy_pod_eviction_policy: str = ""
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class ServiceView(Record, frozen=True, kw_only=True, eq=False):
    """One Service with its pod selector; None selects no pod."""

    uid: str
    namespace: str
    name: str
    resource_version: int = 0
    selector: Mapping[str, str] | None = None


class WorkloadView(Record, frozen=True, kw_only=True, eq=False):
    """A workload (`kind`) with its pod selector, and what buffers read of it.

    Deployments, and replicas and templates of all kinds, are read for CapacityBuffers only.
    """

    kind: str
    uid: str
    namespace: str
    name: str
    resource_version: int = 0
    selector: LabelSelector | None = None
    replicas: int | None = None
    """Wanted number of pods; None means one."""
    template: PodShape | None = None


class PodTemplateView(Record, frozen=True, kw_only=True, eq=False):
    """One PodTemplate: the shape of its pods."""

    uid: str
    namespace: str
    name: str
    resource_version: int = 0
    generation: int = 0
    template: PodShape
