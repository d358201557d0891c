"""Checks for `karpenter doctor` that ProvisioningRequests can be served.

Requests that can be served and are not are findings too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.provisioning_request import SUPPORTED_CLASSES
from karpenter_core.cli.cluster_listing import read_manifests
from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.wire.codecs import PROVISIONING_REQUESTS
from karpenter_core.provider.contract import Finding, Severity

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.kube.api import ClusterApis

__all__ = ["check_requests"]

OPTION: Final = "--provisioning-requests"
_FORBIDDEN: Final = 403
_TERMINAL: Final = frozenset({"Failed", "CapacityRevoked", "BookingExpired", "Provisioned"})
_REPEATED: Final = 3
"""Attempts after which a request that found no capacity is reported."""


async def check_requests(apis: ClusterApis, *, are_served: bool) -> list[Finding]:
    """Check the kind and its objects; `are_served` is the setting.

    Raises:
        ApiError: the API server cannot be reached.
    """
    try:
        requests = await read_manifests(apis, PROVISIONING_REQUESTS)
    except NotFoundError:
        return [_missing_kind()] if are_served else []
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        return []  # said of permissions, if the kind is served
    ours = [item for item in requests if item["spec"]["provisioningClassName"] in SUPPORTED_CLASSES]
    if not are_served:
        return _unserved(ours)
    return [finding for item in ours if (finding := _stuck(item)) is not None] or [
        Finding(severity=Severity.OK, message=f"{len(ours)} ProvisioningRequests are served")
    ]


def _missing_kind() -> Finding:
    name = f"{PROVISIONING_REQUESTS.plural}.{PROVISIONING_REQUESTS.group}"
    return Finding(
        severity=Severity.ERROR,
        message=f"{OPTION} is set, and the CustomResourceDefinition {name} is not installed",
        remedy="install that of Cluster Autoscaler (cluster-autoscaler/apis/config/crd), or remove "
        "the option",
    )


def _unserved(requests: list[JsonObject]) -> list[Finding]:
    waiting = [item for item in requests if not _true_conditions(item) & _TERMINAL]
    if not waiting:
        return []
    return [
        Finding(
            severity=Severity.WARNING,
            message=f"{len(waiting)} ProvisioningRequest(s) wait, and {OPTION} is not set",
            remedy=f"set {OPTION}; ignore this if Cluster Autoscaler serves them",
        )
    ]


def _stuck(request: JsonObject) -> Finding | None:
    """Return a finding about a request that waits for its templates, or fails again and again."""
    metadata: JsonObject = request["metadata"]
    what = f'ProvisioningRequest "{metadata["namespace"]}/{metadata["name"]}"'
    conditions: list[JsonObject] = request.get("status", {}).get("conditions", [])
    details: JsonObject = request.get("status", {}).get("provisioningClassDetails") or {}
    false = {item["type"]: item for item in conditions if item["status"] == "False"}
    if "Accepted" in false:
        message = false["Accepted"].get("message", "")
        remedy = "create the PodTemplates in the namespace of the request"
    elif "Provisioned" in false and int(details.get("karpenter.sh/attempts", "0")) >= _REPEATED:
        message = false["Provisioned"].get("message", "")
        remedy = "raise the limits of the NodePools, or ask for less"
    else:
        return None
    if _true_conditions(request) & _TERMINAL:
        return None
    return Finding(severity=Severity.WARNING, message=f"{what}: {message}", remedy=remedy)


def _true_conditions(request: JsonObject) -> set[str]:
    conditions: list[JsonObject] = request.get("status", {}).get("conditions", [])
    return {item["type"] for item in conditions if item["status"] == "True"}
