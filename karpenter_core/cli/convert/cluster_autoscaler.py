"""Converts flags of a Cluster Autoscaler Deployment, or reports omissions.

Flags about node groups count in the NodePools of the groups (`provider.kit.node_groups`); limits of the
whole cluster become a CapacityQuota; others are options of the controller, which are named as to do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import BadInputError
from karpenter_core.provider.contract.conversion import Conversion
from karpenter_core.provider.kit.cluster_autoscaler import (
    autoscaler_container,
    autoscaler_flags,
    is_turned_off,
)
from karpenter_core.provider.kit.json_values import as_items, as_object, as_objects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.provider.contract.conversion import ManifestDraft
    from karpenter_core.provider.kit.cluster_autoscaler import AutoscalerFlag

__all__ = ["CLUSTER_AUTOSCALER_CONVERSIONS"]

_DEPLOYMENT: Final = "the chart of karpenter-core has a Deployment of its own"
_QUOTA_VERSION: Final = "autoscaling.x-k8s.io/v1beta1"
_QUOTA_NAME: Final = "cluster-autoscaler-totals"
_TOTALS: Final = {"cores-total": ("cpu", ""), "memory-total": ("memory", "Gi")}
"""Resource and unit of the flags that limit the whole cluster (`memory-total` is in gigabytes)."""
_TOTAL: Final = re.compile(r"(\d+):(\d+)")
_DEFAULT_CUTOFF: Final = "-10"

_OF_NODE_POOLS: Final = {
    "expander": "the priority expander decides spec.weight; without it the cheapest plan is chosen",
    "ignore-taint": "spec.template.spec.startupTaints of NodePools",
    "nodes": "minimum and maximum of the group in its NodePool",
    "scale-down-enabled": "spec.disruption.consolidateAfter of NodePools",
    "scale-down-unneeded-time": "spec.disruption.consolidateAfter of NodePools",
    "startup-taint": "spec.template.spec.startupTaints of NodePools",
}
_OPTIONS: Final = {
    "enable-provisioning-requests": "provisioning-requests",
    "expendable-pods-priority-cutoff": "priority-cutoff",
    "max-node-provision-time": "registration-timeout",
    "max-nodes-total": "max-nodes-total",
    "new-pod-scale-up-delay": "batch-idle-duration",
    "ok-total-unready-count": "repair-unhealthy-limit",
}
"""Options of the controller that have the meaning of a flag."""

_KEPT_PODS: Final = {
    "skip-nodes-with-local-storage": "with local storage",
    "skip-nodes-with-system-pods": "of kube-system",
    "skip-nodes-with-custom-controller-pods": "of custom controllers",
}
"""Pods whose nodes Cluster Autoscaler does not remove, by the flag that is true by default."""

_PROCESS: Final = "an option of another process: see the settings of karpenter-core"
_CLOUD: Final = "the provider and its settings tell the cloud and the cluster"
_EVICTION: Final = "pods that must not be evicted have karpenter.sh/do-not-disrupt or a budget"
_WINDOW: Final = "consolidateAfter counts from the last change of the pods on a node"
_PRICE: Final = "consolidation compares the price of nodes, not their utilization"
_BUDGET: Final = "set spec.disruption.budgets of NodePools for it"
_BACKOFF: Final = "offerings without capacity are left out for a time, each by itself"
_REPAIR: Final = "the feature gate NodeRepair replaces nodes by their conditions"
_ONE_PLAN: Final = "all pending pods are planned at once, for all NodePools"
_REASONS: Final = {
    **dict.fromkeys(
        (
            "add-dir-header", "address", "alsologtostderr", "client-ca-file", "debugging-snapshot-enabled",
            "emit-per-nodegroup-metrics", "feature-gates", "kube-api-content-type", "kube-client-burst",
            "kube-client-qps", "kubeconfig", "kubernetes", "leader-elect", "leader-elect-lease-duration",
            "leader-elect-renew-deadline", "leader-elect-resource-lock", "leader-elect-resource-name",
            "leader-elect-resource-namespace", "leader-elect-retry-period", "log-backtrace-at", "log-dir",
            "log-file", "log-file-max-size", "logging-format", "logtostderr", "max-failing-time",
            "max-inactivity", "namespace", "node-info-cache-expire-time", "one-output",
            "pprof", "profiling", "record-duplicated-events",
            "scan-interval", "skip-headers", "skip-log-headers", "status-config-map-name",
            "stderrthreshold", "user-agent", "v", "vmodule", "write-status-configmap",
        ),
        _PROCESS,
    ),
    **dict.fromkeys(
        (
            "aws-use-static-instance-list", "cloud-config", "cloud-provider", "cluster-name",
            "async-node-groups", "bulk-mig-instances-listing-enabled",
            "clusterapi-cloud-config-authoritative", "gce-concurrent-refreshes",
            "gce-mig-instances-min-refresh-wait-time",
            "node-autoprovisioning-enabled", "node-group-auto-discovery", "regional",
        ),
        _CLOUD,
    ),
    **dict.fromkeys(
        (
            "blocking-system-pod-distruption-timeout", "drain-priority-config",
            "ignore-daemonsets-utilization", "max-pod-eviction-time",
            "min-replica-count", "skip-nodes-with-custom-controller-pods",
            "skip-nodes-with-local-storage", "skip-nodes-with-system-pods",
        ),
        _EVICTION,
    ),
    **dict.fromkeys(
        (
            "scale-down-delay-after-add", "scale-down-delay-after-delete",
            "node-deletion-candidate-ttl", "scale-down-delay-after-failure",
            "scale-down-delay-type-local", "unremovable-node-recheck-timeout",
        ),
        _WINDOW,
    ),
    **dict.fromkeys(
        (
            "ignore-mirror-pods-utilization", "scale-down-candidates-pool-min-count",
            "scale-down-candidates-pool-ratio", "scale-down-gpu-utilization-threshold",
            "scale-down-non-empty-candidates-count", "scale-down-simulation-timeout",
            "scale-down-utilization-threshold",
        ),
        _PRICE,
    ),
    **dict.fromkeys(
        (
            "dynamic-node-delete-delay-after-taint-enabled",
            "max-bulk-soft-taint-count", "max-bulk-soft-taint-time",
            "max-drain-parallelism",
            "max-empty-bulk-delete", "max-scale-down-parallelism", "node-deletion-batcher-interval",
            "node-deletion-delay-timeout", "node-delete-delay-after-taint", "parallel-drain",
        ),
        _BUDGET,
    ),
    **dict.fromkeys(
        (
            "initial-node-group-backoff-duration", "max-node-group-backoff-duration",
            "node-group-backoff-reset-timeout",
        ),
        _BACKOFF,
    ),
    **dict.fromkeys(
        (
            "force-delete-failed-nodes", "force-delete-unregistered-nodes",
            "max-total-unready-percentage", "scale-down-unready-enabled",
            "scale-down-unready-time",
        ),
        _REPAIR,
    ),
    **dict.fromkeys(
        (
            "balance-similar-node-groups", "balancing-ignore-label", "balancing-label",
            "bypassed-scheduler-names", "cluster-snapshot-parallelism", "enable-proactive-scaleup",
            "frequent-loops-enabled", "grpc-expander-cert", "grpc-expander-url", "parallel-scale-up",
            "pod-injection-limit", "predicate-parallelism", "scale-from-unschedulable",
            "enforce-node-group-min-size", "estimator", "force-ds", "max-allocatable-difference-ratio",
            "max-binpacking-time", "max-free-difference-ratio", "max-nodegroup-binpacking-duration",
            "max-nodes-per-scaleup", "memory-difference-ratio", "scale-up-from-zero",
        ),
        _ONE_PLAN,
    ),
    **dict.fromkeys(
        ("capacity-buffer-controller-enabled", "capacity-buffer-pod-injection-enabled"),
        "set --feature-gates=CapacityBuffer=true of the controller for it",
    ),
    **dict.fromkeys(
        (
            "check-capacity-batch-processing", "check-capacity-processor-instance",
            "check-capacity-provisioning-request-batch-timebox",
            "check-capacity-provisioning-request-max-batch-size",
            "provisioning-request-initial-backoff-time", "provisioning-request-max-backoff-cache-size",
            "provisioning-request-max-backoff-time",
        ),
        "ProvisioningRequests are retried by rules of their own",
    ),
    "cordon-node-before-terminating": "nodes are tainted before they are drained",
    "daemonset-eviction-for-empty-nodes": "pods of DaemonSets are not evicted",
    "daemonset-eviction-for-occupied-nodes": "pods of DaemonSets are not evicted",
    "enable-csi-node-aware-scheduling": "limits of volumes in CSINodes always count",
    "enable-dynamic-resource-allocation": "set --ignore-dra-requests=false of the controller for it",
    "gpu-total": "set spec.limits of NodePools, or of a CapacityQuota, for the resource of the GPU",
    "max-graceful-termination-sec": "spec.template.spec.terminationGracePeriod of NodePools would "
    "also pass over PodDisruptionBudgets: set it if that is wanted",
    "scheduler-config-file": "set --scheduler-config of the controller for its default spread",
    "status-taint": "taints of conditions are known by themselves",
}  # fmt: skip
"""Reasons for flags that have no counterpart."""


def _convert(draft: ManifestDraft) -> None:
    flags = autoscaler_flags(draft.source)
    _leave_out_deployment(draft)
    options: dict[str, str] = {"priority-cutoff": _DEFAULT_CUTOFF}
    totals: dict[str, str] = {}
    for flag in flags:
        if flag.name in _TOTALS:
            resource, unit = _TOTALS[flag.name]
            totals[resource] = f"{_most(flag)}{unit}"
            _use(draft, flag, f"limit of CapacityQuota {_QUOTA_NAME}")
        elif flag.name in _OF_NODE_POOLS:
            _use(draft, flag, _OF_NODE_POOLS[flag.name])
        elif flag.name in _OPTIONS:
            options[_OPTIONS[flag.name]] = flag.value
            _use(draft, flag, f"--{_OPTIONS[flag.name]} of the controller")
        elif flag.name in _REASONS:
            for path in flag.paths:
                draft.leave_out(path, _REASONS[flag.name])
    if totals:
        quota = draft.new_manifest(
            api_version=_QUOTA_VERSION, kind="CapacityQuota", name=_QUOTA_NAME
        )
        quota.add("spec.limits.resources", totals, "totals of the cluster; minima have no meaning")
        options["capacity-quotas"] = "true"
    words = " ".join(f"--{name}={value}" for name, value in sorted(options.items()))
    draft.warn(f"start the controller with {words}, which have the meaning of flags or of defaults")
    kept = [
        f"{pods} (--{name})" for name, pods in _KEPT_PODS.items() if not is_turned_off(flags, name)
    ]
    if kept:
        draft.warn(
            f"Cluster Autoscaler keeps the nodes of pods {', '.join(kept)}; here these pods are evicted: "
            "annotate those that must stay with karpenter.sh/do-not-disrupt"
        )
    draft.warn("delete the Deployment of Cluster Autoscaler when the NodePools are Ready")


def _leave_out_deployment(draft: ManifestDraft) -> None:
    """Leave out all fields but the arguments of Cluster Autoscaler's container."""
    own = autoscaler_container(draft.source)
    template = as_object(as_object(draft.source.get("spec")).get("template"))
    pod = as_object(template.get("spec"))
    paths = [name for name in draft.source if name != "spec"]
    paths += [f"spec.{name}" for name in as_object(draft.source.get("spec")) if name != "template"]
    paths += [f"spec.template.{name}" for name in template if name != "spec"]
    paths += [f"spec.template.spec.{name}" for name in pod if name != "containers"]
    for number, container in enumerate(as_objects(pod.get("containers"))):
        place = f"spec.template.spec.containers.{number}"
        if number != own:
            paths.append(place)
            continue
        paths += [
            f"{place}.{name}"
            for name, value in container.items()
            if name not in {"command", "args"} or not value
        ]
        paths += [
            f"{place}.{part}.{index}"
            for part in ("command", "args")
            for index, word in enumerate(map(str, as_items(container.get(part))))
            if not word.startswith("-") and index == 0
        ]
    for path in paths:
        draft.leave_out(path, _DEPLOYMENT)


def _use(draft: ManifestDraft, flag: AutoscalerFlag, reason: str) -> None:
    for path in flag.paths:
        draft.use(path, f"{flag.name}: {reason}")


def _most(flag: AutoscalerFlag) -> str:
    match = _TOTAL.fullmatch(flag.value)
    if match is None:
        raise BadInputError(
            f'flag --{flag.name} of Cluster Autoscaler: "{flag.value}" has not the form MINIMUM:MAXIMUM'
        )
    return match[2]


def _is_cluster_autoscaler(document: Mapping[str, object]) -> bool:
    return autoscaler_container(document) is not None


CLUSTER_AUTOSCALER_CONVERSIONS: Final = (
    Conversion(
        kind="Deployment of Cluster Autoscaler",
        accepts=_is_cluster_autoscaler,
        convert=_convert,
        successors={},
    ),
)
