"""What every disruption method has in common: one file per method, tried in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from karpenter_core.state.placements import NOMINATION_WINDOW

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.budgets import DisruptionReason, PoolBudget
    from karpenter_core.disruption.candidates import Candidate, DisruptionClass
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.validation import Verdict
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["Acceptance", "DisruptionOptions", "Method", "MethodPlan", "Pass"]

VALIDATION_DELAY: Final = timedelta(seconds=15)  # upstream default


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionOptions:
    """How to disrupt; the defaults are the process' defaults."""

    validation_delay: timedelta = VALIDATION_DELAY
    nomination_window: timedelta = NOMINATION_WINDOW


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """One look at the cluster: what every method is given.

    `command_id` and `cause` go into the command, if one comes of it; `queued` are the provider ids
    that earlier commands are working on.
    """

    snapshot: Snapshot
    now: datetime
    command_id: str
    cause: str = ""
    queued: frozenset[str] = frozenset()
    options: DisruptionOptions = field(default_factory=DisruptionOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Whether a method takes a candidate, and what users are told if not."""

    accepted: bool
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MethodPlan:
    """What a method came to; `constrained` says that budgets held something back."""

    command: Command | None = None
    constrained: bool = False
    notices: tuple[Notice, ...] = ()


class Method(Protocol):
    """A way to find nodes to disrupt."""

    @property
    def name(self) -> str:
        """The method's name in logs and explanations."""
        ...

    @property
    def reason(self) -> DisruptionReason:
        """The reason budgets, conditions and Events go by."""
        ...

    @property
    def consolidation_type(self) -> str:
        """The label of metrics."""
        ...

    @property
    def disruption_class(self) -> DisruptionClass:
        """How much it respects the wishes of pods."""
        ...

    def accept(self, candidate: Candidate) -> Acceptance:
        """Say whether the method is about this candidate."""
        ...

    def plan(
        self,
        look: Pass,
        candidates: tuple[Candidate, ...],
        budgets: Mapping[str, PoolBudget],
    ) -> MethodPlan:
        """Choose among accepted candidates what to disrupt now."""
        ...

    def validate(self, command: Command, look: Pass) -> Verdict:
        """Look at a command again after the wait and say what of it still holds."""
        ...
