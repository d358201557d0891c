"""Status conditions, as data and as pure operations on them.

The rules (which conditions the root depends on, how transition times and observed generations
move, the stored order) are those of `spec/lifecycle-disruption.md` 0.2; dashboards and the
reference's own tests read them, so they are exact.
"""

from __future__ import annotations

from karpenter_core.api.base import Model, Timestamp

__all__ = ["Condition"]


class Condition(Model):
    """One status condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Timestamp | None = None
    observed_generation: int | None = None
