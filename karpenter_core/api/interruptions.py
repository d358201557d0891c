"""What clouds announce about machines, as words that the core, providers and users share."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["INTERRUPTING", "INTERRUPTION_REASONS", "InterruptionKind"]


class InterruptionKind(StrEnum):
    """What a cloud announces about a machine.

    The value is the reason of the claim's condition `DisruptionReason`, so it is what the pods'
    Evicted Events name.
    """

    SPOT_RECLAIM = "SpotInterruption"
    """The machine is taken back, usually within minutes."""
    RESERVATION_RECLAIM = "CapacityReservationInterruption"
    """The reservation that the machine runs on is taken back."""
    SCHEDULED_MAINTENANCE = "ScheduledChange"
    """The cloud is going to stop, restart or retire the machine."""
    INSTANCE_STOPPED = "InstanceStopped"
    """Somebody or something stops the machine, or has: it does not come back by itself."""
    INSTANCE_TERMINATED = "InstanceTerminated"
    """The machine is going, or gone."""
    INSTANCE_UNHEALTHY = "InstanceUnhealthy"
    """The cloud's own checks of the machine or of its host fail."""
    REBALANCE = "RebalanceRecommendation"
    """The machine is likelier than others to be taken back; nothing is decided yet."""
    IRRELEVANT = "NoInterruption"
    """A message that announces the end of no machine: it is counted and acknowledged."""
    UNKNOWN = "UnknownInterruption"
    """A message that the provider cannot read: it is counted, logged and acknowledged."""


INTERRUPTION_REASONS: Final = frozenset(
    str(kind)
    for kind in InterruptionKind
    if kind not in {InterruptionKind.IRRELEVANT, InterruptionKind.UNKNOWN}
)
"""Reasons of `DisruptionReason` that an interruption sets."""

INTERRUPTING: Final = INTERRUPTION_REASONS - {str(InterruptionKind.REBALANCE)}
"""Reasons of `DisruptionReason` for machines that their cloud takes away."""
