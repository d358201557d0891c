"""Checks the CRDs and permissions in a cluster for `karpenter doctor`.

Changes nothing. Each permission is checked by a SelfSubjectAccessReview, which every authenticated
user may create, so the result is that of the cluster's own authorizers.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.crd import core_models, crd_name, render_crd
from karpenter_core.api.labels import NODES as NODES_LIMIT
from karpenter_core.api.nodeoverlay import NodeOverlay
from karpenter_core.api.quantities import parse_amount
from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    SERVICES,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    ResourceKind,
    custom_kind,
)
from karpenter_core.kube.wire.codecs import (
    CAPACITY_BUFFERS,
    CAPACITY_QUOTAS,
    NODE_CLAIMS,
    NODE_OVERLAYS,
    NODE_POOLS,
    PROVISIONING_REQUESTS,
)
from karpenter_core.kube.wire.kind_groups import KindGroup
from karpenter_core.lifecycle.nodepool.exchange_rates import PRICES_COMPARABLE
from karpenter_core.lifecycle.nodepool.instance_types_listed import INSTANCE_TYPES_LISTED
from karpenter_core.lifecycle.nodepool.static_capacity import REPLICAS_HELD_BACK
from karpenter_core.operator.declared_reads import kind_of
from karpenter_core.provider.contract import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.provider.contract import ObjectRead

__all__ = [
    "FACT_PERMISSIONS",
    "Permission",
    "check_definitions",
    "check_fact_permissions",
    "check_objects",
    "check_permissions",
    "is_permitted",
    "needed_permissions",
    "object_findings",
]

APPLY: Final = "karpenter crds --provider {} | kubectl apply --server-side -f -"
_ACCESS_REVIEWS: Final = ResourceKind(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
_READ: Final = ("list", "watch")
_AT_ONCE: Final = 8
_FORBIDDEN: Final = 403


class Permission(NamedTuple):
    """One operation of `karpenter run` on a kind."""

    verb: str
    kind: ResourceKind
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    """Name of the only object that it applies to; empty for all objects."""

    @property
    def what(self) -> str:
        """Return the resource in the form of `kubectl auth can-i`."""
        name = self.kind.plural + (f".{self.kind.group}" if self.kind.group else "")
        name += f"/{self.name}" if self.name else ""
        where = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"{name}{'/' if self.subresource else ''}{self.subresource}{where}"


FACT_PERMISSIONS: Final = (
    Permission("get", SERVICES, namespace="kube-system", name="kube-dns"),
    Permission(
        "get",
        ResourceKind("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", namespaced=False),
        name="kubernetes",
    ),
)
"""Requests of `karpenter run` for facts about the cluster's network, which instances need."""


def needed_permissions(
    kinds: Iterable[ResourceKind],
    node_classes: Iterable[type[NodeClass]],
    *,
    lease_namespace: str | None,
    lease_name: str = "",
    reads: Iterable[ObjectRead] = (),
    creates_nodes: bool = False,
    observe: bool = False,
    metrics_token_auth: bool = False,
    surge_moves: bool = False,
) -> tuple[Permission, ...]:
    """Return the permissions that `karpenter run` needs; `kinds` are those it watches.

    `reads` are those that providers declare, and `creates_nodes` says whether one of them creates Nodes.
    Without a `lease_namespace` there is no leader election, and with a `lease_name` no other Lease may
    be read or changed. With `observe` (the setting of this name) they permit to read only.
    `metrics_token_auth` and `surge_moves` are the settings of these names.
    """
    kinds = tuple(kinds)
    needed = [Permission(verb, kind) for kind in kinds for verb in _READ]
    if not observe:
        needed += _writes(kinds, node_classes, creates_nodes=creates_nodes)
        if PROVISIONING_REQUESTS in kinds:
            needed.append(Permission("patch", PROVISIONING_REQUESTS, "status"))
        if NODE_OVERLAYS in kinds:
            needed.append(Permission("patch", NODE_OVERLAYS, "status"))
        if lease_namespace is not None:
            needed.append(Permission("create", LEASES, namespace=lease_namespace))
            needed += [
                Permission(verb, LEASES, namespace=lease_namespace, name=lease_name)
                for verb in ("get", "patch")
            ]
        if surge_moves:
            needed += [Permission(verb, DEPLOYMENTS) for verb in ("get", "patch")]
    needed += [
        Permission("get" if it.name else "list", kind_of(it), namespace=it.namespace, name=it.name)
        for it in reads
    ]
    if metrics_token_auth:
        needed += [
            Permission("create", TOKEN_REVIEWS),
            Permission("create", SUBJECT_ACCESS_REVIEWS),
        ]
    return tuple(dict.fromkeys(needed))


def _writes(
    kinds: Iterable[ResourceKind], node_classes: Iterable[type[NodeClass]], *, creates_nodes: bool
) -> list[Permission]:
    needed = [Permission(verb, NODE_CLAIMS) for verb in ("create", "patch", "delete")]
    needed += [Permission("patch", NODE_CLAIMS, "status"), Permission("patch", NODE_POOLS)]
    needed += [Permission("patch", NODE_POOLS, "status")]
    if CAPACITY_QUOTAS in kinds:
        needed.append(Permission("patch", CAPACITY_QUOTAS, "status"))
    if CAPACITY_BUFFERS in kinds:
        needed += [Permission("patch", CAPACITY_BUFFERS)]
        needed += [Permission("patch", CAPACITY_BUFFERS, "status")]
    for model in node_classes:
        kind = custom_kind(model.resource)
        needed += [Permission("patch", kind), Permission("patch", kind, "status")]
    needed += [Permission("patch", NODES), Permission("delete", NODES)]
    if creates_nodes:
        needed += [Permission("create", NODES), Permission("patch", NODES, "status")]
    needed += [Permission("delete", PODS), Permission("create", PODS, "eviction")]
    needed += [Permission("patch", PODS, "status")]
    needed += [Permission("create", EVENTS), Permission("patch", EVENTS)]
    return needed


async def check_permissions(apis: ClusterApis, needed: Sequence[Permission]) -> list[Finding]:
    """Check whether each of these operations is permitted.

    Raises:
        ApiError: the API server cannot be reached.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(permission: Permission) -> bool:
        async with slots:
            return await is_permitted(apis, permission)

    try:
        allowed = await asyncio.gather(*(one(permission) for permission in needed))
    except NotFoundError:
        return [
            Finding(
                severity=Severity.WARNING,
                message="the cluster does not serve reviews of permissions",
                remedy="check that the API group authorization.k8s.io is served",
            )
        ]
    refused: dict[str, list[str]] = {}
    for permission, is_allowed in zip(needed, allowed, strict=True):
        if not is_allowed:
            refused.setdefault(permission.what, []).append(permission.verb)
    if not refused:
        return [_ok(f"all {len(needed)} required permissions are granted")]
    return [
        _error(
            f"not permitted: {', '.join(verbs)} {what}",
            "grant it to karpenter's service account in its ClusterRole",
        )
        for what, verbs in refused.items()
    ]


async def check_fact_permissions(apis: ClusterApis) -> list[Finding]:
    """Check the permissions for facts about the network, which some providers need.

    Raises:
        ApiError: the API server cannot be reached.
    """
    try:
        refused = [one for one in FACT_PERMISSIONS if not await is_permitted(apis, one)]
    except NotFoundError:  # said of the other permissions
        return []
    return [
        Finding(
            severity=Severity.WARNING,
            message=f"not permitted: {one.verb} {one.what}",
            remedy="grant it to karpenter's service account: a provider that needs the DNS address "
            "or the IP family of the cluster launches nothing without it",
        )
        for one in refused
    ]


async def is_permitted(apis: ClusterApis, permission: Permission) -> bool:
    """Ask the cluster's authorizers for one permission.

    Raises:
        NotFoundError: the cluster does not serve reviews of permissions.
        ApiError: the API server cannot be reached.
    """
    kind = permission.kind
    attributes = {
        "verb": permission.verb,
        "group": kind.group,
        "resource": kind.plural,
        "subresource": permission.subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    review = {
        "apiVersion": _ACCESS_REVIEWS.api_version,
        "kind": _ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
    }
    # Events go to the cluster of their object, and so to both where there are two.
    apis_asked = {apis.objects, apis.workload} if kind == EVENTS else {apis.api_for(kind)}
    answers = [json.loads(await api.create(_ACCESS_REVIEWS, review)) for api in apis_asked]
    return all(answer["status"]["allowed"] for answer in answers)


async def check_definitions(
    apis: ClusterApis,
    providers: dict[str, tuple[type[NodeClass], ...]],
    *,
    groups: Collection[KindGroup] = (),
) -> list[Finding]:
    """Compare the CustomResourceDefinitions of the core and of these providers with the models.

    CapacityBuffers and NodeOverlays are needed only if `groups`, which are in use, name them.

    Raises:
        ApiError: the API server cannot be reached.
    """
    names = " --provider ".join(sorted(providers)) or "NAME"
    remedy = APPLY.format(names)
    own = [
        model
        for model in core_models()
        if KindGroup.BUFFERS in groups or model is not CapacityBuffer
    ]
    models = [*own, *(model for found in providers.values() for model in found)]
    findings: list[Finding] = []
    for model in models:
        name = crd_name(model.resource)
        try:
            server = apis.api_for_group(model.resource.group)
            body = await server.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        except NotFoundError:
            if model is NodeOverlay and KindGroup.OVERLAYS not in groups:
                continue
            findings.append(_error(f"the CustomResourceDefinition {name} is not installed", remedy))
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            return [
                Finding(
                    severity=Severity.WARNING,
                    message=f"CustomResourceDefinitions cannot be read: {error}",
                    remedy="permit `get customresourcedefinitions`, so that they can be compared",
                )
            ]
        else:
            findings += _definition_findings(name, json.loads(body), render_crd(model), remedy)
    return findings or [_ok(f"{len(models)} CustomResourceDefinitions are those of this version")]


def _definition_findings(
    name: str, stored: JsonObject, rendered: JsonObject, remedy: str
) -> list[Finding]:
    """Return the differences between an installed definition and the model.

    The definition of a kind that other projects install too may have their descriptions.
    """
    is_shared = rendered["spec"]["group"] == CapacityBuffer.resource.group
    conditions = {c["type"]: c for c in stored.get("status", {}).get("conditions", ())}
    established = conditions.get("Established", {}).get("status")
    if established != "True":
        return [_error(f"the CustomResourceDefinition {name} is not established", remedy)]
    served = {v["name"]: v for v in stored["spec"]["versions"] if v.get("served")}
    for version in rendered["spec"]["versions"]:
        served_version = served.get(version["name"])
        if served_version is None:
            versions = ", ".join(sorted(served))
            return [_error(f"{name} serves {versions}, not {version['name']}", remedy)]
        same = _structure if is_shared else _unchanged
        if same(served_version.get("schema")) != same(version["schema"]):
            return [
                Finding(
                    severity=Severity.WARNING,
                    message=f"the schema of {name} {version['name']} is not that of this version",
                    remedy=remedy,
                )
            ]
    return []


def _unchanged(schema: object) -> object:
    return schema


def _structure(schema: object) -> object:
    """Return a schema without its descriptions; a field may be named so."""
    if isinstance(schema, dict):
        fields = cast("dict[str, object]", schema)
        return {
            key: _structure(value)
            for key, value in fields.items()
            if key != "description" or not isinstance(value, str)
        }
    if isinstance(schema, list):
        return [_structure(item) for item in cast("list[object]", schema)]
    return schema


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
            pages = [json.loads(page) async for page in apis.objects.list_pages(kind)]
        except NotFoundError:  # its definition is not installed: said elsewhere
            continue
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            continue  # said elsewhere too
        found[kind] = [item for page in pages for item in page["items"]]
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
    return findings or [_ok(f"{count} NodePools and NodeClasses, all of them ready")]


def _readiness_findings(kind: ResourceKind, item: JsonObject) -> list[Finding]:
    """Return a finding if the condition Ready is not True."""
    what = f'{kind.kind} "{item["metadata"]["name"]}"'
    conditions: list[JsonObject] = item.get("status", {}).get("conditions", [])
    ready = next((c for c in conditions if c["type"] == "Ready"), None)
    if ready is None or ready["status"] == "Unknown":
        message = f"{what} has not been reconciled yet"
        remedy = "check that the controller runs, and that it has loaded the provider"
        return [Finding(severity=Severity.WARNING, message=message, remedy=remedy)]
    if ready["status"] == "True":
        return _other_condition_findings(what, conditions)
    causes = [c for c in conditions if c["status"] == "False" and c["type"] != "Ready"] or [ready]
    return [
        _error(
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
            _error(
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
    ref = pool["spec"]["template"]["spec"]["nodeClassRef"]
    if (ref["group"], ref["kind"]) in served:
        return []
    name = pool["metadata"]["name"]
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


def _error(message: str, remedy: str) -> Finding:
    return Finding(severity=Severity.ERROR, message=message, remedy=remedy)


def _ok(message: str) -> Finding:
    return Finding(severity=Severity.OK, message=message)
