"""Reduces objects to fields that the controller reads, without secrets.

Kubernetes' own kinds keep only the fields of the structs that decode them: environments, arguments,
commands, images, managed fields and sources of volumes have no place there. Our kinds keep what their
definitions describe, without user data and the like. A kind that is not listed here is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

import msgspec

from karpenter_core.errors import BadInputError
from karpenter_core.kube.wire import raw
from karpenter_core.kube.wire.autoscalers import RawVerticalPodAutoscaler
from karpenter_core.kube.wire.devices import (
    RawDeviceClass,
    RawResourceClaim,
    RawResourceClaimTemplate,
    RawResourceSlice,
)
from karpenter_core.kube.wire.shapes import READ_ANNOTATIONS

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject

__all__ = ["READ_STRUCTS", "redacted"]

READ_STRUCTS: Final[dict[tuple[str, str], type[msgspec.Struct]]] = {
    ("", "Namespace"): raw.RawNamespace,
    ("", "Node"): raw.RawNode,
    ("", "PersistentVolume"): raw.RawPersistentVolume,
    ("", "PersistentVolumeClaim"): raw.RawPersistentVolumeClaim,
    ("", "Pod"): raw.RawPod,
    ("", "PodTemplate"): raw.RawPodTemplateObject,
    ("", "ReplicationController"): raw.RawReplicationController,
    ("", "Service"): raw.RawService,
    ("apps", "DaemonSet"): raw.RawDaemonSet,
    ("apps", "Deployment"): raw.RawTemplatedWorkload,
    ("apps", "ReplicaSet"): raw.RawTemplatedWorkload,
    ("apps", "StatefulSet"): raw.RawTemplatedWorkload,
    ("autoscaling.k8s.io", "VerticalPodAutoscaler"): RawVerticalPodAutoscaler,
    ("policy", "PodDisruptionBudget"): raw.RawPodDisruptionBudget,
    ("resource.k8s.io", "DeviceClass"): RawDeviceClass,
    ("resource.k8s.io", "ResourceClaim"): RawResourceClaim,
    ("resource.k8s.io", "ResourceClaimTemplate"): RawResourceClaimTemplate,
    ("resource.k8s.io", "ResourceSlice"): RawResourceSlice,
    ("storage.k8s.io", "CSINode"): raw.RawCSINode,
    ("storage.k8s.io", "StorageClass"): raw.RawStorageClass,
    ("storage.k8s.io", "VolumeAttachment"): raw.RawVolumeAttachment,
}
"""The structs of Kubernetes' own kinds, by group and kind."""

_OUR_KINDS: Final = frozenset(
    {
        ("autoscaling.x-k8s.io", "CapacityBuffer"),
        ("autoscaling.x-k8s.io", "CapacityQuota"),
        ("autoscaling.x-k8s.io", "ProvisioningRequest"),
        ("karpenter.sh", "NodeClaim"),
        ("karpenter.sh", "NodeOverlay"),
        ("karpenter.sh", "NodePool"),
    }
)
_ANNOTATION_DOMAINS: Final = frozenset(
    {
        "autoscaling.x-k8s.io",
        "cluster-autoscaler.kubernetes.io",
        "controller.kubernetes.io",
        "pv.kubernetes.io",
        "storageclass.beta.kubernetes.io",
        "storageclass.kubernetes.io",
        "volume.kubernetes.io",
    }
)
"""Domains of annotations that rules read, beside those of Karpenter."""
_SECRET: Final = re.compile(
    r"user.?data|passw|secret|token|credential|private|certificate|ca.?bundle|script|command|args|env$",
    re.IGNORECASE,
)
"""Names of fields and annotations that may hold a secret."""


def redacted(
    manifest: JsonObject, *, group: str, kind: str, is_node_class: bool = False
) -> JsonObject:
    """Return the object without everything that a snapshot must not contain.

    Raises:
        BadInputError: the object cannot be read, or its kind is not one of those that are.
    """
    struct = READ_STRUCTS.get((group, kind))
    if struct is not None:
        kept = _converted(manifest, struct)
    elif is_node_class or (group, kind) in _OUR_KINDS:
        kept = {name: manifest[name] for name in ("spec", "status") if name in manifest}
        kept["metadata"] = _converted(manifest.get("metadata") or {}, raw.RawMeta)
    else:
        raise BadInputError(f"a snapshot holds no {kind}.{group}")
    if is_node_class:
        kept = cast("JsonObject", _without_secrets(kept))
    head = {"apiVersion": manifest["apiVersion"], "kind": kind}
    return {**head, **cast("JsonObject", _with_known_annotations(kept))}


def _converted(value: object, struct: type[msgspec.Struct]) -> JsonObject:
    try:
        return cast("JsonObject", msgspec.to_builtins(msgspec.convert(value, struct)))
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadInputError(str(error)) from error


def _with_known_annotations(value: object) -> object:
    """Return a value whose annotations, also those of templates, are only those that rules read.

    A device driver's own parameters are left out too.
    """
    if isinstance(value, list):
        return [_with_known_annotations(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    kept: JsonObject = {}
    for name, inner in cast("JsonObject", value).items():
        if name == "annotations" and isinstance(inner, dict):
            annotations = cast("dict[str, object]", inner)
            kept[name] = {key: annotations[key] for key in annotations if _is_read(key)}
        elif name == "opaque" and isinstance(inner, dict):
            kept[name] = {**cast("JsonObject", inner), "parameters": {}}
        else:
            kept[name] = _with_known_annotations(inner)
    return kept


def _is_read(annotation: str) -> bool:
    if annotation in READ_ANNOTATIONS:
        return True
    domain, separator, name = annotation.partition("/")
    is_known = "karpenter" in domain or domain in _ANNOTATION_DOMAINS
    return bool(separator) and is_known and _SECRET.search(name) is None


def _without_secrets(value: object) -> object:
    if isinstance(value, list):
        return [_without_secrets(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    return {
        name: _without_secrets(inner)
        for name, inner in cast("JsonObject", value).items()
        if _SECRET.search(name) is None
    }
