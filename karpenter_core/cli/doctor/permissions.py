"""Checks the permissions in a cluster for `karpenter doctor`.

Changes nothing. Each permission is checked by a SelfSubjectAccessReview, which every authenticated
user may create, so the result is that of the cluster's own authorizers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from karpenter_core.cli.doctor.findings import error_finding, ok_finding
from karpenter_core.errors import NotFoundError
from karpenter_core.kube.resources import (
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
from karpenter_core.operator.declared_reads import kind_of
from karpenter_core.provider.contract import Finding, Severity
from karpenter_core.provider.kit.bounded_gather import gather_bounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.provider.contract import ObjectRead

__all__ = [
    "FACT_PERMISSIONS",
    "Permission",
    "check_fact_permissions",
    "check_permissions",
    "is_permitted",
    "needed_permissions",
]

_ACCESS_REVIEWS: Final = ResourceKind(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
_READ: Final = ("list", "watch")
_AT_ONCE: Final = 8


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

_OWNER_PERMISSIONS: Final = tuple(
    Permission("update", kind, "finalizers") for kind in (NODE_POOLS, NODE_CLAIMS)
)
"""For owner references that block the owner's deletion, as those of NodeClaims and Nodes do.

Only the admission plug-in OwnerReferencesPermissionEnforcement (OpenShift's default) asks for them.
"""


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
    needed += _OWNER_PERMISSIONS
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
    try:
        allowed = await gather_bounded(
            lambda permission: is_permitted(apis, permission), needed, at_once=_AT_ONCE
        )
    except NotFoundError:
        return [
            Finding(
                severity=Severity.WARNING,
                message="the cluster does not serve reviews of permissions",
                remedy="check that the API group authorization.k8s.io is served",
            )
        ]
    refused: dict[str, list[str]] = {}
    findings: list[Finding] = []
    for permission, is_allowed in zip(needed, allowed, strict=True):
        if is_allowed:
            continue
        if permission in _OWNER_PERMISSIONS:
            findings.append(_missing_owner_permission(permission))
        else:
            refused.setdefault(permission.what, []).append(permission.verb)
    findings += [
        error_finding(
            f"not permitted: {', '.join(verbs)} {what}",
            "grant it to karpenter's service account in its ClusterRole",
        )
        for what, verbs in refused.items()
    ]
    return findings or [ok_finding(f"all {len(needed)} required permissions are granted")]


def _missing_owner_permission(permission: Permission) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        message=f"not permitted: {permission.verb} {permission.what}",
        remedy="grant it to karpenter's service account in its ClusterRole: where the API server has the "
        "admission plug-in OwnerReferencesPermissionEnforcement, as in OpenShift, no node is launched without it",
    )


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
