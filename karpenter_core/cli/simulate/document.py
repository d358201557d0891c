"""Writes simulations as the JSON that `docs/reference/simulate.md` specifies.

It depends on the input and the seed alone: equal runs give equal bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.cli.simulate.recorder import Level, RecordedClaim, SimulationRecorder
    from karpenter_core.cli.simulate.run import SimulationResult

__all__ = ["comparison", "simulation_document"]

_DIGITS: Final = 6
_HOUR: Final = 3600.0
_PERCENTILES: Final = (50, 90, 95, 99)
_UNNAMED_REASON: Final = "Deleted"
_SERIES: Final = (
    "pricePerHour", "nodes", "pods", "pendingPods", "cpuUtilisation", "memoryUtilisation",
)  # fmt: skip


def simulation_document(result: SimulationResult) -> JsonObject:
    """Return the figures and the series of a simulation."""
    scenario, recorder = result.scenario, result.recorder
    duration = scenario.duration
    total = recorder.total
    return {
        "name": scenario.name,
        "start": scenario.start.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "durationSeconds": _round(duration),
        "seed": scenario.seed,
        "settings": list(scenario.settings),
        "cost": {
            "currency": result.currency,
            "total": _round(total.price / _HOUR),
            "perHour": _round(total.price / duration),
            "perPodHour": _round(_ratio(total.price, total.pods)),
            "byNodePool": _costs(recorder, (claim.pool for claim in recorder.claims.values())),
            "byCapacityType": _costs(
                recorder, (claim.capacity_type for claim in recorder.claims.values())
            ),
            "byInstanceType": _costs(
                recorder, (claim.instance_type for claim in recorder.claims.values())
            ),
            "nodesWithoutPrice": sum(not claim.is_priced for claim in recorder.claims.values()),
        },
        "nodes": _nodes(recorder, duration),
        "pods": {
            "mean": _round(total.pods / duration),
            "peakPending": recorder.peak_pending,
            "jobPodsFinished": result.finished,
            "jobPodsRestarted": result.restarted,
            "evicted": sum(recorder.evictions.values()),
            "lost": recorder.lost,
        },
        "pendingSeconds": _times(recorder.pending_seconds),
        "startupSeconds": _times(recorder.startup_seconds),
        "waiting": _times(recorder.waiting_seconds),
        "disruptions": _disruptions(recorder),
        "cloud": {"spotReclaims": result.reclaimed, "stockOuts": result.sold_out},
        "utilisation": _utilisation(total),
        "series": _series(result.windows, scenario.step, duration),
    }


def comparison(first: JsonMapping, second: JsonMapping) -> JsonObject:
    """Return the difference from the first simulation to the second."""
    before, after = first["cost"]["total"], second["cost"]["total"]
    return {
        "costTotal": _round(after - before),
        "costShare": _round(_ratio(after - before, before)),
        "nodesMean": _round(second["nodes"]["mean"] - first["nodes"]["mean"]),
        "pendingSecondsP95": _round(
            second["pendingSeconds"]["p95"] - first["pendingSeconds"]["p95"]
        ),
        "evicted": second["pods"]["evicted"] - first["pods"]["evicted"],
    }


def _nodes(recorder: SimulationRecorder, duration: float) -> JsonObject:
    claims = recorder.claims.values()
    lives = sorted(claim.ended - claim.launched for claim in claims if claim.ended is not None)
    return {
        "mean": _round(recorder.total.nodes / duration),
        "peak": recorder.peak_nodes,
        "atEnd": int(recorder.level.nodes),
        "launched": len(recorder.claims),
        "removed": len(lives),
        "lifeSeconds": _times(lives),
    }


def _costs(recorder: SimulationRecorder, names: Iterable[str]) -> JsonObject:
    """Return the cost of the nodes of each name, the dearest first."""
    costs: dict[str, float] = {}
    for name, claim in zip(names, recorder.claims.values(), strict=True):
        costs[name] = costs.get(name, 0.0) + _cost(claim, recorder)
    return {
        name: _round(cost)
        for name, cost in sorted(costs.items(), key=lambda item: (-item[1], item[0]))
    }


def _cost(claim: RecordedClaim, recorder: SimulationRecorder) -> float:
    ended = recorder.elapsed_at_end if claim.ended is None else claim.ended
    return claim.price * (ended - claim.launched) / _HOUR


def _disruptions(recorder: SimulationRecorder) -> JsonObject:
    """Count the removed nodes by the reason of their disruption."""
    counts = Counter(
        claim.reason or _UNNAMED_REASON
        for claim in recorder.claims.values()
        if claim.ended is not None
    )
    return dict(sorted(counts.items()))


def _times(seconds: Sequence[float]) -> JsonObject:
    """Return count, mean, percentiles by nearest rank, and maximum."""
    ordered = sorted(seconds)
    count = len(ordered)
    document: JsonObject = {"count": count}
    document["mean"] = _round(math.fsum(ordered) / count) if count else 0.0
    for percentile in _PERCENTILES:
        rank = max(math.ceil(percentile / 100 * count), 1)
        document[f"p{percentile}"] = _round(ordered[rank - 1]) if count else 0.0
    document["max"] = _round(ordered[-1]) if count else 0.0
    return document


def _utilisation(level: Level) -> JsonObject:
    cpu, memory = (
        _round(_ratio(requested, allocatable))
        for requested, allocatable in zip(level.requested, level.allocatable, strict=True)
    )
    return {"cpu": cpu, "memory": memory}


def _series(windows: Sequence[Level], step: float, duration: float) -> JsonObject:
    """Return the mean of each step."""
    columns: dict[str, list[float]] = {name: [] for name in _SERIES}
    for number, window in enumerate(windows):
        seconds = min(step, duration - number * step)
        used = _utilisation(window)
        means = (
            window.price, window.nodes, window.pods, window.pending,
        )  # fmt: skip
        values = (*(mean / seconds for mean in means), used["cpu"], used["memory"])
        for name, value in zip(_SERIES, values, strict=True):
            columns[name].append(_round(value))
    return {"stepSeconds": _round(step), **columns}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _round(value: float) -> float:
    """Round; sums of floats may leave a zero with a sign."""
    return round(value, _DIGITS) + 0.0
