"""Checks whether a NodeClass allows launches at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_core.provider.kit.node_class.readiness import not_ready_error
from karpenter_provider_aws.instance_tags import restricted_tags

if TYPE_CHECKING:
    from karpenter_core.errors import CloudProviderError
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass

__all__ = ["unmet_precondition"]


def unmet_precondition(node_class: EC2NodeClass) -> CloudProviderError | None:
    """Return why nothing is launched from a NodeClass; None when it can be."""
    unready = not_ready_error(node_class)
    if unready is not None:
        return unready
    restricted = restricted_tags(node_class.spec.tags)
    if restricted:
        return NodeClassNotReadyError(
            f'EC2NodeClass "{node_class.name}": spec.tags has the key "{restricted[0]}", which '
            "Karpenter sets"
        )
    return None
