"""Metrics of cost: hourly prices, money spent, nodes without a price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from karpenter_core.controllers.metrics.declarations import MetricDeclarations

__all__ = ["PRICE_LABELS", "CostSeries"]

PRICE_LABELS: Final = (
    "node_name", "nodeclaim", "nodepool", "instance_type", "zone", "capacity_type", "currency",
)  # fmt: skip


@final
class CostSeries:
    """The metrics of cost, one attribute each.

    `nodepools_cost` and `nodepools_cost_tracker_errors` have upstream's names; the former is a gauge
    of the price per hour in spite of its name.
    """

    def __init__(self, declare: MetricDeclarations) -> None:
        by_currency = ("capacity_type", "currency")
        self.nodepools_cost: Final = declare.gauge(
            "nodepools_cost_total",
            "Cost per hour of a NodePool's nodes, in the reporting currency.",
            ("nodepool",),
        )
        self.nodepools_cost_tracker_errors: Final = declare.counter(
            "nodepools_cost_tracker_errors_total",
            "Nodes without a known price, which the cost of their NodePool does not include.",
            ("nodepool",),
        )
        self.nodes_price: Final = declare.series(
            "nodes_price_per_hour",
            "Price of each node per hour, no series if it is unknown. `node_name` is empty for launched "
            "NodeClaims without a Node.",
            PRICE_LABELS,
        )
        self.nodepools_price: Final = declare.series(
            "nodepools_price_per_hour",
            "Price of the nodes of a NodePool per hour, by the currency of their prices.",
            ("nodepool", *by_currency),
        )
        self.cluster_price: Final = declare.series(
            "cluster_price_per_hour",
            "Price of the nodes of all NodePools per hour, by the currency of their prices.",
            by_currency,
        )
        by_commitment = ("commitment", "currency")
        self.nodes_commitment_savings: Final = declare.series(
            "nodes_commitment_savings_per_hour",
            "Part of the price of each node per hour that a commitment saves.",
            ("node_name", "nodeclaim", "nodepool", *by_commitment),
        )
        self.nodepools_commitment_savings: Final = declare.series(
            "nodepools_commitment_savings_per_hour",
            "Part of the price of the nodes of a NodePool per hour that a commitment saves.",
            ("nodepool", *by_commitment),
        )
        self.nodes_without_price: Final = declare.series(
            "nodes_without_price",
            "Number of nodes of a NodePool whose price is unknown, which no cost includes.",
            ("nodepool",),
        )
        self.nodepools_spent: Final = declare.counter(
            "nodepools_spent_total",
            "Money spent on the nodes of a NodePool while this process was the leader, by the currency of "
            "their prices.",
            ("nodepool", *by_currency),
        )
