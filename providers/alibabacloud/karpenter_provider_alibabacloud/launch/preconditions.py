"""Whether a NodeClass can be launched from at all. A pure function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.conditions import FALSE, READY, TRUE, find
from karpenter_core.errors import CloudProviderError, LaunchFailedError, NodeClassNotReadyError
from karpenter_provider_alibabacloud.labels import MAX_USER_TAGS
from karpenter_provider_alibabacloud.launch.owners import restricted_tags

if TYPE_CHECKING:
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass

__all__ = ["refusal"]


def refusal(node_class: ECSNodeClass) -> CloudProviderError | None:
    """Return why nothing is launched from a NodeClass; None when it can be.

    One that is being deleted is "not ready" here: the claim goes and its pods are placed anew, as
    for a lack of capacity, but no offering is taken for sold out.
    """
    name = f'ECSNodeClass "{node_class.name}"'
    if node_class.is_deleting:
        return NodeClassNotReadyError(f"{name} is being deleted")
    ready = find(node_class.status.conditions, READY)
    if ready is not None and ready.status == FALSE:
        said = ": ".join(text for text in (ready.reason, ready.message) if text)
        return NodeClassNotReadyError(f"{name} is not ready: {said}")
    if ready is None or ready.status != TRUE:
        return LaunchFailedError(
            f"whether {name} is ready is not known yet", reason="NodeClassReadinessUnknown"
        )
    seen, current = ready.observed_generation, node_class.metadata.generation
    if seen is not None and current and seen != current:
        return NodeClassNotReadyError(
            f"{name} has changed (generation {current}) since it was ready (generation {seen})"
        )
    tags = node_class.spec.tags
    restricted = restricted_tags(tags)
    if restricted:
        return NodeClassNotReadyError(
            f'{name}: spec.tags has the key "{restricted[0]}", which Karpenter sets'
        )
    if len(tags) > MAX_USER_TAGS:
        return NodeClassNotReadyError(
            f"{name}: spec.tags has {len(tags)} keys, and {MAX_USER_TAGS} at most have room beside "
            "those that Karpenter sets"
        )
    return None
