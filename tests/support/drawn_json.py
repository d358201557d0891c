"""Draws JSON for a `msgspec` struct from a seed: every field is there, missing or odd at times.

What texts a field may have follows from its JSON name, so that drawn objects are mostly valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec.inspect as inspected

if TYPE_CHECKING:
    from random import Random

__all__ = ["drawn_json"]

_AMOUNTS: Final = ("100m", "1", "2", "1500m", "1Gi", "512Mi", "3e2", "0", "110", "1.5")
_TEXTS: Final = {
    "apiVersion": ("v1", "apps/v1", "karpenter.sh/v1", "batch/v1"),
    "kind": ("ReplicaSet", "DaemonSet", "Node", "Job", "StatefulSet", "Deployment", "NodeClaim"),
    "resourceVersion": ("1", "42", "123456789"),
    "name": ("main", "web", "web-0", "data", "cpu", "node-1", "gpu"),
    "namespace": ("default", "shop", ""),
    "protocol": ("TCP", "UDP", ""),
    "hostIP": ("", "10.0.0.1", "0.0.0.0"),
    "restartPolicy": ("Always", "OnFailure", None),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", ""),
    "key": (
        "app",
        "dedicated",
        "topology.kubernetes.io/zone",
        "kubernetes.io/arch",
        "metadata.name",
    ),
    "values": ("web", "db", "zone-a", "zone-b", "4", "node-1"),
    "topologyKey": ("topology.kubernetes.io/zone", "kubernetes.io/hostname", "example.com/rack"),
    "effect": ("NoSchedule", "NoExecute", "PreferNoSchedule", ""),
    "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "nodeAffinityPolicy": ("Honor", "Ignore", None),
    "nodeTaintsPolicy": ("Honor", "Ignore", None),
    "status": ("True", "False", "Unknown"),
    "type": ("Ready", "PodScheduled", "MemoryPressure", "DisruptionTarget", "ContainersReady"),
    "reason": ("Unschedulable", "SchedulingGated", "KubeletReady", ""),
    "phase": ("Pending", "Running", "Succeeded", "Failed", "Bound", "Lost", "Unknown"),
    "minAvailable": ("50%", "2", "0"),
    "maxUnavailable": ("0", "25%", "1"),
    "unhealthyPodEvictionPolicy": ("AlwaysAllow", "IfHealthyBudget", None),
    "accessModes": ("ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany"),
    "volumeBindingMode": ("WaitForFirstConsumer", "Immediate", None),
    "updateMode": ("Off", "Auto", "Recreate", "Initial", "InPlaceOrRecreate"),
    "mode": ("Off", "Auto"),
    "controlledResources": ("cpu", "memory"),
    "controlledValues": ("RequestsOnly", "RequestsAndLimits"),
    "allocationMode": ("ExactCount", "All", ""),
    "finalizers": ("karpenter.sh/termination", "example.com/backup"),
    "matchLabelKeys": ("pod-template-hash", "version"),
    "kubeletVersion": ("v1.31.0", ""),
    "timeAdded": ("2026-01-01T00:00:00Z", ""),
}
_KEYS: Final = {
    "labels": ("app", "pod-template-hash", "karpenter.sh/nodepool", "topology.kubernetes.io/zone"),
    "annotations": (
        "karpenter.sh/do-not-disrupt", "kubernetes.io/config.mirror", "pv.kubernetes.io/bind-completed",
        "volume.kubernetes.io/selected-node", "kubectl.kubernetes.io/last-applied-configuration",
    ),
    "matchLabels": ("app", "tier"),
    "selector": ("app", "tier"),
    "nodeSelector": ("topology.kubernetes.io/zone", "disk"),
}  # fmt: skip
_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", "pods", "example.com/gpu")
_LABELS: Final = ("web", "true", "zone-a", "1h")
_PLAIN: Final = ("", "a", "web", "fast", "node-1", "csi.example.com", "true")
_TIMES: Final = ("2026-01-01T00:00:00Z", "2026-02-01T10:20:30Z", "2025-12-31T23:59:59.5Z")
_DEEP: Final = 12


def drawn_json(random: Random, struct: type) -> Any:
    """Return a value of a struct as JSON knows it."""
    return _value(random, inspected.type_info(struct), "", 0)


def _value(random: Random, kind: Any, name: str, depth: int) -> Any:
    match kind:
        case inspected.StructType(fields=fields):
            share = 0.75 if depth < _DEEP else 0.2
            return {
                field.encode_name: _value(random, field.type, field.encode_name, depth + 1)
                for field in fields
                if field.required or random.random() < share
            }
        case inspected.UnionType(types=types):
            chosen = [each for each in types if not isinstance(each, inspected.NoneType)]
            absent = len(chosen) < len(types) and random.random() < 0.1
            return None if absent else _value(random, random.choice(chosen), name, depth)
        case (
            inspected.ListType(item_type=item)
            | inspected.CollectionType(item_type=item)
            | inspected.VarTupleType(item_type=item)
        ):
            return [_value(random, item, name, depth) for _ in range(random.choice((0, 1, 1, 2)))]
        case inspected.DictType(value_type=item):
            return _mapping(random, item, name, depth)
        case _:
            return _scalar(random, kind, name)


def _mapping(random: Random, item: Any, name: str, depth: int) -> Any:
    keys = _some(random, _KEYS.get(name, _RESOURCES))
    if isinstance(item, inspected.StructType):
        return {key: _value(random, item, "", depth) for key in keys}
    return {key: random.choice(_LABELS if name in _KEYS else _AMOUNTS) for key in keys}


def _scalar(random: Random, kind: Any, name: str) -> Any:
    match kind:
        case inspected.StrType():
            return random.choice([each for each in _TEXTS.get(name, _PLAIN) if each is not None])
        case inspected.IntType():
            return random.choice((0, 1, 2, 5, 30, 100))
        case inspected.BoolType():
            return random.random() < 0.5
        case inspected.DateTimeType():
            return random.choice(_TIMES)
        case inspected.FloatType():
            return random.choice((0.0, 0.5, 2.0))
        case inspected.NoneType():
            return None
        case _:
            return random.choice((1, "1", "50%", "v1"))


def _some(random: Random, values: tuple[str, ...]) -> list[str]:
    return random.sample(values, random.randrange(len(values) + 1))
