"""Karpenter's end-to-end scenarios that must pass, and why others do not yet.

Names are those that `python -m tests.e2e.upstream --list` prints.
"""

from __future__ import annotations

_BUFFER = "CapacityBuffer "
_CLAIM = "NodeClaim StandaloneNodeClaim should "
_DRIFT = "Drift Budgets should "
_REPAIR = "Integration Validation Repair Policy "
_END = "Termination "
_POOL = "Integration Validation NodePool should "

EXPECTED = {
    "regression": (
        f"{_BUFFER}PodTemplateRef Provisioning should provision capacity when a buffer with podTemplateRef is applied",
        f"{_BUFFER}PodTemplateRef Provisioning should update buffer status when PodTemplate is updated",
        f"{_BUFFER}ScalableRef Provisioning should provision buffer capacity using scalableRef with percentage",
        f"{_BUFFER}ScalableRef Provisioning should provision buffer capacity using scalableRef with fixed replicas",
        f"{_BUFFER}ScalableRef Provisioning should recover when scalable ref is created after buffer",
        f"{_BUFFER}Consumer Interaction should allow consumer pods to use existing buffer capacity and then refill",
        f"{_BUFFER}Consumer Interaction should refill buffer capacity after consumption",
        f"{_BUFFER}Disruption should not empty-consolidate nodes hosting buffer pods",
        f"{_BUFFER}Disruption should consolidate buffer nodes after buffer is deleted",
        f"{_BUFFER}Disruption should allow drift to replace buffer nodes",
        f"{_BUFFER}Lifecycle should scale buffer down when replicas are reduced",
        f"{_BUFFER}Lifecycle should handle scalableRef percentage update when deployment scales",
        f"{_BUFFER}NodePool Limits should not provision buffer capacity beyond NodePool CPU limit",
        f"{_BUFFER}Multiple Buffers should provision capacity independently for multiple buffers",
        f"{_BUFFER}Edge Cases should not leak nodes on rapid buffer create and delete",
        f"{_BUFFER}Edge Cases should coexist with real pods on the same node",
        f"{_BUFFER}Edge Cases should respect nodeSelector from PodTemplate",
        f"{_BUFFER}Edge Cases should refill buffer after node expiry",
        f"{_BUFFER}Edge Cases should grow buffer replicas when limits are increased",
        "Chaos Runaway Scale-Up should not produce a runaway scale-up when consolidation is enabled",
        "Chaos Runaway Scale-Up should not produce a runaway scale-up when emptiness is enabled",
        f"{_DRIFT}respect budgets for empty drift",
        f"{_DRIFT}respect budgets for non-empty delete drift",
        f"{_DRIFT}respect budgets for non-empty replace drift",
        f"{_DRIFT}not allow drift if the budget is fully blocking",
        f"{_DRIFT}not allow drift if the budget is fully blocking during a scheduled time",
        "Drift Failure should not disrupt a drifted node if the replacement node never registers",
        "Drift Failure should not disrupt a drifted node if the replacement node registers but never initialized",
        "Drift Failure should not drift any nodes if their PodDisruptionBudgets are unhealthy",
        "Drift NodePool Drift Annotations",
        "Drift NodePool Drift Labels",
        "Drift NodePool Drift Taints",
        "Drift NodePool Drift Start-up Taints",
        "Drift NodePool Drift NodeRequirements",
        "Drift should update the nodepool-hash annotation on the nodepool and nodeclaim when the nodepool's nodepool-hash-version annotation does not match the controller hash version",
        "Expiration should expire the node after the expiration is reached",
        "Expiration should replace expired node with a single node and schedule all pods",
        "Integration CRD Hash should have NodePool hash",
        "Integration DaemonSet should account for LimitRange Default on daemonSet pods for resources",
        "Integration DaemonSet should account for LimitRange DefaultRequest on daemonSet pods for resources",
        "Integration DaemonSet should correctly account for host ports of uncached daemonset pods targeting different instance types",
        "Integration Utilization should provision one pod per node",
        f"{_POOL}error when a restricted label is used in labels (karpenter.sh/nodepool)",
        f"{_POOL}error when a restricted label is used in labels (karpenter.sh/custom-label)",
        f"{_POOL}allow a restricted label exception to be used in labels (node-restriction.kubernetes.io/custom-label)",
        f"{_POOL}allow a restricted label exception to be used in labels ([*].node-restriction.kubernetes.io/custom-label)",
        f"{_POOL}error when a requirement references a restricted label (karpenter.sh/nodepool)",
        f"{_POOL}error when a requirement uses In but has no values",
        f"{_POOL}error when a requirement uses an unknown operator",
        f"{_POOL}error when Gt is used with multiple integer values",
        f"{_POOL}error when Lt is used with multiple integer values",
        f"{_POOL}error when Gte is used with multiple integer values",
        f"{_POOL}error when Lte is used with multiple integer values",
        f"{_POOL}error when consolidateAfter is negative",
        f"{_POOL}succeed when ConsolidationPolicy=WhenEmptyOrUnderutilized is used with consolidateAfter",
        f"{_POOL}error when minValues for a requirement key is negative",
        f"{_POOL}error when minValues for a requirement key is zero",
        f"{_POOL}error when minValues for a requirement key is more than 50",
        f"{_POOL}error when minValues for a requirement key is greater than the values specified within In operator",
        "Integration DoNotDisrupt Grace Period should drain pods according to their grace period durations and block indefinitely for 'true'",
        f"{_REPAIR}Conditions Node Ready False",
        f"{_REPAIR}Conditions Node Ready Unknown",
        f"{_REPAIR}should ignore disruption budgets",
        f"{_REPAIR}should ignore do-not-disrupt annotation on node",
        f"{_REPAIR}should ignore terminationGracePeriod on the nodepool",
        f"{_CLAIM}create a standard NodeClaim",
        f"{_CLAIM}create a standard NodeClaim based on resource requests",
        f"{_CLAIM}create a NodeClaim propagating all the NodeClaim spec details",
        f"{_CLAIM}remove the cloudProvider NodeClaim when the cluster NodeClaim is deleted",
        f"{_CLAIM}delete a NodeClaim from the node termination finalizer",
        f"{_CLAIM}delete a NodeClaim after the registration timeout when the node doesn't register",
        f"{_CLAIM}delete a NodeClaim if it references a NodeClass that doesn't exist",
        f"{_CLAIM}delete a NodeClaim if it references a NodeClass that isn't Ready",
        f"{_CLAIM}succeed to garbage collect an Instance that was launched by a NodeClaim but has no Instance mapping",
        "Performance Provisioning should do simple provisioning",
        "Performance Provisioning should do simple provisioning and simple drift",
        "Performance Provisioning should do complex provisioning",
        "Performance Provisioning should do complex provisioning and complex drift",
        f"{_END}Emptiness Budgets should not allow emptiness if the budget is fully blocking",
        f"{_END}Emptiness Budgets should not allow emptiness if the budget is fully blocking during a scheduled time",
        f"{_END}Emptiness should terminate an empty node",
        f"{_END}TerminationGracePeriod should delete pod with do-not-disrupt when it reaches its terminationGracePeriodSeconds",
        f"{_END}TerminationGracePeriod should delete pod that has a pre-stop hook after termination grace period seconds",
        f"{_END}should drain pods on a node in order",
        f"{_END}should terminate the node and the instance on deletion",
    ),
    "performance": (),
}

NOT_YET = {
    "StaticCapacity ": "pools with replicas are not provisioned",
}
"""By what names begin with."""
