"""Marks expendable pods: no node is launched, kept or replaced for them.

They use only free capacity. A pod is expendable if its priority is below the cut-off of the settings,
or if it has the annotation `karpenter.sh/expendable: "true"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import EXPENDABLE

if TYPE_CHECKING:
    from karpenter_core.api.records import PodShape, PodView

__all__ = ["NO_CUTOFF", "expendable_reason", "is_preemptible"]

NO_CUTOFF: Final = -(2**31)
"""The lowest priority of a pod: none is below it."""


def expendable_reason(shape: PodShape, cutoff: int) -> str:
    """Return why pods of a shape are expendable; empty if they are not.

    `cutoff` is the lowest priority of pods for which nodes are launched.
    """
    if shape.annotations.get(EXPENDABLE) == "true":
        return f'no node is launched for the pod: it has the annotation {EXPENDABLE}: "true"'
    if shape.priority < cutoff:
        return (
            f"no node is launched for the pod: its priority {shape.priority} is below {cutoff} "
            "(--priority-cutoff)"
        )
    return ""


def is_preemptible(pod: PodView, cutoff: int) -> bool:
    """Tell whether Kubernetes' scheduler evicts the pod for any pod for which nodes are launched.

    It is expendable, and its priority is below that of pods without a PriorityClass.
    """
    shape = pod.shape
    return shape.priority < 0 and pod.is_reschedulable and bool(expendable_reason(shape, cutoff))
