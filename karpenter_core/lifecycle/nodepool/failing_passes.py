"""Sets the condition PassesSucceed: False while a controller keeps failing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import FALSE
from karpenter_core.lifecycle.claim_status import truncate_message
from karpenter_core.lifecycle.nodepool.status import with_condition, without_condition

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool

__all__ = ["PASSES_SUCCEED", "with_failing_passes"]

PASSES_SUCCEED: Final = "PassesSucceed"
"""Condition beside Ready: False while passes of a controller fail in a row; absent otherwise."""


def with_failing_passes(pool: NodePool, problem: str, *, now: datetime) -> NodePool:
    """Return the pool with the condition while there is a problem, and without it otherwise.

    A controller's passes serve all pools, so every pool has the condition.
    """
    if not problem:
        return without_condition(pool, PASSES_SUCCEED)
    return with_condition(
        pool,
        type=PASSES_SUCCEED,
        status=FALSE,
        reason="PassFailing",
        message=truncate_message(problem),
        now=now,
    )
