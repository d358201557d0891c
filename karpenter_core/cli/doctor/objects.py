"""Checks NodePools, NodeClasses and NodeOverlays for `karpenter doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import NODES as NODES_LIMIT
from karpenter_core.api.quantities import parse_amount
from karpenter_core.cli.cluster_listing import read_manifests
from karpenter_core.cli.doctor.findings import error_finding, ok_finding
from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.resources import (
    ResourceKind,
    custom_kind,
)
from karpenter_core.kube.wire.codecs import (
    NODE_OVERLAYS,
    NODE_POOLS,
)
from karpenter_core.kube.wire.kind_groups import KindGroup
from karpenter_core.lifecycle.nodepool.exchange_rates import PRICES_COMPARABLE
from karpenter_core.lifecycle.nodepool.instance_types_listed import INSTANCE_TYPES_LISTED
from karpenter_core.lifecycle.nodepool.static_capacity import REPLICAS_HELD_BACK
from karpenter_core.provider.contract import Finding, Severity
from karpenter_core.provider.kit.json_values import as_object

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.kube.api import ClusterApis

__all__ = ["check_objects", "object_findings"]

_FORBIDDEN: Final = 403


async def check_objects(
    apis: ClusterApis,
    node_classes: Sequence[type[NodeClass]],
    *,
    static_capacity: bool = False,
    groups: Collection[KindGroup] = (),
) -> list[Finding]:
    """Check whether existing NodePools and NodeClasses can be used, and NodeOverlays if among `groups`.

    `static_capacity` is the feature gate `StaticCapacity`.

    Raises:
        ApiError: the API server cannot be reached.
    """
    kinds = [NODE_POOLS, *(custom_kind(model.resource) for model in node_classes)]
    kinds += [NODE_OVERLAYS] if KindGroup.OVERLAYS in groups else []
    found: dict[ResourceKind, list[JsonObject]] = {}
    for kind in kinds:
        try:
            found[kind] = await read_manifests(apis, kind)
        except NotFoundError:  # its definition is not installed: said elsewhere
            continue
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            continue  # said elsewhere too
    return object_findings(found, node_classes, static_capacity=static_capacity)


def object_findings(
    found: Mapping[ResourceKind, Sequence[JsonObject]],
    node_classes: Iterable[type[NodeClass]],
    *,
    static_capacity: bool,
) -> list[Finding]:
    """Return the findings of NodePools, NodeClasses and NodeOverlays, or one that there are none."""
    served = {(model.resource.group, model.resource.kind) for model in node_classes}
    findings: list[Finding] = []
    for kind, items in found.items():
        for item in items:
            findings += _readiness_findings(kind, item)
            if kind == NODE_POOLS:
                findings += [
                    *_unserved_findings(item, served),
                    *_replicas_findings(item, static_capacity=static_capacity),
                ]
    count = sum(map(len, found.values()))
    if not count:
        return [ok_finding("no NodePool or NodeClass has a status to check")]
    return findings or [ok_finding(f"{count} NodePools and NodeClasses, all of them ready")]


def _readiness_findings(kind: ResourceKind, item: JsonObject) -> list[Finding]:
    """Return a finding if the condition Ready is not True."""
    what = f'{kind.kind} "{item["metadata"]["name"]}"'
    status: JsonObject = item.get("status", {})
    conditions: list[JsonObject] = status.get("conditions") or []
    ready = next((c for c in conditions if c["type"] == "Ready"), None)
    if ready is None or ready["status"] == "Unknown":
        message = f"{what} has not been reconciled yet"
        remedy = "check that the controller runs, and that it has loaded the provider"
        return [Finding(severity=Severity.WARNING, message=message, remedy=remedy)]
    if ready["status"] == "True":
        return _other_condition_findings(what, conditions)
    causes = [c for c in conditions if c["status"] == "False" and c["type"] != "Ready"] or [ready]
    return [
        error_finding(
            f"{what} is not ready: {cause['type']}: {cause.get('message') or cause.get('reason')}",
            "correct the cause in the message; until then "
            + ("it changes nothing" if kind is NODE_OVERLAYS else "no node is launched from it"),
        )
        for cause in causes
    ]


def _other_condition_findings(what: str, conditions: Sequence[JsonObject]) -> list[Finding]:
    """Return findings about other conditions of an object that is ready."""
    messages = {
        c["type"]: c.get("message") or c.get("reason", "")
        for c in conditions
        if c["status"] == "False"
    }
    findings: list[Finding] = []
    if INSTANCE_TYPES_LISTED in messages:
        problem = messages[INSTANCE_TYPES_LISTED]
        findings.append(
            error_finding(
                f"{what}: its instance types cannot be listed: {problem}",
                "correct the cause in the message, or report it to the author of the plug-in; "
                "until then no node of the NodePool is planned",
            )
        )
    if PRICES_COMPARABLE in messages:
        findings.append(
            Finding(
                severity=Severity.WARNING,
                message=f"{what}: {messages[PRICES_COMPARABLE]}",
                remedy="set --exchange-rates, or --currency to the currency of the cloud; until then "
                "nodes are not consolidated to save money",
            )
        )
    return findings


def _unserved_findings(pool: JsonObject, served: set[tuple[str, str]]) -> list[Finding]:
    """Return a finding if no loaded provider serves a NodePool's NodeClass."""
    ref = as_object(
        as_object(as_object(pool["spec"].get("template")).get("spec")).get("nodeClassRef")
    )
    name = pool["metadata"]["name"]
    missing = [field for field in ("group", "kind") if not ref.get(field)]
    if missing:
        fields = ", ".join(f"spec.template.spec.nodeClassRef.{field}" for field in missing)
        return [
            error_finding(
                f'NodePool "{name}" has no {fields}: it was stored before karpenter.sh/v1, and is ignored',
                "apply the manifest again, in karpenter.sh/v1; `karpenter convert` converts older ones",
            )
        ]
    if (ref["group"], ref["kind"]) in served:
        return []
    return [
        Finding(
            severity=Severity.WARNING,
            message=f'NodePool "{name}" refers to a {ref["kind"]}.{ref["group"]}, '
            "which no loaded provider serves",
            remedy="install its provider, or check --providers; ignore this if another controller serves it",
        )
    ]


def _replicas_findings(pool: JsonObject, *, static_capacity: bool) -> list[Finding]:
    """Return findings about the replicas of a static NodePool."""
    replicas = pool["spec"].get("replicas")
    if replicas is None:
        return []
    name = pool["metadata"]["name"]
    if not static_capacity:
        return [
            Finding(
                severity=Severity.WARNING,
                message=f'NodePool "{name}" is static: spec.replicas is ignored, no node is '
                "launched for it, and its NodeClaims are not changed",
                remedy="set --feature-gates=StaticCapacity=true, or use a NodePool without "
                "spec.replicas",
            )
        ]
    conditions: list[JsonObject] = pool.get("status", {}).get("conditions", [])
    findings = [
        Finding(
            severity=Severity.WARNING,
            message=f'NodePool "{name}": {condition["message"]}',
            remedy="raise limits.nodes, or allow more instance types",
        )
        for condition in conditions
        if condition["type"] == REPLICAS_HELD_BACK and condition["status"] == "True"
    ]
    limit = pool["spec"].get("limits", {}).get("nodes")
    if replicas and limit is not None and parse_amount(NODES_LIMIT, limit) == replicas:
        findings.append(
            Finding(
                severity=Severity.WARNING,
                message=f'NodePool "{name}": limits.nodes equals spec.replicas ({replicas}), so '
                "drifted nodes are never replaced: a replacement comes first",
                remedy="raise limits.nodes by the number of nodes that may be replaced at a time",
            )
        )
    return findings
