"""Builds the Node of an instance, as its kubelet would register it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import HOSTNAME, UNREGISTERED_TAINT
from karpenter_core.api.quantities import format_resources
from karpenter_provider_kwok.labels import (
    KWOK_NODE,
    KWOK_NODE_VALUE,
    KWOK_NODE_WITHOUT_KUBELET,
    KWOK_PARTITION,
    KWOK_PARTITION_VALUE,
    PROVIDER_ID_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import Resources
    from karpenter_core.provider.catalogue import InstanceType, Offering, Requirements

__all__ = [
    "decided_labels",
    "node_manifest",
    "provider_id_of",
    "without_kubelet",
    "without_resources",
]

_UNREGISTERED: Final = {"key": UNREGISTERED_TAINT, "effect": "NoExecute"}
_NOT_READY: Final = {
    "type": "Ready",
    "status": "False",
    "reason": "KubeletNotReady",
    "message": "injected: the container runtime network is not ready",
}


def provider_id_of(node_claim: str) -> str:
    """Return the provider ID of a claim's instance."""
    return f"{PROVIDER_ID_PREFIX}{node_claim}"


def decided_labels(instance_type: InstanceType, offering: Offering) -> dict[str, str]:
    """Return the labels that the choice of an offering decides."""
    return {
        **_single_values(instance_type.requirements),
        **_single_values(offering.requirements),
    }


def node_manifest(
    claim: NodeClaim, labels: dict[str, str], *, capacity: Resources, allocatable: Resources
) -> JsonObject:
    """Return the Node of a claim, as it registers: tainted, and not yet in the core's hands."""
    taints: list[dict[str, str]] = []
    for taint in (*claim.spec.taints, *claim.spec.startup_taints):
        given = {"key": taint.key, "effect": taint.effect}
        taints.append({**given, "value": taint.value} if taint.value else given)
    single = {
        spec.key: spec.values[0]
        for spec in claim.spec.requirements
        if spec.operator == "In" and len(spec.values) == 1
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": claim.name,
            "labels": {
                **claim.metadata.labels,
                **single,
                **labels,
                HOSTNAME: claim.name,
                KWOK_NODE: KWOK_NODE_VALUE,
                KWOK_PARTITION: KWOK_PARTITION_VALUE,
            },
            "annotations": {KWOK_NODE: KWOK_NODE_VALUE},
        },
        "spec": {"providerID": provider_id_of(claim.name), "taints": [*taints, _UNREGISTERED]},
        "status": {
            "capacity": {k: str(v) for k, v in format_resources(capacity).items()},
            "allocatable": {k: str(v) for k, v in format_resources(allocatable).items()},
        },
    }


def without_kubelet(node: JsonObject) -> JsonObject:
    """Return a Node that is there and that no kubelet brings to Ready."""
    mark = {KWOK_NODE: KWOK_NODE_WITHOUT_KUBELET}
    metadata, status = node["metadata"], node["status"]
    return {
        **node,
        "metadata": {
            **metadata,
            "labels": {**metadata["labels"], **mark},
            "annotations": {**metadata["annotations"], **mark},
        },
        "status": {**status, "conditions": [_NOT_READY]},
    }


def without_resources(node: JsonObject, is_missing: Callable[[str], bool]) -> JsonObject:
    """Return a Node that lacks resources which its instance type promises."""
    status = {
        field: {
            name: amount for name, amount in node["status"][field].items() if not is_missing(name)
        }
        for field in ("capacity", "allocatable")
    }
    return {**node, "status": {**node["status"], **status}}


def _single_values(requirements: Requirements) -> dict[str, str]:
    values = {key: requirements.single_value(key) for key in requirements}
    return {key: value for key, value in values.items() if value}
