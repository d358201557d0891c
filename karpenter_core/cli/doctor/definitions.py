"""Compares a cluster's CRDs with the models, for `karpenter doctor`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.crd import core_models, crd_name, render_crd
from karpenter_core.api.nodeoverlay import NodeOverlay
from karpenter_core.cli.doctor.findings import error_finding, ok_finding
from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
)
from karpenter_core.kube.wire.kind_groups import KindGroup
from karpenter_core.provider.contract import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Collection

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.kube.api import ClusterApis

__all__ = ["check_definitions"]

APPLY: Final = "karpenter crds --provider {} | kubectl apply --server-side -f -"
_FORBIDDEN: Final = 403


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
            findings.append(
                error_finding(f"the CustomResourceDefinition {name} is not installed", remedy)
            )
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
    return findings or [
        ok_finding(f"{len(models)} CustomResourceDefinitions are those of this version")
    ]


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
        return [error_finding(f"the CustomResourceDefinition {name} is not established", remedy)]
    served = {v["name"]: v for v in stored["spec"]["versions"] if v.get("served")}
    older = [] if is_shared else _older_stored_versions(name, stored, rendered, served)
    for version in rendered["spec"]["versions"]:
        served_version = served.get(version["name"])
        if served_version is None:
            versions = ", ".join(sorted(served))
            missing = f"{name} serves {versions}, not {version['name']}"
            return [*older, error_finding(missing, remedy)]
        same = _structure if is_shared else _unchanged
        if same(served_version.get("schema")) != same(version["schema"]):
            return [
                *older,
                Finding(
                    severity=Severity.WARNING,
                    message=f"the schema of {name} {version['name']} is not that of this version",
                    remedy=remedy,
                ),
            ]
    return older


def _older_stored_versions(
    name: str, stored: JsonObject, rendered: JsonObject, served: Collection[str]
) -> list[Finding]:
    """Return a finding if objects are stored in a version without which the API server keeps no CRD."""
    versions = [version["name"] for version in rendered["spec"]["versions"]]
    older = [
        version for version in stored["status"].get("storedVersions", ()) if version not in versions
    ]
    if not older:
        return []
    message = (
        f"{name} has objects that are stored as {', '.join(older)} (status.storedVersions): the API server "
        "refuses the definition of this version, which has no such version"
    )
    if versions[0] not in served:
        remedy = (
            "upgrade Karpenter to 1.0 first: its definitions and webhooks convert these objects"
        )
        return [error_finding(message, remedy)]
    plural = name.partition(".")[0]
    status = json.dumps({"status": {"storedVersions": [versions[0]]}})
    remedy = (
        f"while the other controller runs: kubectl get {plural} -o json | kubectl replace -f -, then "
        f"kubectl patch crd {name} --subresource status --type merge -p '{status}'"
    )
    return [Finding(severity=Severity.WARNING, message=message, remedy=remedy)]


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
