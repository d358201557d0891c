"""Metrics of the process, named as Karpenter's dashboards and alerts expect.

Every metric is declared here, once; `docs/reference/metrics.md` has a row for each, compared by a
test. A registry is handed in, so that two processes in one test do not share numbers.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, final

from prometheus_client import CollectorRegistry

from karpenter_core.controllers.metrics.capacity_metrics import CapacityMetrics
from karpenter_core.controllers.metrics.condition_metrics import ConditionMetrics
from karpenter_core.controllers.metrics.cost_series import CostSeries
from karpenter_core.controllers.metrics.declarations import MetricDeclarations
from karpenter_core.controllers.metrics.pod_metrics import DISRUPTED_LABELS, PodMetrics
from karpenter_core.lifecycle.changes import LifecycleMetric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prometheus_client import Counter, Histogram

    from karpenter_core.controllers.metrics.declarations import MetricRow
    from karpenter_core.controllers.metrics.quantiles import QuantileSummary

__all__ = ["Metrics", "metrics_table"]

_MINUTE: Final = 60.0
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
LIFETIME_BUCKETS: Final = (
    15 * _MINUTE, 30 * _MINUTE, 45 * _MINUTE, _HOUR, 2 * _HOUR, 4 * _HOUR, 6 * _HOUR, 8 * _HOUR,
    10 * _HOUR, 12 * _HOUR, 16 * _HOUR, 20 * _HOUR, _DAY, 2 * _DAY, 3 * _DAY, 5 * _DAY, 10 * _DAY,
    15 * _DAY, 20 * _DAY, 25 * _DAY, 30 * _DAY,
)  # fmt: skip  # upstream's buckets for lifetimes
INSTANCE_TERMINATION_BUCKETS: Final = tuple(float(2**n) for n in range(11))  # upstream
TERMINATION_BUCKETS: Final = tuple(float(2**n) for n in range(12))  # upstream

NODE_LABELS: Final = (
    "node_name", "phase", "managed", "nodepool", "zone", "region", "instance_type", "arch", "os",
    "capacity_type", "windows_build",
)  # fmt: skip


@final
class Metrics:
    """The metrics, one attribute each; groups follow the subsystems in the names."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        node_class_labels: Sequence[str] = (),
        now: Callable[[], float] = monotonic,
    ) -> None:
        """`node_class_labels` are the labels of claims and nodes that name their NodeClass.

        `now` is a monotonic clock in seconds, by which old observations fade.
        """
        self._declare = MetricDeclarations(
            registry if registry is not None else CollectorRegistry(), now=now
        )
        self._declare_nodeclaims()
        self._declare_nodes()
        self.pods: Final = PodMetrics(self._declare)
        self.capacity: Final = CapacityMetrics(self._declare)
        self.costs: Final = CostSeries(self._declare)
        self._declare_disruption()
        self._declare_consolidation()
        self._declare_interruptions()
        self._declare_provisioning_requests()
        self._declare_scheduler()
        self._declare_process()
        self.conditions: Final = ConditionMetrics(
            self._declare, node_class_labels=node_class_labels
        )

        self._by_lifecycle_metric: Final[
            Mapping[LifecycleMetric, Counter | Histogram | QuantileSummary]
        ] = {
            LifecycleMetric.NODECLAIMS_CREATED: self.nodeclaims_created,
            LifecycleMetric.NODECLAIMS_TERMINATED: self.nodeclaims_terminated,
            LifecycleMetric.NODECLAIMS_DISRUPTED: self.nodeclaims_disrupted,
            LifecycleMetric.NODECLAIMS_HELD_BACK: self.nodeclaims_held_back,
            LifecycleMetric.NODECLAIMS_UNHEALTHY_DISRUPTED: self.nodeclaims_unhealthy_disrupted,
            LifecycleMetric.NODECLAIMS_INSTANCE_TERMINATION_DURATION: self.nodeclaims_instance_termination_duration,
            LifecycleMetric.NODECLAIMS_TERMINATION_DURATION: self.nodeclaims_termination_duration,
            LifecycleMetric.NODES_CREATED: self.nodes_created,
            LifecycleMetric.NODES_DRAINED: self.nodes_drained,
            LifecycleMetric.NODES_TERMINATED: self.nodes_terminated,
            LifecycleMetric.NODES_TERMINATION_DURATION: self.nodes_termination_duration,
            LifecycleMetric.NODES_LIFETIME_DURATION: self.nodes_lifetime_duration,
            LifecycleMetric.PODS_DRAINED: self.pods.drained,
            LifecycleMetric.PODS_SURGE_MOVES: self.pods.surge_moves,
            LifecycleMetric.PODS_DISRUPTION_INITIATED: self.pods.disruption_initiated,
        }

    def of(self, metric: LifecycleMetric) -> Counter | Histogram | QuantileSummary:
        """Return the metric that a step of a life cycle changes."""
        return self._by_lifecycle_metric[metric]

    @property
    def registry(self) -> CollectorRegistry:
        """Return the registry that Prometheus scrapes."""
        return self._declare.registry

    @property
    def declared(self) -> Mapping[str, MetricRow]:
        """Every metric by its full name."""
        return self._declare.rows

    def _declare_nodeclaims(self) -> None:
        self.nodeclaims_created = self._declare.counter(
            "nodeclaims_created_total",
            "NodeClaims created.",
            ("reason", "nodepool", "min_values_relaxed"),
        )
        self.nodeclaims_terminated = self._declare.counter(
            "nodeclaims_terminated_total",
            "NodeClaims whose termination ended.",
            ("nodepool", "capacity_type", "zone"),
        )
        self.nodeclaims_disrupted = self._declare.counter(
            "nodeclaims_disrupted_total",
            "NodeClaims that the controller deleted.",
            DISRUPTED_LABELS,
        )
        self.nodeclaims_held_back = self._declare.counter(
            "nodeclaims_held_back_total",
            "Planned NodeClaims not created because of a launch limit, and passes that skipped their "
            "NodePool.",
            ("nodepool", "reason"),
        )
        self.nodeclaims_unhealthy_disrupted = self._declare.counter(
            "nodeclaims_unhealthy_disrupted_total",
            "NodeClaims deleted because their Nodes were unhealthy for too long.",
            ("condition", "nodepool", "capacity_type", "image_id"),
        )
        self.nodeclaims_instance_termination_duration = self._declare.histogram(
            "nodeclaims_instance_termination_duration_seconds",
            "Time from the start of an instance's termination until the cloud reports it as gone.",
            ("nodepool",),
            INSTANCE_TERMINATION_BUCKETS,
        )
        self.nodeclaims_termination_duration = self._declare.histogram(
            "nodeclaims_termination_duration_seconds",
            "Time from the deletion of a NodeClaim until its finalizer is removed.",
            ("nodepool",),
            TERMINATION_BUCKETS,
        )

    def _declare_nodes(self) -> None:
        self.nodes_created = self._declare.counter(
            "nodes_created_total", "Nodes registered.", ("nodepool", "zone")
        )
        self.nodes_terminated = self._declare.counter(
            "nodes_terminated_total", "Nodes whose termination ended.", ("nodepool", "zone")
        )
        self.nodes_drained = self._declare.counter(
            "nodes_drained_total", "Nodes drained.", ("nodepool",)
        )
        self.nodes_termination_duration = self._declare.summary(
            "nodes_termination_duration_seconds",
            "Time from the deletion of a Node until its finalizer is removed.",
            ("nodepool",),
        )
        self.nodes_lifetime_duration = self._declare.histogram(
            "nodes_lifetime_duration_seconds",
            "Age of Nodes when their termination ends.",
            ("nodepool",),
            LIFETIME_BUCKETS,
        )
        amount = (*NODE_LABELS, "resource_type")
        self.nodes_allocatable = self._declare.series(
            "nodes_allocatable", "Allocatable resources of Nodes.", amount
        )
        self.nodes_total_pod_requests = self._declare.series(
            "nodes_total_pod_requests", "Requests of the pods on Nodes, including daemons.", amount
        )
        self.nodes_total_daemon_requests = self._declare.series(
            "nodes_total_daemon_requests", "Requests of the daemons on Nodes.", amount
        )
        self.nodes_total_pod_limits = self._declare.series(
            "nodes_total_pod_limits", "Limits of the pods on Nodes, including daemons.", amount
        )
        self.nodes_total_daemon_limits = self._declare.series(
            "nodes_total_daemon_limits", "Limits of the daemons on Nodes.", amount
        )
        self.nodes_system_overhead = self._declare.series(
            "nodes_system_overhead", "Capacity of Nodes minus their allocatable resources.", amount
        )
        self.nodes_current_lifetime = self._declare.series(
            "nodes_current_lifetime_seconds", "Age of Nodes.", NODE_LABELS
        )
        self.cluster_utilization = self._declare.gauge(
            "cluster_utilization_percent",
            "Requests of all pods as a percentage of the allocatable resources.",
            ("resource_type",),
        )

    def _declare_disruption(self) -> None:
        prefix = "voluntary_disruption_"
        by_method = ("reason", "consolidation_type")
        self.disruption_evaluation_duration = self._declare.histogram(
            f"{prefix}decision_evaluation_duration_seconds",
            "Duration of a disruption method's evaluation.",
            by_method,
        )
        self.disruption_decisions = self._declare.counter(
            f"{prefix}decisions_total", "Disruption commands started.", ("decision", *by_method)
        )
        self.disruption_decisions_by_nodepool = self._declare.counter(
            f"{prefix}decisions_by_nodepool_total",
            "Disruption commands started, counted once for each NodePool of their candidates.",
            ("nodepool", "decision", *by_method),
        )
        self.disruption_eligible_nodes = self._declare.gauge(
            f"{prefix}eligible_nodes", "Nodes that a disruption method may disrupt.", ("reason",)
        )
        self.disruption_failed_validations = self._declare.counter(
            f"{prefix}failed_validations_total",
            "Disruption commands rejected because the cluster changed before they started.",
            ("consolidation_type",),
        )
        self.disruption_queue_failures = self._declare.counter(
            f"{prefix}queue_failures_total",
            "Disruption commands that failed after their start.",
            ("decision", *by_method),
        )

    def _declare_consolidation(self) -> None:
        self.consolidation_timeouts = self._declare.counter(
            "voluntary_disruption_consolidation_timeouts_total",
            "Consolidation searches that ran out of time.",
            ("consolidation_type",),
        )
        for kind in ("multi", "single"):
            self.consolidation_timeouts.labels(consolidation_type=kind)
        by_policy = ("decision", "nodepool", "policy")
        self.consolidation_score = self._declare.histogram(
            "consolidation_score",
            "Score of a consolidation: the share of the NodePool's cost that it saves, divided by the share of the NodePool that it disrupts.",
            by_policy,
            (0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0),
        )
        self.consolidation_moves = self._declare.counter(
            "consolidation_moves_total", "Consolidations that were scored.", by_policy
        )

    def _declare_interruptions(self) -> None:
        self.interruption_received_messages = self._declare.counter(
            "interruption_received_messages_total",
            "Interruptions that providers returned, including repetitions.",
            ("message_type", "provider"),
        )
        self.interruption_deleted_messages = self._declare.counter(
            "interruption_deleted_messages_total",
            "Interruptions acknowledged after they were handled.",
            ("provider",),
        )
        self.interruption_message_queue_duration = self._declare.histogram(
            "interruption_message_queue_duration_seconds",
            "Time from the cloud's announcement of an interruption until it is handled.",
            ("provider",),
        )

    def _declare_provisioning_requests(self) -> None:
        self.provisioning_requests = self._declare.gauge(
            "provisioning_requests",
            "ProvisioningRequests that this controller serves, by class and state.",
            ("provisioning_class", "state"),
        )
        self.provisioning_request_changes = self._declare.counter(
            "provisioning_request_changes_total",
            "Changes of conditions of ProvisioningRequests, by class and new reason.",
            ("provisioning_class", "reason"),
        )

    def _declare_scheduler(self) -> None:
        by_controller = ("controller",)
        self.scheduling_duration = self._declare.histogram(
            "scheduler_scheduling_duration_seconds", "Duration of a scheduling pass.", by_controller
        )
        self.scheduler_queue_depth = self._declare.gauge(
            "scheduler_queue_depth",
            "Pods that the running pass has to place.",
            ("controller", "scheduling_id"),
        )
        self.scheduler_unfinished_work = self._declare.gauge(
            "scheduler_unfinished_work_seconds",
            "Time since the running pass started.",
            ("controller", "scheduling_id"),
        )
        self.scheduler_ignored_pods = self._declare.gauge(
            "scheduler_ignored_pods_count",
            "Pending pods that are ignored because they are invalid or not supported.",
            (),
        )
        self.scheduler_expendable_pods = self._declare.gauge(
            "scheduler_expendable_pods_count",
            "Pending pods for which no node is launched, because of their priority or annotation.",
            (),
        )
        self.capacity_buffer_pods = self._declare.gauge(
            "capacitybuffers_virtual_pods",
            "Virtual pods of CapacityBuffers: on existing capacity, on new NodeClaims, or without any "
            "place in the last pass.",
            ("namespace", "name", "place"),
        )
        self.scheduler_unschedulable_pods = self._declare.gauge(
            "scheduler_unschedulable_pods_count",
            "Pods that the last pass could not place.",
            by_controller,
        )
        self.scheduler_pending_pods_by_zone = self._declare.gauge(
            "scheduler_pending_pods_by_effective_zone_count",
            "Pending pods of the last pass, by the only zone that is possible for them; `flexible` = several "
            "zones, `none` = no zone.",
            ("controller", "zone"),
        )
        self.cluster_state_node_count = self._declare.gauge(
            "cluster_state_node_count", "Nodes in the cluster state.", ()
        )
        self.cluster_state_synced = self._declare.gauge(
            "cluster_state_synced", "1 if every watch has listed its objects, else 0.", ()
        )
        self.cluster_state_unsynced_time = self._declare.gauge(
            "cluster_state_unsynced_time_seconds",
            "Time that the cluster state has been unsynced.",
            (),
        )

    def _declare_process(self) -> None:
        self.reconcile_errors = self._declare.counter(
            "reconcile_errors_total", "Failed reconciles.", ("controller",)
        )
        self.catalogue_refresh_errors = self._declare.counter(
            "catalogue_refresh_errors_total",
            "Failed refreshes of an instance-type catalogue.",
            ("nodepool",),
        )
        self.catalogue_refresh_time = self._declare.gauge(
            "catalogue_refresh_timestamp_seconds",
            "Time of the last successful refresh of the instance-type catalogue that a NodePool uses.",
            ("nodepool",),
        )
        self.garbage_collection_held_back = self._declare.counter(
            "garbage_collection_held_back_total",
            "Garbage collections skipped because they would delete too large a share.",
            ("kind",),
        )
        self.waiting_for_freshness = self._declare.gauge(
            "core_waiting_for_freshness",
            "1 while a consumer waits for kinds that the API server has not shown recently.",
            ("consumer",),
        )
        self.dashboard_cpu = self._declare.counter(
            "core_dashboard_cpu_seconds_total",
            "CPU time of the dashboard's threads: `view` for what pages show, `explanation` for questions.",
            ("work",),
        )
        self.garbage_collection_instances = self._declare.counter(
            "garbage_collection_instances_total",
            "Instances without a NodeClaim that were terminated, surplus ones of launches included.",
            ("provider",),
        )
        self.garbage_collection_surplus = self._declare.counter(
            "garbage_collection_surplus_total",
            "Surplus instances of launches that were terminated.",
            ("provider",),
        )
        self.build_info = self._declare.gauge(
            "build_info",
            "Always 1; the labels describe the running build.",
            ("version", "goversion", "goarch", "commit"),
        )

        self.judgements_failed = self._declare.counter(
            "judgements_failed_total",
            "Objects skipped because a decision about them failed, counted once for each pass.",
            ("controller", "kind"),
        )
        self.pass_failures = self._declare.gauge(
            "pass_failures",
            "Number of consecutive passes of a controller that failed, or were throttled twenty times or "
            "more.",
            ("controller",),
        )
        self.decisions = self._declare.counter(
            "decisions_total", "Decisions recorded in the decision journal.", ("kind", "method")
        )
        self.observed_price = self._declare.gauge(
            "observed_price_per_hour",
            "Price per hour of the nodes that --observe compares with a fresh plan.",
            ("currency",),
        )
        self.observed_planned_price = self._declare.gauge(
            "observed_planned_price_per_hour",
            "Price per hour of the nodes of the fresh plan, for the same pods.",
            ("currency",),
        )
        self.observed_savings = self._declare.counter(
            "observed_savings_total",
            "Sum over time of the price that the fresh plan would have saved, while it costs less.",
            ("currency",),
        )
        self.decision_journal_lost = self._declare.counter(
            "decision_journal_lost_total",
            "Decisions that could not be written to the journal's file.",
            ("reason",),
        )


def metrics_table(metrics: Metrics) -> str:
    """Return the metrics as the table of the reference documentation."""
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in metrics.declared.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.text} |")
    return "\n".join(lines)
