"""Checks whether a NodeClass permits launches, alike for every cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.conditions import FALSE, READY, TRUE, find_condition
from karpenter_core.errors import LaunchFailedError, NodeClassNotReadyError

if TYPE_CHECKING:
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.errors import CloudProviderError

__all__ = ["not_ready_error"]


def not_ready_error(node_class: NodeClass) -> CloudProviderError | None:
    """Return the error if nothing may be launched from a NodeClass; None if it is ready.

    A NodeClass that is being deleted is "not ready": the claim is deleted and its pods are
    scheduled again, as for a lack of capacity, but no offering becomes unavailable. A NodeClass
    that has changed since it was resolved is resolved again before it is used.
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
