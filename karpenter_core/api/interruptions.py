"""Kinds of interruption that clouds announce for their instances."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["INTERRUPTING", "INTERRUPTION_REASONS", "InterruptionKind"]


class InterruptionKind(StrEnum):
    """A kind of interruption of an instance.

    The value is the reason of the claim's condition `DisruptionReason`, which the Event `Evicted`
    of the pods names as well.
    """

    SPOT_RECLAIM = "SpotInterruption"
    """The cloud reclaims the spot instance, usually within minutes."""
    RESERVATION_RECLAIM = "CapacityReservationInterruption"
    """The cloud ends the capacity reservation that the instance runs on."""
    SCHEDULED_MAINTENANCE = "ScheduledChange"
    """The cloud will stop, restart or retire the instance."""
    INSTANCE_STOPPED = "InstanceStopped"
    """The instance is stopping or stopped; it does not start again by itself."""
    INSTANCE_TERMINATED = "InstanceTerminated"
    """The instance is terminating or terminated."""
    INSTANCE_UNHEALTHY = "InstanceUnhealthy"
    """The cloud's own checks of the instance or of its host fail."""
    LAUNCH_FAILED = "LaunchFailed"
    """The cloud accepted the launch of the instance, and it failed later."""
    REBALANCE = "RebalanceRecommendation"
    """The instance has a raised risk of being reclaimed; it is not decided yet."""
    IRRELEVANT = "NoInterruption"
    """A message that announces no interruption: it is counted and acknowledged."""
    UNKNOWN = "UnknownInterruption"
    """A message that the provider cannot read: it is counted, logged and acknowledged."""


INTERRUPTION_REASONS: Final = frozenset(
    str(kind)
    for kind in InterruptionKind
    if kind not in {InterruptionKind.IRRELEVANT, InterruptionKind.UNKNOWN}
)
"""Reasons of `DisruptionReason` that an interruption sets."""

INTERRUPTING: Final = INTERRUPTION_REASONS - {str(InterruptionKind.REBALANCE)}
"""Reasons of `DisruptionReason` for instances that the cloud is going to end."""
