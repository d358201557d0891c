"""The dashboard of capacity and cost."""

from __future__ import annotations

from typing import Final

from charts.dashboards.parts import DashboardPage, Panel, Query, Row

__all__ = ["CAPACITY"]

# Only the leader has these series; `max` keeps a former leader's last values from counting twice. It is
# one for each cluster, since NodePools, nodes and pods of several clusters have the same names.
_PRICES: Final = (
    "max by (cluster, nodepool, capacity_type, currency) (karpenter_nodepools_price_per_hour{$P})"
)

_COST: Final = Row(
    title="Cost",
    panels=(
        Panel(
            title="Price per hour",
            description="Price of all nodes of NodePools, by the currency of their price list.",
            queries=(Query(f"sum by (currency) ({_PRICES})", "{{currency}}"),),
            kind="stat",
            width=6,
        ),
        Panel(
            title="Price per month",
            description="The price per hour, times 730 hours.",
            queries=(Query(f"730 * sum by (currency) ({_PRICES})", "{{currency}}"),),
            kind="stat",
            width=6,
        ),
        Panel(
            title="Spent",
            description="Money spent on nodes in the chosen time range, as all leaders counted it.",
            queries=(
                Query(
                    "sum by (currency) (increase(karpenter_nodepools_spent_total{$P}[$__range]))",
                    "{{currency}}",
                ),
            ),
            kind="stat",
            width=6,
        ),
        Panel(
            title="Nodes without a price",
            description="Their price is unknown, so no cost includes them.",
            queries=(Query("sum(max by (cluster, nodepool) (karpenter_nodes_without_price{$P}))"),),
            kind="stat",
            width=6,
        ),
        Panel(
            title="Price per hour by NodePool",
            description="In the currency of the price list.",
            queries=(
                Query(f"sum by (nodepool, currency) ({_PRICES})", "{{nodepool}} ({{currency}})"),
            ),
            kind="stacked",
        ),
        Panel(
            title="Price per hour by capacity type",
            description="In the currency of the price list.",
            queries=(
                Query(
                    f"sum by (capacity_type, currency) ({_PRICES})",
                    "{{capacity_type}} ({{currency}})",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            title="Cost per hour in the reporting currency",
            description="Converted by the exchange rates of the settings; nodes without a rate are left "
            "out.",
            queries=(
                Query(
                    "sum by (nodepool) (max by (cluster, nodepool) (karpenter_nodepools_cost_total{$P}))",
                    "{{nodepool}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            title="Most expensive nodes",
            description="The twenty nodes with the highest price per hour.",
            queries=(
                Query(
                    "topk(20, max by (cluster, node_name, nodeclaim, nodepool, instance_type, zone, capacity_type, "
                    "currency) (karpenter_nodes_price_per_hour{$P}))"
                ),
            ),
            kind="table",
            width=24,
        ),
    ),
)

_CAPACITY: Final = Row(
    title="Capacity",
    panels=(
        Panel(
            title="Nodes by NodePool",
            description="Nodes that have joined the cluster.",
            queries=(
                Query(
                    "count by (nodepool) (max by (cluster, nodepool, node_name) ("
                    'karpenter_nodes_allocatable{$P,resource_type="cpu",managed="true"}))',
                    "{{nodepool}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            title="Nodes by capacity type",
            description="On-demand, spot and reserved nodes of NodePools.",
            queries=(
                Query(
                    "count by (capacity_type) (max by (cluster, capacity_type, node_name) ("
                    'karpenter_nodes_allocatable{$P,resource_type="cpu",managed="true"}))',
                    "{{capacity_type}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            title="Nodes by zone",
            description="Nodes of NodePools in each zone.",
            queries=(
                Query(
                    "count by (zone) (max by (cluster, zone, node_name) ("
                    'karpenter_nodes_allocatable{$P,resource_type="cpu",managed="true"}))',
                    "{{zone}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            title="Nodes by instance type",
            description="The fifteen most frequent instance types.",
            queries=(
                Query(
                    "topk(15, count by (instance_type) (max by (cluster, instance_type, node_name) ("
                    'karpenter_nodes_allocatable{$P,resource_type="cpu",managed="true"})))',
                    "{{instance_type}}",
                ),
            ),
        ),
        Panel(
            title="Utilization of the cluster",
            description="Requests of all pods as a share of the allocatable resources.",
            queries=(
                Query(
                    "max by (resource_type) (karpenter_cluster_utilization_percent{$S,"
                    'resource_type=~"cpu|memory|pods"})',
                    "{{resource_type}}",
                ),
            ),
            unit="percent",
        ),
        Panel(
            title="CPU requested by NodePool",
            description="Requests of pods as a share of the allocatable CPU.",
            queries=(
                Query(
                    'sum by (nodepool) (karpenter_nodes_total_pod_requests{$P,resource_type="cpu"}) '
                    '/ sum by (nodepool) (karpenter_nodes_allocatable{$P,resource_type="cpu"})',
                    "{{nodepool}}",
                ),
            ),
            unit="percentunit",
        ),
        Panel(
            title="Use of limits",
            description="What NodePools use of spec.limits; only NodePools with limits have a line.",
            queries=(
                Query(
                    "max by (nodepool, resource_type) (karpenter_nodepools_usage{$P} "
                    "/ karpenter_nodepools_limit{$P})",
                    "{{nodepool}} {{resource_type}}",
                ),
            ),
            unit="percentunit",
        ),
        Panel(
            title="Share of spot",
            description="Of NodePools with the annotation karpenter.sh/spot-share: as asked for, and as "
            "it is.",
            queries=(
                Query(
                    "max by (nodepool, kind) (karpenter_nodepools_spot_share{$P})",
                    "{{nodepool}} {{kind}}",
                ),
            ),
            unit="percentunit",
        ),
        Panel(
            title="Devices",
            description="Devices of nodes that drivers have published (Dynamic Resource Allocation).",
            queries=(
                Query(
                    "sum by (driver, state) (max by (cluster, driver, nodepool, state) (karpenter_devices{$P}))",
                    "{{driver}} {{state}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            title="Age of nodes",
            description="Median and oldest age of the nodes of each NodePool.",
            queries=(
                Query(
                    "quantile by (nodepool) (0.5, karpenter_nodes_current_lifetime_seconds{$P})",
                    "{{nodepool}} median",
                ),
                Query(
                    "max by (nodepool) (karpenter_nodes_current_lifetime_seconds{$P})",
                    "{{nodepool}} oldest",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Pods by phase",
            description="Pods of the whole cluster.",
            queries=(
                Query(
                    "count by (phase) (max by (cluster, phase, namespace, name) (karpenter_pods_state{$S}))",
                    "{{phase}}",
                ),
            ),
            kind="stacked",
        ),
    ),
)

CAPACITY: Final = DashboardPage(
    name="capacity-and-cost",
    title="Karpenter / Capacity and cost",
    description="Nodes, their use and their price.",
    rows=(_COST, _CAPACITY),
)
