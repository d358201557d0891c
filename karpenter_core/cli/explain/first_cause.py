"""Chooses the reason to name first for a pod that no NodePool takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.cli.document import instant_text
from karpenter_core.scheduling.problem import PoolConstraint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.api.records import NodeSelectorRequirement, PodView
    from karpenter_core.cli.cluster_events import PodRefusal
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.scheduling.problem import SchedulingPlan

__all__ = ["FirstCause", "first_cause", "refusal_text"]

_ORDER = {constraint.value: number for number, constraint in enumerate(PoolConstraint)}


@dataclass(frozen=True, slots=True)
class FirstCause:
    """The reason to name first, and the number of NodePools that have others."""

    text: str
    others: int = 0


def first_cause(
    cluster: ClusterInput, pod: PodView, rejected: Mapping[str, JsonMapping], plan: SchedulingPlan
) -> FirstCause:
    """Return the reason of the NodePool that came closest, of at least one that rejected the pod.

    A NodePool comes the closer, the later in the order of constraints the first one fails. One from which
    nothing can be launched for any pod says little about this one, and comes after those; one that the pod
    excludes by name comes last. The only one that it asks for by name comes first if it cannot be used. A
    reason of all NodePools blames none of them, and neither does the priority of the pod.
    """
    selected = _selected_pool(pod)
    if selected is not None and selected in cluster.unusable_pools:
        text = f'NodePool "{selected}" is not used: {cluster.unusable_pools[selected]}'
        return FirstCause(text)

    def closeness(name: str) -> tuple[bool, bool, bool, int]:
        is_excluded = NODE_POOL in rejected[name]["detail"]
        is_asked_for = selected in {None, name} and not is_excluded
        is_usable = name not in plan.unusable_pools
        return is_asked_for, is_excluded, is_usable, _ORDER[rejected[name]["constraint"]]

    name = max(sorted(rejected), key=closeness)
    closest = rejected[name]
    others = len(rejected) - 1
    reason = f"{closest['constraint']}: {closest['detail']}"
    if closest["constraint"] == PoolConstraint.PRIORITY:
        return FirstCause(reason)
    if others and all(each["detail"] == closest["detail"] for each in rejected.values()):
        return FirstCause(f"{reason} (in all NodePools)")
    return FirstCause(f'NodePool "{name}": {reason}', others)


def refusal_text(refusal: PodRefusal) -> str:
    """Return the words for what only the controller knows."""
    seen = instant_text(refusal.at)
    return f"the controller launches no node for it now: {refusal.message} (said at {seen})"


def _selected_pool(pod: PodView) -> str | None:
    """Return the only NodePool that a pod asks for by name; None if it does not ask for one."""
    values = [
        {value for each in term.match_expressions if _names_pools(each) for value in each.values}
        for term in pod.shape.required_node_terms
    ]
    named = values[0] if values and all(each == values[0] for each in values) else set[str]()
    selected = pod.shape.node_selector.get(NODE_POOL)
    return selected or (next(iter(named)) if len(named) == 1 else None)


def _names_pools(expression: NodeSelectorRequirement) -> bool:
    return expression.key == NODE_POOL and expression.operator == "In"
