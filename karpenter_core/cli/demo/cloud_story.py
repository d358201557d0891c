"""The story of a cloud: spread over zones, sold out, interrupted, given a newer image, and left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.cli.demo.processes import DemoFailedError
from karpenter_core.cli.demo.story import Step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from karpenter_core.cli.demo.census import Census
    from karpenter_core.cli.demo.stage import Stage
    from karpenter_core.clock import Clock
    from karpenter_core.errors import OfferingKey
    from karpenter_core.provider.kit.simulation import SimulatedCloud

__all__ = ["BUDGET", "CAPACITY_TYPES", "CloudStory"]

BUDGET: Final = 2
"""Nodes that may be disrupted at once."""
CAPACITY_TYPES: Final = (SPOT, ON_DEMAND)
_FEW: Final = 50
_MANY: Final = 75


class CloudStory:
    """What happens in a cloud, and what must come of it."""

    def __init__(self, cloud: SimulatedCloud, stage: Stage, census: Census, clock: Clock) -> None:
        self._cloud: Final = cloud
        self._stage: Final = stage
        self._census: Final = census
        self._clock: Final = clock
        self._purchases_before = 0
        self._interrupted = ""
        self._deadline: datetime | None = None
        self._old = frozenset[str]()

    def steps(self) -> Sequence[Step]:
        """Return its acts."""
        return [
            Step(
                title=f"scale nginx to {_FEW}, spread over zones",
                replicas=_FEW,
                begin=lambda: self._stage.scale(_FEW),
                is_done=lambda: self._census.is_at_rest(_FEW),
                tell=self._tell_zones,
            ),
            Step(
                title=f"sell that out, scale nginx to {_MANY}",
                replicas=_MANY,
                begin=self._sell_out,
                is_done=lambda: self._census.is_at_rest(_MANY),
                tell=self._tell_purchases,
            ),
            Step(
                title="take a spot machine away",
                replicas=_MANY,
                begin=self._interrupt,
                is_done=self._has_left,
                tell=self._tell_interruption,
            ),
            Step(
                title=f"a newer image, budget: {BUDGET} nodes",
                replicas=_MANY,
                begin=self._renew,
                is_done=self._is_renewed,
                tell=self._tell_renewal,
            ),
            Step(
                title="delete everything",
                replicas=0,
                begin=self._stage.retire,
                is_done=self._is_empty,
                tell=lambda: ["the cloud's own dump: nothing of this cluster is left"],
            ),
        ]

    # -- zones ---------------------------------------------------------------------------------

    def _tell_zones(self) -> Sequence[str]:
        zones = self._census.running_by_zone
        if max(zones.values()) - min(zones.values()) > 1:
            raise DemoFailedError(f"pods are not spread evenly: {dict(zones)}")
        return [", ".join(f"{count} pods in {zone}" for zone, count in zones.items())]

    # -- stock ---------------------------------------------------------------------------------

    async def _sell_out(self) -> None:
        self._purchases_before = len(self._cloud.purchases())
        for offering in {machine.offering for machine in self._cloud.machines().values()}:
            self._cloud.sell_out(offering)
        await self._stage.scale(_MANY)

    def _tell_purchases(self) -> Sequence[str]:
        new = self._cloud.purchases()[self._purchases_before :]
        if not any(purchase.sold_out and purchase.bought for purchase in new):
            raise DemoFailedError("no call met a sold-out offering and bought the next one")
        return [
            f"{purchase.action}: "
            + "".join(f"{_shown(offering)} sold out, " for offering in purchase.sold_out)
            + "bought "
            + ", ".join(f"{count} x {_shown(key)}" for key, count in purchase.bought.items())
            for purchase in new
            if purchase.bought
        ]

    # -- interruption --------------------------------------------------------------------------

    async def _interrupt(self) -> None:
        spot = sorted(
            provider_id
            for provider_id, machine in self._cloud.machines().items()
            if machine.offering.capacity_type == SPOT
        )
        if not spot:
            raise DemoFailedError("there is no spot machine to take away")
        self._interrupted = spot[0]
        self._deadline = self._cloud.interrupt(self._interrupted)

    def _has_left(self) -> bool:
        return (
            self._interrupted not in self._cloud.machines()
            and self._interrupted not in self._census.provider_ids
            and self._census.is_at_rest(_MANY)
        )

    def _tell_interruption(self) -> Sequence[str]:
        if self._deadline is None:
            raise DemoFailedError("nothing was interrupted")
        left = (self._deadline - self._clock.now()).total_seconds()
        if left <= 0:
            raise DemoFailedError(f"{self._interrupted} was not drained before it was taken")
        return [f"{self._interrupted}: drained and replaced {left:.0f} s before its deadline"]

    # -- images --------------------------------------------------------------------------------

    async def _renew(self) -> None:
        self._old = frozenset(self._cloud.machines())
        self._census.most_leaving = 0
        await self._stage.change_node_class(dict(self._cloud.newer_image))

    def _is_renewed(self) -> bool:
        return (
            self._old.isdisjoint(self._cloud.machines())
            and self._old.isdisjoint(self._census.provider_ids)
            and self._census.is_at_rest(_MANY)
        )

    def _tell_renewal(self) -> Sequence[str]:
        most = self._census.most_leaving
        if most > BUDGET:
            raise DemoFailedError(f"{most} nodes were disrupted at once, {BUDGET} may be")
        images = sorted({machine.image for machine in self._cloud.machines().values()})
        return [f"{len(self._old)} nodes replaced, {most} at once at most; image {images[0]}"]

    # -- the end -------------------------------------------------------------------------------

    def _is_empty(self) -> bool:
        return self._census.is_at_rest(0) and not self._cloud.held()


def _shown(offering: OfferingKey) -> str:
    return f"{offering.instance_type} {offering.zone} {offering.capacity_type}"
