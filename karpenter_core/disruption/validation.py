"""Looking at a command again before it is carried out: the cluster went on meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karpenter_core.disruption.command import Command

__all__ = ["Rejection", "Verdict"]


class Rejection(StrEnum):
    """Why a command was given up."""

    CHURN = "churn"
    """Its candidates are no longer what they were."""
    BUDGET = "budget"
    """They are expected to take pods now, or their pool's budget is used up."""
    SCHEDULING = "scheduling"
    """Their pods would no longer fit where they were to go."""
    VETO = "veto"
    """A plug-in keeps them."""
    CONFLICT = "conflict"
    """They could not be marked: gone, or somebody else's already."""
    LAUNCH = "launch"
    """Their replacements may not, or could not, be ordered."""
    STALE = "stale"
    """The API server has not shown some kind recently: what the command rests on may be old."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verdict:
    """What is left of a command: all of it, a part, or nothing with the reason why.

    `failed` counts the candidates by which the metric of failed validations grows.
    """

    command: Command | None = None
    rejection: Rejection | None = None
    failed: int = 0
