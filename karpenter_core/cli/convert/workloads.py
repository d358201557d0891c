"""Converts outdated annotations and labels of workloads.

They are those of older versions of Karpenter, and of Cluster Autoscaler. Only the fields that
change are touched. Deployments of pause pods, which keep room for others by their low priority,
become CapacityBuffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.labels import SAFE_TO_EVICT, SCALE_DOWN_DISABLED
from karpenter_core.cli.convert.node_pools import LABELS
from karpenter_core.cli.convert.yaml_manifest import value_at
from karpenter_core.provider.contract.conversion import Conversion
from karpenter_core.provider.kit.cluster_autoscaler import autoscaler_container
from karpenter_core.provider.kit.json_values import as_object, as_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.provider.contract.conversion import ManifestDraft

__all__ = ["WORKLOAD_CONVERSIONS"]

_TEMPLATES: Final = {
    "Pod": "",
    "PodTemplate": "template",
    "CronJob": "spec.jobTemplate.spec.template",
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "ReplicationController"),
        "spec.template",
    ),
}
"""Paths of pod templates."""

_DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
_RENAMED: Final = {
    "karpenter.sh/do-not-evict": _DO_NOT_DISRUPT,
    "karpenter.sh/do-not-consolidate": _DO_NOT_DISRUPT,
}
_CAPACITY_TYPES: Final = {"ON_DEMAND": "on-demand", "SPOT": "spot", "normal": "on-demand"}
_LABELS: Final = {**LABELS, "eks.amazonaws.com/capacityType": "karpenter.sh/capacity-type"}
_GROUP_LABELS: Final = frozenset(
    {
        *("agentpool", "kubernetes.azure.com/agentpool"),
        "alibabacloud.com/nodepool-id",
        *("alpha.eksctl.io/nodegroup-name", "eks.amazonaws.com/nodegroup"),
        "eks.amazonaws.com/nodegroup-image",
    }
)
"""Labels that only nodes of node groups have."""
_PAUSE_IMAGES: Final = ("/pause", "/pause-amd64", "/pause-arm64")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_BUFFER_VERSION: Final = "autoscaling.x-k8s.io/v1beta1"


def _convert_workload(draft: ManifestDraft) -> None:
    for path, value, reason in _changes(draft.source):
        draft.move(path, path, value=value, reason=reason)
    for key in draft.source:
        draft.keep(key)
    for label in sorted(_group_labels(draft.source)):
        draft.warn(
            f"its pods need nodes with the label {label}, which only nodes of a node group have: use "
            "karpenter.sh/nodepool or a label of your own in spec.template.metadata.labels of the NodePool"
        )


def _group_labels(document: Mapping[str, object]) -> set[str]:
    """Return the labels of node groups that the pods of a workload need."""
    template = _TEMPLATES.get(str(document.get("kind")))
    if template is None:
        return set()
    spec = _object(document, f"{template}.spec" if template else "spec")
    keys = set(map(str, as_object(spec.get("nodeSelector"))))
    required = value_at(spec, ("affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms"))
    for term in as_objects(required):
        keys |= {
            str(each.get("key"))
            for each in as_objects(term.get("matchExpressions"))
            if each.get("operator") not in {"NotIn", "DoesNotExist"}
        }
    return keys & _GROUP_LABELS


def _changes(document: Mapping[str, object]) -> list[tuple[str, object, str]]:
    """Return paths, new values and reasons of the fields that change."""
    template = _TEMPLATES.get(str(document.get("kind")))
    if template is None:
        return []
    prefix = f"{template}." if template else ""
    changes: list[tuple[str, object, str]] = []
    for path in dict.fromkeys(("metadata.annotations", f"{prefix}metadata.annotations")):
        annotations = _object(document, path)
        renamed = _renamed_annotations(annotations)
        if renamed != annotations:
            changes.append((path, renamed, "annotations of today"))
    for path in (f"{prefix}spec.nodeSelector", f"{prefix}spec.affinity"):
        value = _object(document, path)
        renamed = _renamed_labels(value)
        if renamed != value:
            changes.append((path, renamed, "labels have other names today"))
    spread = _value(document, f"{prefix}spec.topologySpreadConstraints")
    renamed = _renamed_labels(spread)
    if renamed != spread:
        path = f"{prefix}spec.topologySpreadConstraints"
        changes.append((path, renamed, "labels have other names today"))
    return changes


def _renamed_annotations(annotations: Mapping[str, object]) -> dict[str, object]:
    renamed = {_RENAMED.get(key, key): value for key, value in annotations.items()}
    if annotations.get(SAFE_TO_EVICT) == "false" or annotations.get(SCALE_DOWN_DISABLED) == "true":
        renamed.setdefault(_DO_NOT_DISRUPT, "true")
    return renamed


def _renamed_labels(value: object) -> object:
    """Return selectors, affinities and spread constraints with today's names of labels."""
    if isinstance(value, list):
        return [_renamed_labels(each) for each in cast("list[object]", value)]
    if not isinstance(value, Mapping):
        return value
    fields = cast("Mapping[str, object]", value)
    key = str(fields.get("key"))
    renamed: dict[str, object] = {}
    for name, inner in fields.items():
        if name in {"key", "topologyKey"}:
            renamed[name] = _LABELS.get(str(inner), inner)
        elif name == "values" and key in _LABELS:
            words = cast("list[object]", inner) if isinstance(inner, list) else []
            renamed[name] = [_CAPACITY_TYPES.get(str(word), word) for word in words]
        elif name == "labelSelector":
            renamed[name] = inner
        elif name in _LABELS and isinstance(inner, str):
            renamed[_LABELS[name]] = _CAPACITY_TYPES.get(inner, inner)
        else:
            renamed[name] = _renamed_labels(inner)
    return renamed


# -- nodes of Cluster Autoscaler, pause pods -------------------------------------------------------


def _convert_pause_pods(draft: ManifestDraft) -> None:
    """Convert a Deployment of pause pods to a PodTemplate and a CapacityBuffer."""
    metadata = _object(draft.source, "metadata")
    name, namespace = str(metadata.get("name")), metadata.get("namespace")
    reason = "a CapacityBuffer keeps room without pods that run"
    draft.move("apiVersion", "apiVersion", value="v1", reason=reason)
    draft.move("kind", "kind", value="PodTemplate", reason=reason)
    draft.leave_out("status", "the API server writes it")
    for field in ("priorityClassName", "priority", "terminationGracePeriodSeconds"):
        draft.leave_out(f"spec.template.spec.{field}", "no pod of a CapacityBuffer runs")
    draft.keep("metadata")
    draft.move("spec.template", "template")
    buffer = draft.new_manifest(api_version=_BUFFER_VERSION, kind="CapacityBuffer", name=name)
    if namespace is not None:
        buffer.add("metadata.namespace", namespace, "it is that of the Deployment")
    buffer.add("spec.podTemplateRef.name", name, reason)
    if draft.get("spec.replicas") is None:
        buffer.add("spec.replicas", 1, "the default of a Deployment")
    draft.move("spec.replicas", "spec.replicas", into=buffer)
    for field in cast("Mapping[str, object]", draft.get("spec")):
        draft.leave_out(f"spec.{field}", "no pod of a CapacityBuffer runs")
    draft.warn(
        f'delete the Deployment "{name}" when the CapacityBuffer is provisioned; if an autoscaler sets '
        "its replicas, let it set those of the CapacityBuffer, or use spec.percentage"
    )


def _is_pause_deployment(document: Mapping[str, object]) -> bool:
    """Tell whether a Deployment has only pause containers, and a priority below zero."""
    spec = _object(document, "spec.template.spec")
    containers = spec.get("containers")
    images = [
        str(cast("Mapping[str, object]", each).get("image", ""))
        for each in (cast("list[object]", containers) if isinstance(containers, list) else ())
        if isinstance(each, Mapping)
    ]
    is_pause = bool(images) and all(
        image.split("@")[0].rsplit(":", 1)[0].endswith(_PAUSE_IMAGES) for image in images
    )
    return document.get("kind") == "Deployment" and is_pause


def _has_low_priority(
    document: Mapping[str, object], others: Sequence[Mapping[str, object]]
) -> bool:
    spec = _object(document, "spec.template.spec")
    priorities = {
        str(_object(each, "metadata").get("name")): each.get("value")
        for each in others
        if each.get("kind") == "PriorityClass"
    }
    priority = spec.get("priority", priorities.get(str(spec.get("priorityClassName"))))
    return isinstance(priority, int) and priority < 0


def _convert_deployment_of_pause(draft: ManifestDraft) -> None:
    if _has_low_priority(draft.source, draft.documents):
        _convert_pause_pods(draft)
        return
    _convert_workload(draft)
    draft.warn(
        "its pods only pause: if they keep room for others by a priority below zero, add the "
        "PriorityClass to the input to get a CapacityBuffer"
    )


# -- values ----------------------------------------------------------------------------------------


def _value(document: Mapping[str, object], path: str) -> object:
    return value_at(document, tuple(path.split(".")))


def _object(document: Mapping[str, object], path: str) -> Mapping[str, object]:
    value = _value(document, path)
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


WORKLOAD_CONVERSIONS: Final = (
    Conversion(
        kind="Deployment of pause pods",
        accepts=_is_pause_deployment,
        convert=_convert_deployment_of_pause,
        successors={},
    ),
    Conversion(
        kind="workload with labels or annotations of older versions",
        accepts=lambda document: (
            not _is_pause_deployment(document)
            and autoscaler_container(document) is None
            and bool(_changes(document) or _group_labels(document))
        ),
        convert=_convert_workload,
        successors={},
    ),
)
