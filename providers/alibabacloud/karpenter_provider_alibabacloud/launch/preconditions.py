"""Checks whether a NodeClass allows launches at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_core.provider.kit.node_class.readiness import not_ready_error
from karpenter_provider_alibabacloud.instance_tags import restricted_tags
from karpenter_provider_alibabacloud.labels import MAX_USER_TAGS

if TYPE_CHECKING:
    from karpenter_core.errors import CloudProviderError
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass

__all__ = ["unmet_precondition"]


def unmet_precondition(node_class: ECSNodeClass) -> CloudProviderError | None:
    """Return why nothing is launched from a NodeClass; None when it can be."""
    unready = not_ready_error(node_class)
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
            f"{name}: spec.tags has {len(tags)} keys, and {MAX_USER_TAGS} at most fit beside "
            "those that Karpenter sets"
        )
    return None
