"""Custom: whatever bootstraps the node is the user's affair, and reaches it byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karpenter_provider_aws.families.bootstrap import Bootstrap

__all__ = ["user_data"]


def user_data(bootstrap: Bootstrap) -> str:
    """Return the user's text and nothing else: no labels, no taints, no kubelet settings."""
    return bootstrap.user_data
