"""Checks a NodeClass without calls: tags and user data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.node_class.findings import NodeClassFinding
from karpenter_core.provider.kit.user_data import user_data_parts
from karpenter_provider_alibabacloud.bootstrap.user_data import LARGEST_BYTES
from karpenter_provider_alibabacloud.instance_tags import restricted_tags
from karpenter_provider_alibabacloud.labels import MAX_USER_TAGS

if TYPE_CHECKING:
    from karpenter_core.provider.kit.node_class.validation import NodeClassCheck
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass

__all__ = ["INVALID_USER_DATA", "STATIC_CHECKS", "tag_finding"]

INVALID_USER_DATA: Final = "InvalidUserData"
INVALID_TAGS: Final = "TagValidationFailed"


def tag_finding(node_class: ECSNodeClass) -> NodeClassFinding | None:
    """Refuse tags by which instances are known as ours, and too many; an old CRD let them in."""
    tags = node_class.spec.tags
    restricted = restricted_tags(tags)
    if restricted:
        message = f"spec.tags: {', '.join(restricted)}: only Karpenter may set them"
        return NodeClassFinding(reason=INVALID_TAGS, message=message)
    if len(tags) > MAX_USER_TAGS:
        message = (
            f"spec.tags: {len(tags)} tags, and {MAX_USER_TAGS} at most fit beside those that "
            "Karpenter sets"
        )
        return NodeClassFinding(reason=INVALID_TAGS, message=message)
    return None


def user_data_finding(node_class: ECSNodeClass) -> NodeClassFinding | None:
    """Refuse a text that cannot be merged with what bootstraps the node, or is too large alone."""
    text = node_class.spec.user_data
    size = len(text.encode())
    if size > LARGEST_BYTES:
        message = f"spec.userData: {size:,} bytes, and ECS takes {LARGEST_BYTES:,} at most"
        return NodeClassFinding(reason=INVALID_USER_DATA, message=message)
    try:
        user_data_parts(text)
    except BadInputError as error:
        return NodeClassFinding(reason=INVALID_USER_DATA, message=str(error))
    return None


STATIC_CHECKS: Final[tuple[NodeClassCheck[ECSNodeClass], ...]] = (tag_finding, user_data_finding)
