"""Verdicts of disruption methods on candidates, with decline reasons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karpenter_core.api.notices import Notice

__all__ = ["CandidateAcceptance", "DeclineReason"]


class DeclineReason(StrEnum):
    """The closed list of reasons why a method declines a candidate; the first one is reported."""

    STATIC = "static"
    """Its pool has a fixed number of nodes."""
    UNKNOWN_OFFERING = "unknownOffering"
    """Its instance type, zone or capacity type is unknown, and so is its price."""
    DISABLED = "disabled"
    """Its pool's `consolidateAfter` is `Never`, or its pool does not enable the method."""
    EMPTY = "empty"
    """It is empty, and the method takes nodes in use."""
    NOT_EMPTY = "notEmpty"
    BUFFER = "buffer"
    """It is empty, and has room that is kept free for virtual pods."""
    POLICY = "policy"
    """Its pool consolidates empty nodes only."""
    UNSETTLED = "unsettled"
    """It does not have the condition `Consolidatable`."""
    NOT_DRIFTED = "notDrifted"
    DETECT_ONLY = "detectOnly"
    """Its pool shows drift and does not act on it."""
    DRIFT_BACKOFF = "driftBackoff"
    """Its pool's replacements kept failing; drift backs off for a while."""
    YOUNG = "young"
    """It is younger than the age from which its pool returns nodes."""
    NOT_SHUT_DOWN = "notShutDown"
    """No window of its pool's schedules shuts the pool down now."""
    FIRST_CHOICE = "firstChoice"
    """No capacity type or pool is preferred to its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateAcceptance:
    """Whether a method accepts a candidate; if not, the reason and the Events about it."""

    accepted: bool
    decline_reason: DeclineReason | None = None
    notices: tuple[Notice, ...] = ()
