"""Decides which pods are expendable: no node is launched, kept or replaced for them.

They use only free capacity. A pod is expendable if its priority is below the cut-off of the settings,
or if it has the annotation `karpenter.sh/expendable: "true"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import EXPENDABLE

if TYPE_CHECKING:
    from karpenter_core.api.records import PodShape

__all__ = ["NO_CUTOFF", "expendable_reason"]

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
