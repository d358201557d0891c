"""Keeps the price of the nodes over time in a bounded number of points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from karpenter_core.disruption.pricing import NodePrices

if TYPE_CHECKING:
    from karpenter_core.scheduling.problem import SolveOptions
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["CostHistory", "CostPoint", "cost_point"]

MOST_POINTS: Final = 720


class CostPoint(NamedTuple):
    """Price per hour in the reporting currency, and number of nodes, at one time."""

    at: float
    """Seconds since 1970."""
    price_per_hour: float
    nodes: int


def cost_point(snapshot: Snapshot, solve: SolveOptions, *, at: float) -> CostPoint:
    """Return the price of the nodes whose price is known, and the number of all nodes."""
    prices = NodePrices(snapshot, solve)
    costs = (prices.hourly_cost_of(state_node) for state_node in snapshot.counted_nodes)
    return CostPoint(at, sum(cost or 0.0 for cost in costs), len(snapshot.counted_nodes))


@final
class CostHistory:
    """The points since the start of the process, ever coarser: the first and the last one stay."""

    def __init__(self) -> None:
        self._points: list[CostPoint] = []
        self._spacing_seconds = 0.0

    @property
    def points(self) -> tuple[CostPoint, ...]:
        """The points, the oldest first."""
        return tuple(self._points)

    def add(self, point: CostPoint) -> None:
        """Add a point; one that follows the last too soon takes its place."""
        points = self._points
        # The last point always shows the present, also between two that are kept.
        if len(points) > 1 and points[-1].at - points[-2].at < self._spacing_seconds:
            points[-1] = point
        else:
            points.append(point)
        if len(points) > MOST_POINTS:
            last = points[-1]
            self._points = [*points[:-1:2], last]
            self._spacing_seconds = 2 * (last.at - points[0].at) / MOST_POINTS
