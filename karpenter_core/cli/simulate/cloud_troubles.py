"""Draws faults of the simulated cloud: spot reclaims, sold-out offerings.

They reach the provider through its faults file, which it reads again whenever it changes.
"""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.fields import Json, labels_of, section

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.sim.cluster import EmbeddedCluster

__all__ = ["CloudTroubles"]

_STEP_SECONDS: Final = 60.0
_HOUR_SECONDS: Final = 3600.0
_KEPT_SECONDS: Final = 300.0
"""Time for which a reclaim stays in the file: longer than the provider takes to read it."""


@final
class CloudTroubles:
    """Reclaims each spot instance, and sells out each offering in use, at a rate per hour."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        file: Path,
        *,
        reclaims_per_hour: float,
        stock_outs_per_hour: float,
        stock_out_seconds: float,
        seed: int,
    ) -> None:
        self._cluster: Final = cluster
        self._file: Final = file
        self._reclaims: Final = _probability(reclaims_per_hour)
        self._stock_outs: Final = _probability(stock_outs_per_hour)
        self._stock_out_seconds: Final = stock_out_seconds
        self._rng: Final = random.Random(f"cloud {seed}")  # noqa: S311 - the same each time
        self._faults: Final = dict[str, tuple[float, Json]]()
        """Faults in force until a time, by a name of their own."""
        self.reclaimed = 0
        self.sold_out = 0
        self._write()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing ever happens."""
        return not (self._reclaims or self._stock_outs)

    async def run(self) -> None:
        """Draw once a minute, for ever."""
        while not self.is_quiet:
            await self._cluster.clock.sleep(_STEP_SECONDS)
            self._step(self._cluster.clock.monotonic())

    def _step(self, now: float) -> None:
        over = [name for name, (until, _) in self._faults.items() if until <= now]
        for name in over:
            del self._faults[name]
        drawn = self._draw(now)
        if over or drawn:
            self._write()

    def _draw(self, now: float) -> bool:
        launched = [
            claim
            for claim in self._cluster.list(NODE_CLAIMS)
            if section(claim, "status").get("providerID")
            and "deletionTimestamp" not in claim["metadata"]
        ]
        before = self.reclaimed + self.sold_out
        for claim in launched:
            name = claim["metadata"]["name"]
            is_spot = labels_of(claim).get(CAPACITY_TYPE) == SPOT
            is_new = f"reclaim {name}" not in self._faults
            if is_spot and is_new and self._rng.random() < self._reclaims:
                fault = {"fault": "reclaim", "nodeClaims": [name], "count": 1}
                self._faults[f"reclaim {name}"] = (now + _KEPT_SECONDS, fault)
                self.reclaimed += 1
        for offering in sorted({_offering(claim) for claim in launched}):
            name = f"stock {' '.join(offering)}"
            if name not in self._faults and self._rng.random() < self._stock_outs:
                instance_type, zone, capacity_type = offering
                fault = {
                    "fault": "stock-out", "instanceTypes": [instance_type], "zones": [zone],
                    "capacityTypes": [capacity_type],
                }  # fmt: skip
                self._faults[name] = (now + self._stock_out_seconds, fault)
                self.sold_out += 1
        return self.reclaimed + self.sold_out > before

    def _write(self) -> None:
        """Write the file; never at one size twice in a row, since its time may not have changed."""
        text = json.dumps([fault for _, fault in self._faults.values()])
        size = self._file.stat().st_size if self._file.exists() else -1
        text += "\n" * (1 + (len(text) + 1 == size))
        self._file.write_text(text, encoding="utf-8")


def _probability(per_hour: float) -> float:
    """Return the probability of an event within a step."""
    return -math.expm1(-per_hour * _STEP_SECONDS / _HOUR_SECONDS)


def _offering(claim: Json) -> tuple[str, str, str]:
    labels = labels_of(claim)
    return labels.get(INSTANCE_TYPE, ""), labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, "")
