"""What every disruption method has in common: one file per method, tried in order."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.disruption.balanced import pool_totals
from karpenter_core.disruption.budgets import pool_budgets
from karpenter_core.disruption.candidates import DisruptionClass, find_candidates
from karpenter_core.disruption.pricing import Prices
from karpenter_core.disruption.simulation import Simulation
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.problem import Framing

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.balanced import PoolTotals, Score
    from karpenter_core.disruption.budgets import DisruptionReason, PoolBudget
    from karpenter_core.disruption.candidates import Candidate, Candidates
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.stamp import Stamp
    from karpenter_core.disruption.validation import Verdict
    from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "Acceptance",
    "Budgets",
    "Declined",
    "DisruptionOptions",
    "Effort",
    "Method",
    "MethodPlan",
    "Pass",
    "Room",
    "Steps",
]

_Result = TypeVar("_Result")

Steps: TypeAlias = "Generator[int, None, _Result]"
"""Work done in small steps: yields units of work, returns the result."""

Budgets: TypeAlias = "Mapping[str, PoolBudget]"
"""By pool, for the reason of the method."""

Room: TypeAlias = "tuple[tuple[str, int], ...]"
"""How many nodes of each pool may be disrupted now, for the reason of a method; by pool name."""

VALIDATION_DELAY: Final = timedelta(seconds=15)  # upstream default


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionOptions:
    """How to disrupt; the defaults are the process' defaults."""

    validation_delay: timedelta = VALIDATION_DELAY
    framing: Framing = field(default_factory=Framing)
    solve: SolveOptions = field(default_factory=SolveOptions)
    spot_to_spot: bool = False
    """The feature gate `SpotToSpotConsolidation`."""
    paused: bool = False
    """Whether nothing is disrupted at all, as the setting `pause-disruption` says."""
    work_units: int = 4_000
    """What the search for several nodes may spend in one look, in the solver's units of about a
    tenth of a millisecond."""


@dataclass(slots=True)
class Effort:
    """How much longer a look may take; set from outside when it has taken too long."""

    is_spent: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """One look at the cluster: what every method is given.

    `command_id` and `cause` go into commands; `queued` are the provider ids that earlier commands
    are working on. `settled` are the methods, by name, that found nothing in this very state, with
    what the budgets left them then.
    """

    snapshot: Snapshot
    now: datetime
    command_id: str
    cause: str = ""
    queued: frozenset[str] = frozenset()
    settled: Mapping[str, Room] = field(default_factory=dict[str, "Room"])
    unseen: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """By method: pools that its last look had no time for; their nodes come first in this one."""
    resting: frozenset[str] = frozenset()
    """Pools whose drift is left alone for a while, since replacements kept failing."""
    options: DisruptionOptions = field(default_factory=DisruptionOptions)
    effort: Effort = field(default_factory=Effort)
    stamp: Stamp | None = None
    """The snapshot's, where it is known already."""
    cache: CatalogueCache | None = None
    failed: FailedJudgements = field(default_factory=FailedJudgements)
    """What was set aside in this look."""

    @cached_property
    def simulation(self) -> Simulation:
        """The what-ifs of this look."""
        return Simulation(
            self.snapshot,
            now=self.now,
            framing=self.options.framing,
            options=self.options.solve,
            cache=self.cache,
            failed=self.failed,
        )

    @cached_property
    def prices(self) -> Prices:
        """What machines cost."""
        return Prices(self.snapshot, self.options.solve, well_known=self.options.framing.well_known)

    @cached_property
    def totals(self) -> Mapping[str, PoolTotals]:
        """What pools cost and would be disturbed by, for the policy `Balanced`."""
        found = self.candidates(DisruptionClass.GRACEFUL).candidates
        return pool_totals(self.snapshot, found, self.prices)

    def candidates(self, disruption_class: DisruptionClass) -> Candidates:
        """Judge every machine, once for each class of methods."""
        found = self._candidates.get(disruption_class)
        if found is None:
            is_graceful = disruption_class is DisruptionClass.GRACEFUL
            known = None if is_graceful else self._candidates.get(DisruptionClass.GRACEFUL)
            found = self._candidates[disruption_class] = find_candidates(
                self.snapshot,
                now=self.now,
                disruption_class=disruption_class,
                queued=self.queued,
                nomination_window=self.options.framing.nomination_window,
                paused=self.options.paused,
                graceful=known,
                failed=self.failed,
            )
        return found

    def budgets(self, reason: DisruptionReason) -> Budgets:
        """Return the budgets of all pools, counted once for each reason."""
        found = self._budgets.get(reason)
        if found is None:
            found = self._budgets[reason] = pool_budgets(
                self.snapshot, reason, now=self.now, failed=self.failed
            )
        return found

    @cached_property
    def _budgets(self) -> dict[DisruptionReason, Budgets]:
        return {}

    @cached_property
    def _candidates(self) -> dict[DisruptionClass, Candidates]:
        return {}


class Declined(StrEnum):
    """The closed list of why a method is not about a candidate; the first that holds is reported."""

    STATIC = "static"
    """Its pool has a fixed number of nodes."""
    UNKNOWN_OFFERING = "unknownOffering"
    """Its instance type, zone or capacity type is not known, so neither is its price."""
    DISABLED = "disabled"
    """Its pool's `consolidateAfter` is `Never`, or it does not ask for what the method does."""
    EMPTY = "empty"
    """Nothing on it minds its going: the method is about machines in use."""
    NOT_EMPTY = "notEmpty"
    POLICY = "policy"
    """Its pool consolidates empty machines only."""
    UNSETTLED = "unsettled"
    """It does not have the condition `Consolidatable`."""
    NOT_DRIFTED = "notDrifted"
    DETECT_ONLY = "detectOnly"
    """Its pool's drift is shown and not acted on."""
    RESTING = "resting"
    """Its pool's replacements kept failing; drift is left alone for a while."""
    YOUNG = "young"
    """It has not run for as long as its pool wants before it returns."""
    FIRST_CHOICE = "firstChoice"
    """Nothing is preferred to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Whether a method takes a candidate, and if not, why, and what users are told."""

    accepted: bool
    declined: Declined | None = None
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MethodPlan:
    """What a method came to; `constrained` says that budgets held something back.

    `is_cut_short` says that it would have looked at more, had there been time, and `unseen` names
    the pools of which it has looked at nothing.
    """

    commands: tuple[Command, ...] = ()
    constrained: bool = False
    is_cut_short: bool = False
    unseen: frozenset[str] = frozenset()
    notices: tuple[Notice, ...] = ()
    scores: tuple[Score, ...] = ()
    """How moves were judged under the policy `Balanced` (for others: approved, without a score)."""


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

    @property
    def is_validated(self) -> bool:
        """Whether commands are looked at again after a while, before they are carried out."""
        ...

    @property
    def remembers(self) -> bool:
        """Whether a look that found nothing need not be repeated until something has changed."""
        ...

    def accept(self, candidate: Candidate, look: Pass) -> Acceptance:
        """Say whether the method is about this candidate."""
        ...

    def plan_steps(
        self, look: Pass, candidates: tuple[Candidate, ...], budgets: Budgets
    ) -> Steps[MethodPlan]:
        """Choose among accepted candidates what to disrupt now."""
        ...

    def validate_steps(self, command: Command, look: Pass) -> Steps[Verdict]:
        """Look at a command again after the wait and say what of it still holds."""
        ...
