"""Checks CapacityQuotas for `karpenter doctor`: unreadable, unsatisfiable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.capacity_quota import CapacityQuota
from karpenter_core.api.quantities import format_amount, parse_amount
from karpenter_core.cli.cluster_listing import read_manifests
from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.wire.codecs import CAPACITY_QUOTAS
from karpenter_core.provider.contract import Finding, Severity
from karpenter_core.state.capacity_quotas import read_quota

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.kube.api import ClusterApis

__all__ = ["check_quotas", "quota_findings"]


async def check_quotas(apis: ClusterApis) -> list[Finding]:
    """Check the CapacityQuotas of a cluster in which they are enforced.

    Raises:
        ApiError: the API server cannot be reached.
    """
    try:
        items = await read_manifests(apis, CAPACITY_QUOTAS)
    except NotFoundError:
        return [
            Finding(
                severity=Severity.WARNING,
                message="--capacity-quotas is set, and the cluster has no CustomResourceDefinition "
                "capacityquotas.autoscaling.x-k8s.io",
                remedy="install the definition of Cluster Autoscaler, or omit the setting",
            )
        ]
    except ApiError as error:
        return [
            Finding(
                severity=Severity.ERROR,
                message=f"capacityquotas cannot be listed: {error}",
                remedy="until they can, no quota is enforced",
            )
        ]
    findings = [finding for item in items for finding in quota_findings(item)]
    message = f"{len(items)} CapacityQuotas, all of them readable"
    return findings or [Finding(severity=Severity.OK, message=message)]


def quota_findings(item: JsonObject) -> list[Finding]:
    """Return what is wrong with one quota."""
    quota = CapacityQuota.model_validate(item)
    reading = read_quota(quota)
    if reading.problems:
        return [
            Finding(
                severity=Severity.ERROR,
                message=reading.refusal,
                remedy="correct the fields; until then no node is launched that the quota may count",
            )
        ]
    usage: JsonObject = quota.status.get("used") or {}
    used: JsonObject = usage.get("resources") or {}
    findings: list[Finding] = []
    for name, limit in reading.limits.items():
        allowed = f"{format_amount(name, limit)} of {name}"
        if limit == 0:
            message = f"{reading.name} allows {allowed}, which no node can satisfy"
        elif parse_amount(name, str(used.get(name, "0"))) > limit:
            message = f"{reading.name} allows {allowed}, and {used[name]} is in use"
        else:
            continue
        findings.append(
            Finding(
                severity=Severity.WARNING,
                message=message,
                remedy=f"raise spec.limits.resources.{name}, or expect no further launch that it counts",
            )
        )
    return findings
