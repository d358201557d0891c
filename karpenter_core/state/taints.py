"""Selects the taints of a node that count, during boot and afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import UNREGISTERED_TAINT
from karpenter_core.api.records import Taint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.nodeclaim import NodeClaim, TaintSpec
    from karpenter_core.api.records import NodeView

__all__ = ["UNREGISTERED", "effective_taints", "has_taint", "is_ephemeral", "taint_of"]

UNREGISTERED: Final = Taint(key=UNREGISTERED_TAINT, effect="NoExecute")
"""The taint with which a node boots, and which its registration removes."""

READINESS_PREFIX: Final = "readiness.k8s.io/"

_EPHEMERAL: Final = frozenset(
    {
        ("node.kubernetes.io/not-ready", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
        (UNREGISTERED.key, UNREGISTERED.effect),
    },
)
"""Taints that every node may carry while it boots (upstream's list)."""


def is_ephemeral(taint: Taint) -> bool:
    """Tell whether a taint is normally removed while a node boots."""
    return (taint.key, taint.effect) in _EPHEMERAL or taint.key.startswith(READINESS_PREFIX)


def taint_of(spec: TaintSpec) -> Taint:
    """Return a taint of a manifest as nodes carry it."""
    return Taint(key=spec.key, effect=spec.effect, value=spec.value)


def has_taint(taints: Iterable[Taint], taint: Taint) -> bool:
    """Tell whether a taint of that key and effect is there; values do not matter."""
    return any(item.key == taint.key and item.effect == taint.effect for item in taints)


def effective_taints(
    node: NodeView | None, claim: NodeClaim | None, *, registered: bool, initialized: bool
) -> tuple[Taint, ...]:
    """Return the taints that keep pods away from a node.

    Before registration they are those of the claim. Before initialisation ephemeral and startup
    taints do not count. A node without a claim is taken as it is.
    """
    if claim is None:
        return () if node is None else node.taints
    if node is None or not registered:
        taints = tuple(taint_of(spec) for spec in claim.spec.taints)
    else:
        taints = node.taints
    if initialized:
        return taints
    startup = tuple(taint_of(spec) for spec in claim.spec.startup_taints)
    return tuple(
        taint for taint in taints if not is_ephemeral(taint) and not has_taint(startup, taint)
    )
