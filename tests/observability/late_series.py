"""Series of dashboards and alerts that exist only after something special has happened."""

from __future__ import annotations

from typing import Final

__all__ = ["LATE_SERIES"]

SLOW: Final = "a state that lasts longer than the ten seconds between two updates"

LATE_SERIES: Final[dict[str, str]] = {
    'client_go_request_total{code=~"5..|<error>"}': "a failed request to the API server",
    "karpenter_azure_unavailable_marks": "a launch that Azure refused",
    'karpenter_cloudprovider_errors_total{error!~"InsufficientCapacityError|NodeClaimNotFoundError|'
    'NodeClassNotReadyError"}': "a failed call of a provider",
    'karpenter_cloudprovider_errors_total{error="InsufficientCapacityError"}': "a sold-out offering",
    'karpenter_cloudprovider_errors_total{error="ThrottledError"}': "a throttled call",
    "karpenter_cloudprovider_instance_launch_failures_total": "a launch that AWS refused",
    "karpenter_consolidation_moves_total": "a scored consolidation",
    "karpenter_decision_journal_lost_total": "a full disk",
    "karpenter_devices": "a ResourceSlice of a driver of devices",
    "karpenter_garbage_collection_held_back_total": "a listing without most instances",
    "karpenter_garbage_collection_instances_total": "an instance without a NodeClaim",
    "karpenter_instance_vm_create_failure_total": "a virtual machine that Azure refused",
    "karpenter_judgements_failed_total": "an error of the program",
    'karpenter_nodeclaims_disrupted_total{reason="garbage_collected"}': "a vanished instance",
    'karpenter_nodeclaims_disrupted_total{reason=~"insufficient_capacity|nodeclass_not_ready|'
    'launch_timeout|registration_timeout"}': "a NodeClaim that ended before it had a Node",
    "karpenter_nodeclaims_held_back_total": "a launch limit",
    "karpenter_nodeclaims_unhealthy_disrupted_total": "an unhealthy node",
    "karpenter_pass_failures": "a failed pass",
    'operator_nodeclaim_status_condition_count{status!="True",type=~"Launched|Registered|Initialized"}': SLOW,
    'operator_nodeclaim_status_condition_current_status_seconds{status!="True",type="Initialized"}': SLOW,
    'operator_nodeclaim_status_condition_current_status_seconds{status!="True",type="Registered"}': SLOW,
    'operator_nodepool_status_condition_current_status_seconds{status!="True",type="Ready"}': SLOW,
    "operator_node_termination_current_time_seconds": SLOW,
    "operator_nodeclaim_termination_current_time_seconds": SLOW,
    "karpenter_pods_provisioning_scheduling_undecided_time_seconds": SLOW,
    "karpenter_pods_provisioning_unbound_time_seconds": SLOW,
    "karpenter_pods_unbound_time_seconds": SLOW,
    "karpenter_pods_eviction_requests_total": "the drain of a node with pods",
    'karpenter_pods_eviction_requests_total{code!~"2..|404|409|429"}': "a refused eviction",
    "karpenter_voluntary_disruption_failed_validations_total": "a command that is no longer valid",
    "karpenter_voluntary_disruption_queue_failures_total": "a command that is rolled back",
}
"""By selector: the event after which it has series.

A unit test checks that the code declares the metric with these labels, and has the values.
"""
