"""Scores nodes like `NodeResourcesFit`'s default strategy `LeastAllocated`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CPU, MEMORY

if TYPE_CHECKING:
    from karpenter_core.api.records import Resources

__all__ = ["free_share"]

_SCORED: Final = (CPU, MEMORY)
"""The resources that the scheduler weighs, equally."""


def free_share(*, available: Resources, allocatable: Resources, requests: Resources) -> float:
    """Return the sum of the allocatable shares that stay free beside a pod with these requests.

    The scheduler binds the pod to the node with the largest one. A resource that a node does not have
    counts nothing.
    """
    return sum(
        (available.get(name, 0) - requests.get(name, 0)) / total
        for name in _SCORED
        if (total := allocatable.get(name, 0)) > 0
    )
