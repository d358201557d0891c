"""Instance pools: instances that can stand for each other."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

__all__ = ["ON_DEMAND", "SPOT", "InstancePool"]

ON_DEMAND: Final = "on-demand"
"""Instances that are paid by the hour and stay."""
SPOT: Final = "spot"
"""Instances at a price that changes, which can be reclaimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePool:
    """Instances that can stand for each other; also a pattern for such pools."""

    capacity_type: str = "*"
    instance_type: str = "*"
    zone: str = "*"

    def holds(self, pool: InstancePool) -> bool:
        """Whether a pool is one of those that this pattern names."""
        return (
            fnmatchcase(pool.capacity_type, self.capacity_type)
            and fnmatchcase(pool.instance_type, self.instance_type)
            and fnmatchcase(pool.zone, self.zone)
        )
