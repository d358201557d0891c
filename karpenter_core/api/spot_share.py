"""Spot shares: the part of a NodePool's nodes that should be spot.

The annotation `karpenter.sh/spot-share` of a NodePool sets it as a percentage (`70%`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import SPOT_SHARE
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from karpenter_core.api.nodepool import NodePool

__all__ = ["OTHER_NODES", "SPOT_NODES", "is_spot_due", "read_spot_share", "spot_share_error"]

SPOT_NODES: Final = "nodes/spot"
OTHER_NODES: Final = "nodes/other"
"""Names under which the usage of a NodePool with a share counts its nodes, spot and others."""

_WHOLE: Final = 100.0


def read_spot_share(pool: NodePool) -> float | None:
    """Return the share of spot, 0 to 1; None if the NodePool sets none.

    Raises:
        BadInputError: the annotation cannot be read.
    """
    text = pool.metadata.annotations.get(SPOT_SHARE)
    if text is None:
        return None
    try:
        value = float(text.strip().removesuffix("%")) if text.strip().endswith("%") else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value <= _WHOLE:
        raise BadInputError(
            f'annotation {SPOT_SHARE}: "{text}" is not a percentage from 0% to 100%'
        )
    return value / _WHOLE


def spot_share_error(pool: NodePool) -> str:
    """Return the error of a NodePool's share; empty if it is valid."""
    try:
        read_spot_share(pool)
    except BadInputError as error:
        return str(error)
    return ""


def is_spot_due(share: float, *, spot: int, others: int) -> bool:
    """Tell whether the next node should be spot, so that shares differ by one node at most."""
    total = spot + others + 1
    return abs(spot + 1 - share * total) <= abs(spot - share * total)
