"""Declares the metrics of conditions and terminations, with upstream's names.

There is a family for each kind, `operator_<kind>_…`, whose labels tell NodeClass and NodePool, and one
without the kind in its names that dashboards of older releases read (upstream calls it deprecated).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import Histogram

from karpenter_core.api.labels import INITIALIZED, NODE_POOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import Counter

    from karpenter_core.controllers.metrics.declarations import MetricDeclarations
    from karpenter_core.controllers.metrics.object_series import ObjectSeries

__all__ = ["CONDITION_BUCKETS", "ConditionFamily", "ConditionMetrics", "object_labels"]

CONDITION_BUCKETS: Final = tuple(0.5 * 2**n for n in range(15))  # upstream


def object_labels(kind: str, node_class_labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of objects of a kind that become labels of their metrics."""
    match kind:
        case "NodeClaim":
            return (*node_class_labels, NODE_POOL)
        case "Node":
            return (*node_class_labels, NODE_POOL, INITIALIZED)
        case _:
            return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionFamily:
    """The six metrics of one kind; label values go in the order of the specification."""

    transition_duration: Histogram
    """By type and the status that ended."""
    transitions: Counter
    """By type, the status that began, and its reason."""
    count: ObjectSeries
    current: ObjectSeries
    terminating: ObjectSeries
    termination_duration: Histogram


class ConditionMetrics:
    """The families, by kind; `deprecated` has group and kind as labels instead."""

    def __init__(self, declare: MetricDeclarations, *, node_class_labels: Sequence[str]) -> None:
        self._declare = declare.with_namespace("operator")
        self.node_class_labels: Final = tuple(node_class_labels)
        self.label_names: Final = {
            kind: tuple(_label_name(key) for key in object_labels(kind, node_class_labels))
            for kind in ("NodeClaim", "NodePool", "Node", "CapacityBuffer", "NodeOverlay")
        }
        self.by_kind: Final = {
            kind: self._family(
                f"{kind.lower()}_", names, buckets=CONDITION_BUCKETS, what=f"{kind}s"
            )
            for kind, names in self.label_names.items()
        }
        self.deprecated: Final = self._family(
            "",
            ("group", "kind"),
            buckets=Histogram.DEFAULT_BUCKETS,
            what="NodeClaims, NodePools, CapacityBuffers and NodeOverlays",
        )

    def _family(
        self, prefix: str, extra: tuple[str, ...], *, buckets: Sequence[float], what: str
    ) -> ConditionFamily:
        condition, termination = f"{prefix}status_condition", f"{prefix}termination"
        here = ("namespace", "name", "type", "status", "reason", *extra)
        return ConditionFamily(
            transition_duration=self._declare.histogram(
                f"{condition}_transition_seconds",
                f"Duration of the status that conditions of {what} had before a change.",
                ("type", "status", *extra),
                buckets,
            ),
            transitions=self._declare.counter(
                f"{condition}_transitions_total",
                f"Status changes of conditions of {what}.",
                ("type", "status", "reason", *extra),
            ),
            count=self._declare.series(
                f"{condition}_count",
                f"1 for every condition of {what}, with its current status in the labels.",
                here,
            ),
            current=self._declare.series(
                f"{condition}_current_status_seconds",
                f"Time that conditions of {what} have had their current status.",
                here,
            ),
            terminating=self._declare.series(
                f"{termination}_current_time_seconds",
                f"Time that {what} have been terminating.",
                ("namespace", "name", *extra),
            ),
            termination_duration=self._declare.histogram(
                f"{termination}_duration_seconds",
                f"Time from the deletion of {what} until they were removed.",
                extra,
                buckets,
            ),
        )


def _label_name(key: str) -> str:
    return key.replace("/", "_").replace(".", "_").replace("-", "_")
