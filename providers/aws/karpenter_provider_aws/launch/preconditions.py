"""Whether a NodeClass can be launched from at all. A pure function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_core.provider.kit.readiness import unreadiness
from karpenter_provider_aws.instance_tags import restricted_tags

if TYPE_CHECKING:
    from karpenter_core.errors import CloudProviderError
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass

__all__ = ["refusal"]


def refusal(node_class: EC2NodeClass) -> CloudProviderError | None:
    """Return why nothing is launched from a NodeClass; None when it can be."""
    unready = unreadiness(node_class)
    if unready is not None:
        return unready
    restricted = restricted_tags(node_class.spec.tags)
    if restricted:
        return NodeClassNotReadyError(
            f'EC2NodeClass "{node_class.name}": spec.tags has the key "{restricted[0]}", which '
            "Karpenter sets"
        )
    return None
