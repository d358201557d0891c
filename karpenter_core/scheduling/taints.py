"""Matches taints and tolerations.

As Kubernetes matches them, with the numeric operators (KEP-5471). Every effect counts, also
PreferNoSchedule: a preference is given up by relaxation only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.records import Toleration
from karpenter_core.scheduling.requirements import parse_integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.records import Taint

__all__ = ["PREFERENCE_TOLERATION", "first_untolerated", "taint_text", "tolerates"]

PREFERENCE_TOLERATION: Final = Toleration(operator="Exists", effect="PreferNoSchedule")
"""The toleration that the last relaxation step adds to a pod, and that every daemon has."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration answers one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt":
            bound, value = parse_integer(toleration.value), parse_integer(taint.value)
            if bound is None or value is None:
                return False
            return value > bound if toleration.operator == "Gt" else value < bound
        case _:
            return False


def first_untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first taint that nothing answers; None when all are tolerated."""
    for taint in taints:
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def taint_text(taint: Taint) -> str:
    """Write a taint the way `kubectl taint` does: `key[=value]:effect`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
