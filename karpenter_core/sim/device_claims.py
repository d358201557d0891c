"""Reads the nodes on which the devices of a pod's ResourceClaims are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.kube.resources import RESOURCE_CLAIMS
from karpenter_core.sim.fields import Json, entries, section

if TYPE_CHECKING:
    from karpenter_core.sim.registry import Registry

__all__ = ["device_nodes"]

_NOT_ALLOCATED = "cannot allocate all claims"


def device_nodes(registry: Registry, pod: Json) -> tuple[str, ...] | str | None:
    """Return the nodes that allocations name; a reason while one is missing, None without claims."""
    wanted = entries(pod["spec"], "resourceClaims")
    if not wanted:
        return None
    generated = {
        one["name"]: one.get("resourceClaimName")
        for one in entries(section(pod, "status"), "resourceClaimStatuses")
    }
    names: list[set[str]] = []
    for one in wanted:
        claim_name = one.get("resourceClaimName") or generated.get(one["name"], "")
        if claim_name is None:
            continue
        claim = registry.find(RESOURCE_CLAIMS, claim_name, pod["metadata"]["namespace"])
        allocation = section(section(claim or {}, "status"), "allocation")
        if not allocation:
            return _NOT_ALLOCATED
        names.append(
            {
                value
                for term in entries(section(allocation, "nodeSelector"), "nodeSelectorTerms")
                for field in entries(term, "matchFields")
                for value in field.get("values", ())
            }
        )
    return tuple(sorted(set[str].intersection(*names))) if names else None
