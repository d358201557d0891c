"""Holds the results of the hooks for NodeClasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.conditions import Condition

__all__ = ["NodeClassHash", "NodeClassResolution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassResolution:
    """The resolved NodeClass: conditions to set, and the rest of the status as plain JSON values."""

    conditions: tuple[Condition, ...] = ()
    """Conditions that are missing here are kept."""
    status: Mapping[str, object] = field(default_factory=dict[str, object])
    retry_after: timedelta | None = None
    """Call again after this time, if the usual period is too long."""

    @classmethod
    def ready(cls, status: Mapping[str, object] | None = None) -> NodeClassResolution:
        """Return the condition Ready True with this status."""
        from karpenter_core.api.conditions import READY, TRUE, Condition

        return cls(
            conditions=(Condition(type=READY, status=TRUE, reason=READY),), status=status or {}
        )

    @classmethod
    def not_ready(cls, reason: str, message: str) -> NodeClassResolution:
        """Return the condition Ready False with a reason and message for the user."""
        from karpenter_core.api.conditions import FALSE, READY, Condition

        return cls(
            conditions=(Condition(type=READY, status=FALSE, reason=reason, message=message),)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassHash:
    """A hash of the NodeClass fields whose change is drift.

    Hashes of different `version` are never compared: raise it when the algorithm changes, so that no
    node is replaced for the change.
    """

    value: str
    version: str
