"""User data of the family Custom: the user's own, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karpenter_provider_aws.families.bootstrap import BootstrapInput

__all__ = ["user_data"]


def user_data(bootstrap: BootstrapInput) -> str:
    """Return the user's text and nothing else: no labels, no taints, no kubelet settings."""
    return bootstrap.user_data
