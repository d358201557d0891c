"""Settings of the simulated cloud's speed and fidelity."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["CloudBehaviour"]


@dataclass(slots=True, kw_only=True)
class CloudBehaviour:
    """Delays in seconds, and what the cloud does by itself."""

    pending_seconds: float = 0
    """From launch to `running`."""
    boot_seconds: float = 0
    """From `running` to the Node that its kubelet registers."""
    shutting_down_seconds: float = 0
    """From termination to `terminated`; until then stock, addresses and quota stay taken."""
    invisible_seconds: float = 0
    """Delay until a new instance, or a new tag set, is described: eventual consistency."""
    slow_share: float = 0
    """Of the instances of a launch, which share (the last ones) takes `slow_seconds` to be described."""
    slow_seconds: float = 0
    """Delay until these are described."""
    fleet_seconds: float = 0
    """Time that a fleet's token is in progress; its first call breaks off without an answer."""
    instances_per_page: int = 1000
    """Maximum number of instances that DescribeInstances returns; AWS may return fewer than requested."""
    terminated_visible_seconds: float = 3600
    """Time that a terminated instance is still described."""
    announce_states: bool = False
    """Whether changes of state are sent to the queue, as EventBridge's rule for them does."""
    spot_notice_seconds: float = 120
    """From the interruption warning to the end of a spot instance."""

    def reset(self) -> None:
        """Be again as in the beginning."""
        for each in fields(self):
            setattr(self, each.name, each.default)
