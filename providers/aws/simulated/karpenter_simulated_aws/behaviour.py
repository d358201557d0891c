"""Settings of the simulated cloud's speed and fidelity."""

from __future__ import annotations

from dataclasses import dataclass

from karpenter_core.provider.kit.simulated import behaviour

__all__ = ["CloudBehaviour"]


@dataclass(slots=True, kw_only=True)
class CloudBehaviour(behaviour.CloudBehaviour):
    """Delays in seconds, and what AWS does by itself."""

    gone_visible_seconds: float = 3600
    slow_share: float = 0
    """Of the instances of a launch, which share (the last ones) takes `slow_seconds` to be described."""
    slow_seconds: float = 0
    """Delay until these are described."""
    fleet_seconds: float = 0
    """Time that a fleet's token is in progress; its first call breaks off without an answer."""
    announce_states: bool = False
    """Whether changes of state are sent to the queue, as EventBridge's rule for them does."""
