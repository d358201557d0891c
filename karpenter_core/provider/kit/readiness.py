"""Checks whether a NodeClass is ready to launch from, alike for every cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.conditions import FALSE, READY, TRUE, find_condition
from karpenter_core.errors import LaunchFailedError, NodeClassNotReadyError

if TYPE_CHECKING:
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.errors import CloudProviderError

__all__ = ["not_ready_error"]


def not_ready_error(node_class: NodeClass) -> CloudProviderError | None:
    """Return why nothing is launched from a NodeClass; None when it is ready as it is now.

    One that is being deleted is "not ready" here: the claim goes and its pods are placed anew, as
    for a lack of capacity, but no offering is taken for sold out. One that has changed since it was
    ready is looked at again before anything is launched by what was found for another spec.
    """
    name = f'{node_class.resource.kind} "{node_class.name}"'
    if node_class.is_deleting:
        return NodeClassNotReadyError(f"{name} is being deleted")
    ready = find_condition(node_class.status.conditions, READY)
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
    return None
