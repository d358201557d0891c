"""Tells from the settings which groups of kinds are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.kube.wire.kind_groups import KindGroup

if TYPE_CHECKING:
    from karpenter_core.operator.settings import Settings

__all__ = ["kind_groups"]


def kind_groups(settings: Settings) -> frozenset[KindGroup]:
    """Return the groups of kinds that the features in these settings need."""
    gates = settings.feature_gates
    needed = {
        KindGroup.SELECTORS: bool(settings.scheduler_config),
        KindGroup.BUFFERS: gates.capacity_buffer,
        KindGroup.REQUESTS: settings.provisioning_requests,
        KindGroup.OVERLAYS: gates.node_overlay,
        KindGroup.QUOTAS: settings.capacity_quotas,
        KindGroup.AUTOSCALERS: settings.vpa_predictions,
        KindGroup.DEVICES: not settings.ignore_dra_requests,
    }
    return frozenset(group for group, is_needed in needed.items() if is_needed)
