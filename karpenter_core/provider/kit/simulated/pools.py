"""Names instance pools that a simulated cloud sells, and patterns of pools."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Self, final

from karpenter_core.errors import OfferingKey

if TYPE_CHECKING:
    from karpenter_core.provider.kit.simulated.faults import CloudError

__all__ = ["InstancePool", "PoolFault", "PoolFaults"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePool:
    """Instances that can stand for each other; also a pattern for such pools."""

    capacity_type: str = "*"
    instance_type: str = "*"
    zone: str = "*"

    @property
    def offering(self) -> OfferingKey:
        """The offering of this pool."""
        return OfferingKey(
            instance_type=self.instance_type, zone=self.zone, capacity_type=self.capacity_type
        )

    def holds(self, pool: InstancePool) -> bool:
        """Whether a pool matches this pattern."""
        return (
            fnmatchcase(pool.capacity_type, self.capacity_type)
            and fnmatchcase(pool.instance_type, self.instance_type)
            and fnmatchcase(pool.zone, self.zone)
        )


@final
@dataclass(slots=True, kw_only=True, eq=False)
class PoolFault:
    """An error of launches from matching pools; as a context manager, as long as the context."""

    pool: InstancePool
    error: CloudError
    times: int | None = None
    """The number of launches it still applies to; None for no limit."""
    after_seconds: float = 0
    """Time from the accepted launch to its failure; `PoolFaults` of refusals do not use it."""
    board: PoolFaults | None = field(default=None, repr=False)

    def end(self) -> None:
        """Remove the fault."""
        if self.board is not None:
            self.board.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@final
class PoolFaults:
    """The active faults of pools."""

    def __init__(self) -> None:
        self._faults: Final[list[PoolFault]] = []

    def add(self, fault: PoolFault) -> PoolFault:
        """Add a fault."""
        fault.board = self
        self._faults.append(fault)
        return fault

    def remove(self, fault: PoolFault) -> None:
        """Remove a fault; return if it is not active."""
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def strike(self, pool: InstancePool) -> PoolFault | None:
        """Return the first fault that applies to a launch from a pool, and count it."""
        for fault in self._faults:
            if fault.times != 0 and fault.pool.holds(pool):
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None
