"""Metrics of limits and use: NodePools, quotas, commitments, devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from karpenter_core.controllers.metrics.declarations import MetricDeclarations

__all__ = ["CapacityMetrics"]


@final
class CapacityMetrics:
    """The metrics of NodePools and of all that bounds or counts capacity, one attribute each."""

    def __init__(self, declare: MetricDeclarations) -> None:
        by_resource = ("resource_type", "nodepool")
        self.nodepools_limit: Final = declare.gauge(
            "nodepools_limit", "Limits of NodePools.", by_resource
        )
        self.nodepools_usage: Final = declare.gauge(
            "nodepools_usage",
            "Resources that NodePools use, by which their limits are checked.",
            by_resource,
        )
        self.nodepools_replicas: Final = declare.gauge(
            "nodepools_replicas",
            "NodeClaims of static NodePools by state, and the desired number (feature gate "
            "StaticCapacity).",
            ("nodepool", "state"),
        )
        self.nodepools_spot_share: Final = declare.gauge(
            "nodepools_spot_share",
            "Share of spot in the nodes of NodePools with the annotation karpenter.sh/spot-share, 0 to 1: "
            "`desired` and, if there are nodes, `actual`.",
            ("nodepool", "kind"),
        )
        self.devices: Final = declare.gauge(
            "devices",
            "Published devices by the NodePool of their node (Dynamic Resource Allocation): `allocated`, "
            "`free`, or `unusable` because their pool is incomplete or invalid.",
            ("driver", "nodepool", "state"),
        )
        self.pods_predicted: Final = declare.gauge(
            "pods_with_predicted_requests",
            "Pods on nodes whose requests will differ when they are created again (setting "
            "vpa-predictions).",
            (),
        )
        self.pods_predicted_change: Final = declare.gauge(
            "pods_predicted_requests_change",
            "Sum of the changes of these pods' requests; less than zero if they will shrink.",
            ("resource_type",),
        )
        self.nodepools_schedule_window_open: Final = declare.gauge(
            "nodepools_schedule_window_open",
            "1 while a window of the annotation karpenter.sh/schedules is open, else 0.",
            ("nodepool", "window"),
        )
        self.nodepools_schedule_next_edge: Final = declare.gauge(
            "nodepools_schedule_next_edge_timestamp_seconds",
            "Time at which the next window of a NodePool opens or closes; 0 if none does.",
            ("nodepool",),
        )
        by_commitment = ("commitment", "resource_type")
        self.commitments_amount: Final = declare.gauge(
            "commitments_amount",
            "Amounts of commitments (setting commitments); for spend, the list price that they cover.",
            by_commitment,
        )
        self.commitments_usage: Final = declare.gauge(
            "commitments_usage",
            "Use of commitments by existing nodes and NodeClaims; may exceed the amount.",
            by_commitment,
        )
        by_currency = ("commitment", "currency")
        self.commitments_price: Final = declare.gauge(
            "commitments_price",
            "Price per hour, at committed prices, of the part of existing nodes that commitments cover.",
            by_currency,
        )
        self.commitments_list_price: Final = declare.gauge(
            "commitments_list_price",
            "Price per hour, at list prices, of the part of existing nodes that commitments cover.",
            by_currency,
        )
        by_quota = ("capacityquota", "resource_type")
        self.capacityquotas_limit: Final = declare.gauge(
            "capacityquotas_limit", "Limits of CapacityQuotas.", by_quota
        )
        self.capacityquotas_usage: Final = declare.gauge(
            "capacityquotas_usage",
            "Resources of the nodes that CapacityQuotas count, by which launches are refused.",
            by_quota,
        )
        by_reason = ("nodepool", "reason")
        self.nodepools_allowed_disruptions: Final = declare.gauge(
            "nodepools_allowed_disruptions",
            "Nodes that the disruption budgets of a NodePool allow to disrupt at the same time.",
            by_reason,
        )
        self.nodepools_nodes_consuming_budgets: Final = declare.gauge(
            "nodepools_nodes_consuming_budgets",
            "Nodes of a NodePool that currently count against its disruption budgets.",
            by_reason,
        )
