"""Names the conditions of Nodes that the core's node repair replaces nodes for.

They are those of Karpenter's provider for Azure. An eviction is handled at once, without the gate of node
repair, by `sources.py`; its row is for claims that this does not reach.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from karpenter_provider_azure.interruption.node_conditions import PREEMPTION_SCHEDULED

__all__ = ["REPAIRED"]

_UNHEALTHY_FOR: Final = timedelta(minutes=10)

REPAIRED: Final = (
    ("Ready", "False", _UNHEALTHY_FOR),
    ("Ready", "Unknown", _UNHEALTHY_FOR),
    ("kubernetes.azure.com/NodeHealthy", "False", timedelta()),
    (PREEMPTION_SCHEDULED, "True", timedelta()),
)
"""Condition type, its status, and how long the core tolerates it (`repair_policies` of the kit)."""
