"""Derives the Deployment's name from the names of a pod and its owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import POD_TEMPLATE_HASH

if TYPE_CHECKING:
    from karpenter_core.api.records import PodView

__all__ = ["deployment_name"]


def deployment_name(pod: PodView) -> str:
    """Return the name of the pod's Deployment; empty if no Deployment can have made it.

    A Deployment names a ReplicaSet after itself and the hash of the template, which its pods have as
    a label.
    """
    shape = pod.shape
    suffix = f"-{shape.labels.get(POD_TEMPLATE_HASH, '')}"
    is_of_set = (shape.owner_api_version, shape.owner_kind) == ("apps/v1", "ReplicaSet")
    if not is_of_set or not shape.owner_controls or suffix == "-":
        return ""
    return pod.owner_name.removesuffix(suffix) if pod.owner_name.endswith(suffix) else ""
