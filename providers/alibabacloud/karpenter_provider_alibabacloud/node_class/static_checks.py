"""Checks of a NodeClass that ask nobody: its tags, and its user data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.user_data import user_data_parts
from karpenter_provider_alibabacloud.bootstrap.user_data import LARGEST_BYTES
from karpenter_provider_alibabacloud.instance_owners import restricted_tags
from karpenter_provider_alibabacloud.labels import MAX_USER_TAGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass

__all__ = ["INVALID_USER_DATA", "STATIC_CHECKS", "Check", "Problem", "tag_problem"]

INVALID_USER_DATA: Final = "InvalidUserData"
INVALID_TAGS: Final = "TagValidationFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a NodeClass: reason and message of a condition."""

    reason: str
    message: str


Check: TypeAlias = "Callable[[ECSNodeClass], Problem | None]"
"""Finds what is wrong with a NodeClass, or nothing."""


def tag_problem(node_class: ECSNodeClass) -> Problem | None:
    """Refuse tags by which instances are known as ours, and too many; an old CRD let them in."""
    tags = node_class.spec.tags
    taken = restricted_tags(tags)
    if taken:
        message = f"spec.tags: {', '.join(taken)}: set by Karpenter alone"
        return Problem(reason=INVALID_TAGS, message=message)
    if len(tags) > MAX_USER_TAGS:
        message = (
            f"spec.tags: {len(tags)} tags; with Karpenter's own, ECS takes {MAX_USER_TAGS} of them"
        )
        return Problem(reason=INVALID_TAGS, message=message)
    return None


def user_data_problem(node_class: ECSNodeClass) -> Problem | None:
    """Refuse a text that cannot be merged with what bootstraps the node, or is too large alone."""
    text = node_class.spec.user_data
    size = len(text.encode())
    if size > LARGEST_BYTES:
        message = f"spec.userData: it has {size:,} bytes, and ECS takes {LARGEST_BYTES:,} at most"
        return Problem(reason=INVALID_USER_DATA, message=message)
    try:
        user_data_parts(text)
    except BadInputError as error:
        return Problem(reason=INVALID_USER_DATA, message=str(error))
    return None


STATIC_CHECKS: Final[tuple[Check, ...]] = (tag_problem, user_data_problem)
