"""Sums the requests of a pod's containers as the Kubernetes scheduler does.

KEP-753 (sidecars), KEP-2837 (pod-level resources), RuntimeClass overhead. Amounts are integers in
fixed units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from karpenter_core.api.labels import CPU, MEMORY, PODS
from karpenter_core.api.quantities import LARGEST_AMOUNT
from karpenter_core.api.records import ContainerStage, PodRequestParts

__all__ = [
    "ContainerAmounts",
    "keep_pod_level",
    "larger_amounts",
    "sum_amounts",
    "sum_containers",
    "total_requests",
]

_HUGE_PAGES: Final = "hugepages-"


ContainerAmounts: TypeAlias = tuple[ContainerStage, Mapping[str, int]]


def total_requests(
    parts: PodRequestParts, predicted: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, int]:
    """Return the pod's requests, `pods: 1` included; some containers may have others then."""
    changed = predicted or {}
    total = sum_containers(
        (one.stage, {**one.requests, **changed.get(one.name, {})}) for one in parts.containers
    )
    defaults = {
        name: amount for name, amount in parts.pod_level_limits.items() if name not in total
    }
    total |= keep_pod_level({**defaults, **parts.pod_level_requests})
    total = sum_amounts((total, parts.overhead))
    total[PODS] = 1
    return {name: min(amount, LARGEST_AMOUNT) for name, amount in total.items()}


def sum_containers(containers: Iterable[ContainerAmounts]) -> dict[str, int]:
    """Sum the containers that run together, and take the maximum over the start-up.

    Init containers run one after the other; each restartable one stays and is added to all that
    come after it.
    """
    total: dict[str, int] = {}
    running: dict[str, int] = {}
    start_up: dict[str, int] = {}
    for stage, amounts in containers:
        match stage:
            case ContainerStage.MAIN:
                total = sum_amounts((total, amounts))
                continue
            case ContainerStage.SIDECAR:
                moment = running = sum_amounts((running, amounts))
                total = sum_amounts((total, amounts))
            case ContainerStage.START_UP:
                moment = sum_amounts((running, amounts))
        start_up = larger_amounts(start_up, moment)
    return larger_amounts(total, start_up)


def keep_pod_level(written: Mapping[str, int]) -> dict[str, int]:
    """Keep the resources that pod-level resources may replace."""
    return {
        name: amount
        for name, amount in written.items()
        if name in {CPU, MEMORY} or name.startswith(_HUGE_PAGES)
    }


def sum_amounts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add amounts up, by name."""
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def larger_amounts(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    """Return the larger amount of each name."""
    result = dict(left)
    for name, amount in right.items():
        if amount > result.get(name, amount - 1):
            result[name] = amount
    return result
