"""Names the groups of kinds that are read only if a feature needs them.

Their definitions need not be installed, or clusters have many objects of them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, final

__all__ = ["EVERY_KIND_GROUP", "KindGroup"]


@final
class KindGroup(StrEnum):
    """Kinds that one feature reads beside those that are always read."""

    SELECTORS = "selectors"
    """Services and controllers of pods; clusters have many, and only default topology spread needs them."""
    BUFFERS = "buffers"
    """CapacityBuffers, and the templates and workloads that they may refer to."""
    REQUESTS = "requests"
    """ProvisioningRequests, and the PodTemplates that they name."""
    OVERLAYS = "overlays"
    """NodeOverlays."""
    QUOTAS = "quotas"
    """CapacityQuotas."""
    AUTOSCALERS = "autoscalers"
    """VerticalPodAutoscalers."""
    DEVICES = "devices"
    """ResourceClaims, and what they are allocated from."""


EVERY_KIND_GROUP: Final = frozenset(KindGroup)
