"""Metrics of pods: disruptions, drains, times until bound and Ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from karpenter_core.controllers.metrics.declarations import MetricDeclarations

__all__ = ["DISRUPTED_LABELS", "POD_LABELS", "PodMetrics"]

DISRUPTED_LABELS: Final = (
    "reason",
    "nodepool",
    "capacity_type",
    "consolidation_policy",
    "termination_mode",
)
POD_LABELS: Final = (
    "name", "namespace", "owner", "node", "scheduled", "nodepool", "zone", "arch",
    "capacity_type", "instance_type", "phase", "ready", "managed",
)  # fmt: skip


@final
class PodMetrics:
    """The metrics of pods, one attribute each, without `pods_` in front."""

    def __init__(self, declare: MetricDeclarations) -> None:
        self.disruption_initiated: Final = declare.counter(
            "pods_disruption_initiated_total",
            "Reschedulable pods on NodeClaims when the controller deleted them.",
            DISRUPTED_LABELS,
        )
        self.eviction_requests: Final = declare.counter(
            "pods_eviction_requests_total",
            "Eviction requests, by the status code of the answer.",
            ("code",),
        )
        self.drained: Final = declare.counter(
            "pods_drained_total", "Pods evicted or deleted by a drain.", ("reason",)
        )
        self.surge_moves: Final = declare.counter(
            "pods_surge_moves_total",
            "Drained pods that ask to be replaced first (karpenter.sh/surge-move): rollouts restarted, "
            "pods replaced, refused, or evicted because the rollout took too long.",
            ("outcome",),
        )
        self.state: Final = declare.series("pods_state", "1 for every pod.", POD_LABELS)
        self.startup_duration: Final = declare.summary(
            "pods_startup_duration_seconds",
            "Time from the creation of pods until they are Ready.",
            (),
        )
        self.bound_duration: Final = declare.histogram(
            "pods_bound_duration_seconds",
            "Time from the creation of pods until they are bound.",
            (),
        )
        self.unstarted_time: Final = declare.series(
            "pods_unstarted_time_seconds",
            "Time that pods have been waiting to become Ready.",
            ("name", "namespace"),
        )
        self.unbound_time: Final = declare.series(
            "pods_unbound_time_seconds",
            "Time that pods have been waiting to be bound.",
            ("name", "namespace"),
        )
        self.provisioning_bound_duration: Final = declare.histogram(
            "pods_provisioning_bound_duration_seconds",
            "Time from the plan that places a pod until the pod is bound.",
            (),
        )
        self.provisioning_startup_duration: Final = declare.histogram(
            "pods_provisioning_startup_duration_seconds",
            "Time from the plan that places a pod until the pod is Ready.",
            (),
        )
        self.provisioning_unbound_time: Final = declare.series(
            "pods_provisioning_unbound_time_seconds",
            "Time that pods placed by a plan have been waiting to be bound.",
            ("name", "namespace"),
        )
        self.provisioning_unstarted_time: Final = declare.series(
            "pods_provisioning_unstarted_time_seconds",
            "Time that pods placed by a plan have been waiting to become Ready.",
            ("name", "namespace"),
        )
        self.scheduling_undecided_time: Final = declare.series(
            "pods_provisioning_scheduling_undecided_time_seconds",
            "Time that pods have been waiting for their first scheduling decision.",
            ("name", "namespace"),
        )
        self.scheduling_decision_duration: Final = declare.histogram(
            "pods_scheduling_decision_duration_seconds",
            "Time from the first observation of a pending pod until its first scheduling decision.",
            (),
        )
