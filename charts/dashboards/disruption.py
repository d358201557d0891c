"""The dashboard of disruption."""

from __future__ import annotations

from typing import Final

from charts.dashboards.parts import DashboardPage, Panel, Query, Row

__all__ = ["DISRUPTION"]

_COMMANDS: Final = Row(
    title="Voluntary disruption",
    panels=(
        Panel(
            title="Commands started",
            description="By NodePool, reason and kind of command.",
            queries=(
                Query(
                    "sum by (nodepool, reason, decision) (increase("
                    "karpenter_voluntary_disruption_decisions_by_nodepool_total{$P}[$__rate_interval]))",
                    "{{nodepool}} {{reason}} {{decision}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            title="Eligible nodes",
            description="Nodes that a method may disrupt, before budgets.",
            queries=(
                Query(
                    "sum by (reason) (max by (cluster, reason) (karpenter_voluntary_disruption_eligible_nodes{$S}))",
                    "{{reason}}",
                ),
            ),
        ),
        Panel(
            title="Budgets",
            description="Nodes that budgets allow to disrupt at a time, and those that use them up.",
            queries=(
                Query(
                    "sum by (nodepool, reason) (max by (cluster, nodepool, reason) (karpenter_nodepools_allowed_disruptions{$P}))",
                    "{{nodepool}} {{reason}} allowed",
                ),
                Query(
                    "sum by (nodepool, reason) (max by (cluster, nodepool, reason) (karpenter_nodepools_nodes_consuming_budgets{$P}))",
                    "{{nodepool}} {{reason}} in use",
                ),
            ),
        ),
        Panel(
            title="Duration of evaluations",
            description="99th percentile of the time in which a method looks for a command.",
            queries=(
                Query(
                    "histogram_quantile(0.99, sum by (reason, consolidation_type, le) (rate("
                    "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_bucket{$S}"
                    "[$__rate_interval])))",
                    "{{reason}} {{consolidation_type}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Commands that were not carried out",
            description="Rejected before their start, rolled back after it, and searches that ran out of "
            "time.",
            queries=(
                Query(
                    "sum(increase(karpenter_voluntary_disruption_failed_validations_total{$S}[$__rate_interval]))",
                    "rejected",
                ),
                Query(
                    "sum by (reason) (increase(karpenter_voluntary_disruption_queue_failures_total{$S}[$__rate_interval]))",
                    "rolled back: {{reason}}",
                ),
                Query(
                    "sum by (consolidation_type) (increase("
                    "karpenter_voluntary_disruption_consolidation_timeouts_total{$S}[$__rate_interval]))",
                    "out of time: {{consolidation_type}}",
                ),
            ),
        ),
        Panel(
            title="Consolidations scored",
            description="Approved and rejected consolidations by NodePool.",
            queries=(
                Query(
                    "sum by (nodepool, decision) (increase(karpenter_consolidation_moves_total{$P}[$__rate_interval]))",
                    "{{nodepool}} {{decision}}",
                ),
            ),
        ),
    ),
)

_ENDINGS: Final = Row(
    title="Ends of nodes",
    panels=(
        Panel(
            title="NodeClaims disrupted",
            description="By reason, forced ones included.",
            queries=(
                Query(
                    "sum by (nodepool, reason) (increase(karpenter_nodeclaims_disrupted_total{$P}[$__rate_interval]))",
                    "{{nodepool}} {{reason}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            title="Pods disrupted",
            description="Pods that had to move because the controller deleted their NodeClaim.",
            queries=(
                Query(
                    "sum by (nodepool, reason) (increase(karpenter_pods_disruption_initiated_total{$P}[$__rate_interval]))",
                    "{{nodepool}} {{reason}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            title="Nodes created and terminated",
            description="Nodes that registered, and nodes whose termination ended.",
            queries=(
                Query(
                    "sum by (nodepool) (increase(karpenter_nodes_created_total{$P}[$__rate_interval]))",
                    "{{nodepool}} created",
                ),
                Query(
                    "sum by (nodepool) (increase(karpenter_nodes_terminated_total{$P}[$__rate_interval]))",
                    "{{nodepool}} terminated",
                ),
            ),
        ),
        Panel(
            title="Nodes that are terminating",
            description="How long each has been terminating.",
            queries=(
                Query(
                    "topk(20, max by (name) (operator_node_termination_current_time_seconds{$S}))",
                    "{{name}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Duration of terminations",
            description="From the deletion of a NodeClaim until it is gone; 90th percentile.",
            queries=(
                Query(
                    "histogram_quantile(0.9, sum by (nodepool, le) (rate("
                    "karpenter_nodeclaims_termination_duration_seconds_bucket{$P}[$__rate_interval])))",
                    "{{nodepool}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Evictions",
            description="Eviction requests by the status of the answer; 429 is a PodDisruptionBudget.",
            queries=(
                Query(
                    "sum by (code) (rate(karpenter_pods_eviction_requests_total{$S}[$__rate_interval]))",
                    "{{code}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Lifetime of nodes",
            description="Median age of nodes at their end.",
            queries=(
                Query(
                    "histogram_quantile(0.5, sum by (nodepool, le) (rate("
                    "karpenter_nodes_lifetime_duration_seconds_bucket{$P}[$__rate_interval])))",
                    "{{nodepool}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Garbage collection",
            description="Instances without a NodeClaim that were terminated, and collections skipped "
            "because they would delete too large a share.",
            queries=(
                Query(
                    "sum by (provider) (increase(karpenter_garbage_collection_instances_total{$S}[$__rate_interval]))",
                    "terminated at {{provider}}",
                ),
                Query(
                    "sum by (kind) (increase(karpenter_garbage_collection_held_back_total{$S}[$__rate_interval]))",
                    "skipped: {{kind}}",
                ),
            ),
        ),
    ),
)

_INTERRUPTIONS: Final = Row(
    title="Interruptions",
    panels=(
        Panel(
            title="Messages",
            description="Messages received, repetitions included, and acknowledged.",
            queries=(
                Query(
                    "sum by (provider, message_type) (increase("
                    "karpenter_interruption_received_messages_total{$S}[$__rate_interval]))",
                    "{{provider}} {{message_type}}",
                ),
                Query(
                    "sum by (provider) (increase(karpenter_interruption_deleted_messages_total{$S}[$__rate_interval]))",
                    "{{provider}} acknowledged",
                ),
            ),
            width=12,
        ),
        Panel(
            title="Time until an interruption is handled",
            description="From the cloud's announcement; 90th percentile.",
            queries=(
                Query(
                    "histogram_quantile(0.9, sum by (provider, le) (rate("
                    "karpenter_interruption_message_queue_duration_seconds_bucket{$S}[$__rate_interval])))",
                    "{{provider}}",
                ),
            ),
            unit="s",
            width=12,
        ),
    ),
)

DISRUPTION: Final = DashboardPage(
    name="disruption",
    title="Karpenter / Disruption",
    description="Consolidation, drift, drains, interruptions and garbage collection.",
    rows=(_COMMANDS, _ENDINGS, _INTERRUPTIONS),
)
