"""Settings of the simulated Azure's speed and fidelity."""

from __future__ import annotations

from dataclasses import dataclass

from karpenter_core.provider.kit.simulated import behaviour

__all__ = ["AzureBehaviour"]


@dataclass(slots=True, kw_only=True)
class AzureBehaviour(behaviour.CloudBehaviour):
    """Delays in seconds, and what Azure does by itself.

    `pending_seconds` pass from the PUT of a virtual machine to its `Succeeded`; `terminating_seconds`
    pass from its DELETE with `forceDeletion` to its end.
    """

    spot_notice_seconds: float = 30
    instances_per_page: int = 50
    """0 makes the first page empty, with a link to the next."""
    graceful_seconds: float = 0
    """Seconds by which a DELETE without `forceDeletion` takes longer."""
    interface_reserved_seconds: float = 180
    """For how long a network interface stays reserved for a virtual machine that failed."""
    orphans_interfaces: bool = False
    """Whether network interfaces of a failed virtual machine survive its DELETE."""
    interface_suffix: str = ""
    """Appended to the name of an inline network interface."""
    allocation_seconds: float | None = None
    """Time from the acceptance of a launch without capacity to its failure; None refuses it at once."""
