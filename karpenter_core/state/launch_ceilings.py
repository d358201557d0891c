"""Checks claims against NodePool limits and CapacityQuotas before creation.

A plan keeps within these limits, but it is some seconds old when its claims are created: other claims
may have been created meanwhile, by disruption or for a static NodePool. So each claim is checked once
more against what exists now, with all claims that are on their way to the API server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import NODES, PRICE_PER_HOUR
from karpenter_core.api.quantities import LARGEST_AMOUNT, format_amount, parse_resources
from karpenter_core.scheduling.offerings import highest_price_amount
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.state.capacity_quotas import (
    launch_quotas,
    planned_amounts,
    planned_types,
)
from karpenter_core.state.launch_limits import LaunchLimit, LaunchRefusal
from karpenter_core.state.node_pool_usage import pool_usage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from karpenter_core.scheduling.problem import PlannedNodeClaim
    from karpenter_core.state.launch_limits import LaunchLimits
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["LaunchCeilings"]


@final
class LaunchCeilings:
    """The rest of all limits at one moment; every claim that is counted takes from it."""

    def __init__(
        self,
        snapshot: Snapshot,
        launch_limits: LaunchLimits,
        *,
        in_flight: Iterable[PlannedNodeClaim],
        leaving: Collection[str],
    ) -> None:
        """`in_flight` are claims that the snapshot does not show yet.

        `leaving` are claims that are about to be removed: they do not count for their NodePools.
        """
        self._snapshot = snapshot
        self._limits = launch_limits
        self._quotas = launch_quotas(
            snapshot,
            launch_limits.rates,
            well_known=launch_limits.well_known,
            aliases=launch_limits.aliases,
        )
        self.pool_usage: Final = pool_usage(snapshot, launch_limits.rates, leaving=leaving)
        """Amounts that each NodePool holds, without claims in flight."""
        self._remaining: dict[tuple[str, str], int] = {
            (quota.name, resource): limit - quota.used[resource]
            for quota in self._quotas
            for resource, limit in quota.limits.items()
        }
        self._read_pools: set[str] = set()
        for planned in in_flight:
            self.count(planned)

    def refusal(self, planned: PlannedNodeClaim) -> LaunchRefusal | None:
        """Return why a claim would exceed a limit; None if it keeps within all."""
        for quota in self._quotas:
            if quota.refusal and self._quota_amounts(planned).get((quota.name, NODES)):
                return LaunchRefusal(limit=LaunchLimit.CAPACITY_QUOTA, message=quota.refusal)
        short = [
            (scope, resource)
            for (scope, resource), amount in self._amounts(planned).items()
            if amount > max(self._remaining.get((scope, resource), amount), 0)
        ]
        if not short:
            return None
        own = [resource for scope, resource in short if scope == planned.pool]
        if own:
            return LaunchRefusal(
                limit=LaunchLimit.NODE_POOL_LIMIT,
                message=f"resource usage exceeds limit ({', '.join(sorted(own))})",
            )
        scope, resource = short[0]
        left = format_amount(resource, max(self._remaining[scope, resource], 0))
        return LaunchRefusal(
            limit=LaunchLimit.CAPACITY_QUOTA,
            message=f"{scope} has {left} of {resource} left, which is too little",
        )

    def count(self, planned: PlannedNodeClaim) -> None:
        """Count a claim that is allowed."""
        for key, amount in self._amounts(planned).items():
            if key in self._remaining:
                self._remaining[key] -= amount

    def _amounts(self, planned: PlannedNodeClaim) -> dict[tuple[str, str], int]:
        """Return the most that a claim may use, by NodePool or quota, and resource."""
        return {**self._pool_amounts(planned), **self._quota_amounts(planned)}

    def _pool_amounts(self, planned: PlannedNodeClaim) -> dict[tuple[str, str], int]:
        pool = self._snapshot.node_pools.get(planned.pool)
        if pool is None or not pool.spec.limits or pool.spec.replicas is not None:
            return {}  # the limit of static NodePools is counted with their replicas
        limits = parse_resources(pool.spec.limits)
        if planned.pool not in self._read_pools:
            self._read_pools.add(planned.pool)
            used = self.pool_usage.get(planned.pool, {})
            for resource, limit in limits.items():
                self._remaining[planned.pool, resource] = limit - used.get(resource, 0)
        amounts = {**planned.capacity_max, NODES: 1}
        if PRICE_PER_HOUR in limits:
            amounts[PRICE_PER_HOUR] = self._price(planned)
        return {(planned.pool, resource): amounts.get(resource, 0) for resource in limits}

    def _price(self, planned: PlannedNodeClaim) -> int:
        types = planned_types(planned, self._snapshot.catalogues.get(planned.pool))
        return highest_price_amount(
            types,
            Requirements(planned.requirements),
            self._limits.rates,
            well_known=self._limits.well_known.union(*(item.requirements.keys() for item in types)),
        )

    def _quota_amounts(self, planned: PlannedNodeClaim) -> dict[tuple[str, str], int]:
        catalogue = self._snapshot.catalogues.get(planned.pool)
        amounts: dict[tuple[str, str], int] = {}
        for quota in self._quotas:
            counted = planned_amounts(
                planned,
                quota.requirements,
                catalogue,
                self._limits.rates,
                well_known=self._limits.well_known,
                aliases=self._limits.aliases,
            )
            if not counted:
                continue
            amounts |= {
                (quota.name, resource): counted.get(resource, 0) for resource in quota.limits
            }
            if quota.refusal:
                amounts[quota.name, NODES] = LARGEST_AMOUNT
        return amounts
