"""Writes NodePools for Cluster Autoscaler's node groups (`karpenter convert`).

A cloud reads its own descriptions of groups (Auto Scaling groups, scaling groups, scale sets); the
NodePool that has the meaning of a group is the same for all clouds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast, final

import yaml

from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.cluster_autoscaler import autoscaler_settings
from karpenter_core.provider.kit.json_values import as_object

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from karpenter_core.provider.contract.conversion import ManifestDraft

__all__ = [
    "NodeGroup",
    "capacity_type_requirement",
    "object_name",
    "report_fields",
    "requirement_in",
    "tagged_labels",
    "tagged_taints",
    "write_node_pool",
]

_VERSION: Final = "karpenter.sh/v1"
_LABEL_TAG: Final = "k8s.io/cluster-autoscaler/node-template/label/"
_TAINT_TAG: Final = "k8s.io/cluster-autoscaler/node-template/taint/"
_EXPANDER: Final = "cluster-autoscaler-priority-expander"
_STARTUP_TAINTS: Final = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
)
_LONGEST_NAME: Final = 63
_LARGEST_WEIGHT: Final = 100
_WHOLE: Final = 100


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A group of nodes that Cluster Autoscaler scales."""

    name: str
    class_group: str
    class_kind: str
    class_name: str
    minimum: int = 0
    maximum: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: Sequence[Mapping[str, str]] = ()
    """Objects with key, value and effect."""
    requirements: Sequence[Mapping[str, object]] = ()
    spot_share: str = ""
    """Percentage of spot nodes, such as `70%`, for a group of both; empty for others."""


def object_name(text: str) -> str:
    """Return a name of a cloud as the name of a Kubernetes object."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return name[:_LONGEST_NAME].rstrip("-") or "group"


def tagged_labels(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of nodes that tags of a group tell Cluster Autoscaler."""
    return {
        key.removeprefix(_LABEL_TAG): value
        for key, value in tags.items()
        if key.startswith(_LABEL_TAG)
    }


def tagged_taints(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the taints of nodes that tags of a group tell Cluster Autoscaler (`value:effect`)."""
    return [
        _taint(key.removeprefix(_TAINT_TAG), value)
        for key, value in tags.items()
        if key.startswith(_TAINT_TAG)
    ]


def _taint(key: str, text: str) -> dict[str, str]:
    value, _, effect = text.rpartition(":")
    taint = {"key": key, "effect": effect or "NoSchedule"}
    return {**taint, "value": value} if value else taint


def requirement_in(key: str, values: Sequence[str]) -> dict[str, object]:
    """Return a requirement that permits these values of a label."""
    return {"key": key, "operator": "In", "values": list(values)}


def capacity_type_requirement(spot_percentage: int) -> dict[str, object]:
    """Return the requirement for the part of a group that is spot, 0 to 100."""
    types = {0: ["on-demand"], _WHOLE: ["spot"]}
    return requirement_in(
        "karpenter.sh/capacity-type", types.get(spot_percentage, ["spot", "on-demand"])
    )


def report_fields(
    draft: ManifestDraft,
    group: Mapping[str, object],
    path: str,
    *,
    converted: Container[str],
    part_of: str,
    reasons: Mapping[str, str],
) -> None:
    """Report each field of a group as a part of what was written, or left out with the reason."""
    for field_name in group:
        if field_name in converted:
            draft.use(f"{path}.{field_name}", f"part of {part_of}")
        reason = reasons.get(field_name, "it is state of the group, or has no meaning without one")
        draft.leave_out(f"{path}.{field_name}", reason)


def write_node_pool(draft: ManifestDraft, group: NodeGroup) -> ManifestDraft:
    """Begin the NodePool of a group, and return it.

    Flags of Cluster Autoscaler count if its Deployment is in the same input.

    Raises:
        BadInputError: such a flag, or a priority of the expander, cannot be read.
    """
    settings = autoscaler_settings(draft.documents)
    minimum, maximum = settings.bounds.get(group.name, (group.minimum, group.maximum))
    pool = draft.new_manifest(api_version=_VERSION, kind="NodePool", name=object_name(group.name))
    if group.spot_share:
        pool.add("metadata.annotations", {"karpenter.sh/spot-share": group.spot_share},
                 "the part of spot in the group")  # fmt: skip
    template = "spec.template"
    if group.labels:
        pool.add(f"{template}.metadata.labels", dict(group.labels), "labels of the group's nodes")
    reference = {"group": group.class_group, "kind": group.class_kind, "name": group.class_name}
    pool.add(f"{template}.spec.nodeClassRef", reference, "the template of the group")
    pool.add(f"{template}.spec.requirements", [dict(each) for each in group.requirements],
             "instance types, zones and capacity type of the group")  # fmt: skip
    startup: list[dict[str, str]] = []
    taints: list[dict[str, str]] = []
    for taint in group.taints:
        is_startup = taint["key"].startswith(_STARTUP_TAINTS) or (
            taint["key"] in settings.startup_taints
        )
        (startup if is_startup else taints).append(dict(taint))
    if taints:
        pool.add(f"{template}.spec.taints", taints, "taints of the group's nodes")
    if startup:
        reason = "taints that another component removes"
        pool.add(f"{template}.spec.startupTaints", startup, reason)
    pool.add(f"{template}.spec.expireAfter", "Never", "nodes of a group do not expire")
    pool.add("spec.disruption.consolidationPolicy", "WhenEmptyOrUnderutilized",
             "Cluster Autoscaler removes nodes that are little used")  # fmt: skip
    if settings.scales_down:
        reason = f"Cluster Autoscaler waits {settings.unneeded_time} (--scale-down-unneeded-time)"
        pool.add("spec.disruption.consolidateAfter", settings.unneeded_time, reason)
    else:
        reason = "Cluster Autoscaler removes no nodes (--scale-down-enabled=false)"
        pool.add("spec.disruption.consolidateAfter", "Never", reason)
    if maximum is not None:
        pool.add("spec.limits.nodes", maximum, "maximum of the group")
    weight = _weight(group.name, draft.documents) if settings.uses_priorities else None
    if weight is not None:
        pool.add("spec.weight", weight, f"priority of the group in ConfigMap {_EXPANDER}")
    if minimum > 0:
        draft.warn(
            f'node group "{group.name}" has a minimum of {minimum} nodes, NodePools have none: keep '
            "room by a CapacityBuffer, or use a static NodePool (spec.replicas)"
        )
    return pool


def _weight(name: str, documents: Sequence[Mapping[str, object]]) -> int | None:
    """Return the weight of a group by the priority expander: the highest priority that matches.

    Priorities from 1 to 100 are weights; others are ranked.
    """
    priorities = _priorities(documents)
    matching = [
        priority
        for priority, patterns in priorities.items()
        if any(pattern.search(name) for pattern in patterns)
    ]
    if not matching:
        return None
    if all(1 <= priority <= _LARGEST_WEIGHT for priority in priorities):
        return max(matching)
    return min(sorted(priorities).index(max(matching)) + 1, _LARGEST_WEIGHT)


def _priorities(
    documents: Sequence[Mapping[str, object]],
) -> dict[int, list[re.Pattern[str]]]:
    for document in documents:
        if (
            document.get("kind") == "ConfigMap"
            and as_object(document.get("metadata")).get("name") == _EXPANDER
        ):
            text = as_object(document.get("data")).get("priorities")
            return _read_priorities(text) if isinstance(text, str) else {}
    return {}


def _read_priorities(text: str) -> dict[int, list[re.Pattern[str]]]:
    try:
        read: object = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _priorities_error("data.priorities is not YAML") from error
    if read is None:
        return {}
    if not isinstance(read, Mapping):
        raise _priorities_error("data.priorities is not a mapping from priorities to patterns")
    priorities: dict[int, list[re.Pattern[str]]] = {}
    for priority, patterns in cast("Mapping[object, object]", read).items():
        if not isinstance(priority, int) or not isinstance(patterns, list):
            raise _priorities_error(f'data.priorities: "{priority}" is not a number with a list')
        for pattern in cast("list[object]", patterns):
            try:
                priorities.setdefault(priority, []).append(re.compile(str(pattern)))
            except re.error as error:
                message = f'data.priorities, {priority}: "{pattern}" is no regular expression'
                raise _priorities_error(f"{message}: {error}") from error
    return priorities


def _priorities_error(message: str) -> BadInputError:
    return BadInputError(f'ConfigMap "{_EXPANDER}": {message}')
