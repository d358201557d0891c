"""Settings of a simulated cloud's speed."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields

__all__ = ["CloudBehaviour"]


@dataclass(slots=True, kw_only=True)
class CloudBehaviour:
    """Delays in seconds, and what the cloud does by itself; a cloud derives from it and adds more."""

    pending_seconds: float = 0
    """From the launch of an instance until it runs."""
    boot_seconds: float = 0
    """From then until its kubelet registers the Node."""
    terminating_seconds: float = 0
    """From the start of its termination to its end; it uses stock, addresses and quota until then."""
    invisible_seconds: float = 0
    """Delay until a new instance is described: eventual consistency."""
    gone_visible_seconds: float = 0
    """Time that an instance is still described after its end."""
    spot_notice_seconds: float = 120
    """From the announcement of an interruption to the termination of the instance."""
    instances_per_page: int = 1000
    """Maximum number of instances that one call describes; may be less than requested."""

    def reset(self) -> None:
        """Restore the defaults."""
        for each in fields(self):
            if each.default is not MISSING:
                setattr(self, each.name, each.default)
