"""Options of decisions: plans, prices, timeouts, limits, disruption, gates."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from karpenter_core.lifecycle.node.repair import DEFAULT_LIMIT
from karpenter_core.operator.option_shapes import DEFAULT_GATES
from karpenter_core.operator.option_values import ProcessOption
from karpenter_core.state.expendable_pods import NO_CUTOFF

__all__ = ["DECISION_OPTIONS"]

_SHORTEST_TIMEOUT: Final = timedelta(seconds=1)
DECISION_OPTIONS: Final = (
    ProcessOption(
        flag="batch-max-duration",
        env="BATCH_MAX_DURATION",
        default=timedelta(seconds=10),
        help="Longest time that pending pods are collected before a scheduling pass.",
        minimum=timedelta(),
        falls_back=True,
    ),
    ProcessOption(
        flag="batch-idle-duration",
        env="BATCH_IDLE_DURATION",
        default=timedelta(seconds=1),
        help="Time without a new pending pod after which a scheduling pass begins.",
        minimum=timedelta(),
        falls_back=True,
    ),
    ProcessOption(
        flag="preference-policy",
        env="PREFERENCE_POLICY",
        default="Respect",
        help="Respect = preferences of pods are met where possible, Ignore = they are not considered.",
        choices=("Respect", "Ignore"),
        falls_back=True,
    ),
    ProcessOption(
        flag="min-values-policy",
        env="MIN_VALUES_POLICY",
        default="Strict",
        help="Strict = minValues of a NodePool must be met, BestEffort = they are relaxed where they "
        "cannot be met.",
        choices=("Strict", "BestEffort"),
        falls_back=True,
    ),
    ProcessOption(
        flag="packing",
        env="PACKING",
        default="value",
        help="value = the cheapest valid plan, first-fit = the plan in Karpenter's order.",
        choices=("value", "first-fit"),
    ),
    ProcessOption(
        flag="currency",
        env="CURRENCY",
        default="USD",
        help="Currency that prices are compared and reported in, by its ISO 4217 code.",
    ),
    ProcessOption(
        flag="exchange-rates",
        env="EXCHANGE_RATES",
        default="",
        help="Value of one unit of other currencies, such as CNY=0.14,EUR=1.1. Nodes priced in a "
        "currency without a rate are not consolidated to save money (condition PricesComparable of "
        "their NodePool).",
    ),
    ProcessOption(
        flag="node-fee",
        env="NODE_FEE",
        default=0.01,
        help="Cost per hour that plans add to the price of each node, in the currency of --currency, "
        "so that a few large nodes are preferred to many small ones of the same price.",
        minimum=0,
    ),
    ProcessOption(
        flag="launch-timeout",
        env="LAUNCH_TIMEOUT",
        default=timedelta(minutes=5),
        help="Time after which a NodeClaim without an instance is deleted.",
        minimum=_SHORTEST_TIMEOUT,
    ),
    ProcessOption(
        flag="registration-timeout",
        env="REGISTRATION_TIMEOUT",
        default=timedelta(minutes=15),
        help="Time after which a NodeClaim whose instance has not registered a Node, or whose Node is gone, is deleted; "
        "raise it for instances that boot slowly.",
        minimum=_SHORTEST_TIMEOUT,
    ),
    ProcessOption(
        flag="initialization-timeout",
        env="INITIALIZATION_TIMEOUT",
        default=timedelta(),
        help="Time after its registration after which a NodeClaim that is not initialised is deleted, so that its "
        "pods get another node; 0 = never. Its node is drained.",
        minimum=timedelta(),
    ),
    ProcessOption(
        flag="out-of-service-taint",
        env="OUT_OF_SERVICE_TAINT",
        default=False,
        help="Add the taint node.kubernetes.io/out-of-service to a deleted node that no longer "
        "reports and whose instance is terminating or gone, so that its volumes detach at once.",
    ),
    ProcessOption(
        flag="surge-moves",
        env="SURGE_MOVES",
        default=False,
        help="Before a drain evicts the only pod of a Deployment, restart the Deployment's rollout, so "
        "that another pod is ready first; for pods with the annotation karpenter.sh/surge-move. Needs "
        "the permission to get and patch Deployments.",
    ),
    ProcessOption(
        flag="ignore-dra-requests",
        env="IGNORE_DRA_REQUESTS",
        default=True,
        help="Ignore pods that request devices through ResourceClaims (Dynamic Resource Allocation). "
        "With false, plans allocate devices for these pods; the API server must serve "
        "resource.k8s.io/v1 (Kubernetes 1.34).",
        falls_back=True,
    ),
    ProcessOption(
        flag="max-nodes-total",
        env="MAX_NODES_TOTAL",
        default=0,
        help="Limit of nodes in the cluster, including NodeClaims without a Node and nodes that the "
        "controller did not launch; 0 = no limit.",
        minimum=0,
    ),
    ProcessOption(
        flag="launches-per-minute",
        env="LAUNCHES_PER_MINUTE",
        default=0,
        help="Limit of NodeClaims that are created for a NodePool in a minute; further ones wait; "
        "0 = no limit.",
        minimum=0,
    ),
    ProcessOption(
        flag="provisioning-requests",
        env="PROVISIONING_REQUESTS",
        default=False,
        help="Serve ProvisioningRequests of autoscaling.x-k8s.io, with which Kueue and other queues "
        "request capacity for all pods of a job at once.",
    ),
    ProcessOption(
        flag="capacity-quotas",
        env="CAPACITY_QUOTAS",
        default=False,
        help="Enforce CapacityQuotas of autoscaling.x-k8s.io: limits of resources, nodes and price for all "
        "nodes with certain labels.",
    ),
    ProcessOption(
        flag="vpa-predictions",
        env="VPA_PREDICTIONS",
        default=False,
        help="Plan moves of pods with the requests that their VerticalPodAutoscaler will set when they "
        "are created again, instead of their current requests.",
    ),
    ProcessOption(
        flag="priority-cutoff",
        env="PRIORITY_CUTOFF",
        default=NO_CUTOFF,
        help="Lowest priority of pods for which nodes are launched; pods below it use only free "
        "capacity, and no node is kept for them. The default is the lowest possible priority.",
        minimum=NO_CUTOFF,
    ),
    ProcessOption(
        flag="pause-disruption",
        env="PAUSE_DISRUPTION",
        default=False,
        help="Pause emptiness, drift, consolidation, expiration and node repair; the annotation "
        "karpenter.sh/pause-disruption pauses them for one NodePool, without a restart.",
    ),
    ProcessOption(
        flag="repair-unhealthy-limit",
        env="REPAIR_UNHEALTHY_LIMIT",
        default=str(DEFAULT_LIMIT),
        help="Number or percentage of unhealthy nodes of a NodePool above which node repair replaces "
        "none of them; 0 = repair nothing.",
    ),
    ProcessOption(
        flag="repair-conditions",
        env="REPAIR_CONDITIONS",
        default="",
        help="Conditions that make a node unhealthy (feature gate NodeRepair), each with the time that it "
        "is tolerated, such as GPUFault=True:10m,Ready=Unknown:1h,KernelDeadlock=True:never. They add to "
        "the conditions of the provider and override equal ones.",
    ),
    ProcessOption(
        flag="observe",
        env="OBSERVE",
        default=False,
        help="Change nothing, in the cluster or in a cloud: plan, record decisions, and compare the "
        "price of the cluster with that of a fresh plan. Needs only read permissions.",
    ),
    ProcessOption(
        flag="observe-nodes",
        env="OBSERVE_NODES",
        default="",
        help="Labels of nodes without a NodePool that --observe also compares, such as the nodes of a "
        "node group (key, or key=value, comma separated).",
    ),
    ProcessOption(
        flag="act-on-rebalance",
        env="ACT_ON_REBALANCE",
        default=False,
        help="Replace nodes for which the cloud recommends rebalancing; by default the recommendation "
        "is only reported.",
    ),
    ProcessOption(
        flag="feature-gates",
        env="FEATURE_GATES",
        default=DEFAULT_GATES,
        help="Optional features, such as A=true,B=false; omitted gates keep their default.",
        falls_back=True,
    ),
    ProcessOption(
        flag="commitments",
        env="COMMITMENTS",
        default="",
        help="Capacity that is paid for in advance, as a list in YAML or JSON: up to the given amount of "
        "a resource, the selected on-demand instance types cost less.",
        falls_back=True,
    ),
    ProcessOption(
        flag="scheduler-config",
        env="SCHEDULER_CONFIG",
        default="",
        help="Default topology spread constraints of the cluster's scheduler, as YAML or JSON. If "
        "set, the controller also watches Services and the controllers of pods.",
        falls_back=True,
    ),
)
