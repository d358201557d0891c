"""Defines the result of validating a command again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karpenter_core.disruption.command import Command

__all__ = ["CommandRejection", "ValidationVerdict"]


class CommandRejection(StrEnum):
    """The reason why a command was given up."""

    CHURN = "churn"
    """Its candidates are no longer what they were."""
    BUDGET = "budget"
    """They expect pods now, or their pool's budget is used up."""
    SCHEDULING = "scheduling"
    """Their pods no longer find the planned places."""
    VETO = "veto"
    """A plug-in keeps them."""
    CONFLICT = "conflict"
    """They could not be marked: gone, or already marked by another process."""
    LAUNCH = "launch"
    """Their replacements were refused or could not be created."""
    STALE = "stale"
    """The state of some kind may be stale: the API server has not shown it recently."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValidationVerdict:
    """The validated command, whole or shortened, or the reason of its rejection.

    `failed_candidates` is added to the metric of failed validations.
    """

    command: Command | None = None
    rejection: CommandRejection | None = None
    failed_candidates: int = 0
