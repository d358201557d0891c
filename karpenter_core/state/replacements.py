"""Tells which NodeClaims disruption launched as replacements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CREATED_FOR

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim

__all__ = ["is_replacement", "is_unused_replacement"]

_REASONS: Final = frozenset({"drifted", "underutilized"})


def is_replacement(claim: NodeClaim) -> bool:
    """Tell whether a claim was created as the replacement of another one."""
    return claim.metadata.annotations.get(CREATED_FOR) in _REASONS


def is_unused_replacement(claim: NodeClaim) -> bool:
    """Tell whether a claim is a replacement to which no pod has come yet."""
    return claim.status.last_pod_event_time is None and is_replacement(claim)
