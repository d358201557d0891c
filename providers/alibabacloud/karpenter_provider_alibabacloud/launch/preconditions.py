"""Whether a NodeClass can be launched from at all. A pure function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_core.provider.kit.readiness import unreadiness
from karpenter_provider_alibabacloud.instance_owners import restricted_tags
from karpenter_provider_alibabacloud.labels import MAX_USER_TAGS

if TYPE_CHECKING:
    from karpenter_core.errors import CloudProviderError
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass

__all__ = ["refusal"]


def refusal(node_class: ECSNodeClass) -> CloudProviderError | None:
    """Return why nothing is launched from a NodeClass; None when it can be."""
    unready = unreadiness(node_class)
    if unready is not None:
        return unready
    name, tags = f'ECSNodeClass "{node_class.name}"', node_class.spec.tags
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
