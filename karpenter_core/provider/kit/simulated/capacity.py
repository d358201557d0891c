"""Stock and quotas of a simulated cloud; without rules, both are unlimited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, final

from karpenter_core.provider.kit.simulated.instances import (
    InstancePhase,
    SimulatedInstance,
    SimulatedInstances,
)
from karpenter_core.provider.kit.simulated.pools import InstancePool

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from karpenter_core.provider.kit.simulated.faults import CloudError

__all__ = ["CapacityLimits", "SimulatedQuota", "StockRule"]

Item = TypeVar("Item", bound=SimulatedInstance)


def _one(_pool: InstancePool) -> int:
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedQuota:
    """The amount that instances of some pools may use together."""

    amount: int
    covers: Callable[[InstancePool], bool]
    """Whether instances of a pool count against it."""
    cost: Callable[[InstancePool], int] = _one
    """Amount that one instance of a pool uses: 1, or its vCPUs."""
    error: CloudError
    """The refusal of launches beyond it."""


@final
@dataclass(slots=True, kw_only=True, eq=False)
class StockRule:
    """The number of instances in each pool of a pattern; as a context manager, as long as the context."""

    pool: InstancePool
    instances: int
    rules: list[StockRule]

    def end(self) -> None:
        """Restore the stock that was there before."""
        if self in self.rules:
            self.rules.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class CapacityLimits(Generic[Item]):
    """The stock of a region and the quotas of an account."""

    def __init__(
        self,
        instances: SimulatedInstances[Item],
        *,
        sold_out: Callable[[InstancePool], CloudError],
    ) -> None:
        """Start without limits; `sold_out` is the refusal for a pool with nothing left."""
        self._instances: Final = instances
        self.sold_out: Final = sold_out
        self._stock: Final[list[StockRule]] = []
        self._quotas: Final[dict[Hashable, SimulatedQuota]] = {}

    def stock(self, pool: InstancePool, instances: int) -> StockRule:
        """Set the size of each pool of a pattern, running instances included; the last rule counts."""
        rule = StockRule(pool=pool, instances=instances, rules=self._stock)
        self._stock.append(rule)
        return rule

    def sell_out(
        self, *, capacity_type: str = "*", instance_type: str = "*", zone: str = "*"
    ) -> StockRule:
        """Leave nothing of the pools that match; running instances continue."""
        pool = InstancePool(capacity_type=capacity_type, instance_type=instance_type, zone=zone)
        return self.stock(pool, 0)

    def set_quota(self, key: Hashable, quota: SimulatedQuota | None) -> None:
        """Set the quota of a key; None removes it."""
        self._quotas.pop(key, None)
        if quota is not None:
            self._quotas[key] = quota

    def clear(self) -> None:
        """Remove all limits."""
        self._stock.clear()
        self._quotas.clear()

    def left(self, pool: InstancePool) -> int | None:
        """Return how many instances of a pool are in stock; None if there is no limit."""
        size = next(
            (rule.instances for rule in reversed(self._stock) if rule.pool.holds(pool)), None
        )
        if size is None:
            return None
        used = sum(
            each.pool == pool
            and each.takes_stock
            and self._instances.phase_of(each) is not InstancePhase.FAILED
            for each in self._instances.living
        )
        return max(0, size - used)

    def allowed(self, pool: InstancePool) -> tuple[int | None, CloudError | None]:
        """Return how many more instances of a pool the quotas permit, and the refusal of more.

        Both are None if no quota covers the pool. Of several quotas the smallest counts.
        """
        least: int | None = None
        error: CloudError | None = None
        for quota in self._quotas.values():
            if not quota.covers(pool):
                continue
            used = sum(
                quota.cost(each.pool) for each in self._instances.living if quota.covers(each.pool)
            )
            left = max(0, quota.amount - used) // max(1, quota.cost(pool))
            if least is None or left < least:
                least, error = left, quota.error
        return least, error

    def obtainable(self, pool: InstancePool, wanted: int) -> tuple[int, CloudError | None]:
        """Return how many of the wanted instances quotas and stock permit, and why not the rest."""
        allowed, error = self.allowed(pool)
        had = wanted if allowed is None else min(wanted, allowed)
        if had == wanted:
            error = None
        left = self.left(pool)
        if left is not None and left < had:
            had, error = left, self.sold_out(pool)
        return had, error
