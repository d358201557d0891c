"""Defines the protocol of disruption methods and the pass they run in."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.api.labels import WELL_KNOWN
from karpenter_core.disruption.balanced import BALANCED, pool_totals
from karpenter_core.disruption.budgets import pool_budgets
from karpenter_core.disruption.buffer_room import BufferRoom
from karpenter_core.disruption.candidates import DisruptionClass, evaluate_nodes
from karpenter_core.disruption.expendable_moves import ExpendableMoves
from karpenter_core.disruption.pass_memory import DisruptionMemory
from karpenter_core.disruption.pricing import NodePrices
from karpenter_core.disruption.simulation import DisruptionSimulation
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.commitments import commitment_balances
from karpenter_core.state.provisioning_input import ProblemSettings

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.acceptance import CandidateAcceptance
    from karpenter_core.disruption.balanced import BalancedScore, PoolTotals
    from karpenter_core.disruption.budgets import DisruptionReason, PoolBudget
    from karpenter_core.disruption.candidates import Candidate, NodeEvaluation
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.fingerprint import ConsolidationFingerprint
    from karpenter_core.disruption.validation import ValidationVerdict
    from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "DisruptionMethod",
    "DisruptionOptions",
    "DisruptionPass",
    "MethodPlan",
    "PassTimeLimit",
    "PoolBudgets",
    "RemainingBudgets",
    "WorkSteps",
]

_Result = TypeVar("_Result")

WorkSteps: TypeAlias = "Generator[int, None, _Result]"
"""Work done in small steps: yields units of work, returns the result."""

PoolBudgets: TypeAlias = "Mapping[str, PoolBudget]"
"""By pool, for the reason of the method."""

RemainingBudgets: TypeAlias = "tuple[tuple[str, int], ...]"
"""Pool names with the number of nodes that may be disrupted now, for a method's reason."""

VALIDATION_DELAY: Final = timedelta(seconds=15)  # upstream default


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionOptions:
    """Options of a pass; the defaults are those of the process."""

    validation_delay: timedelta = VALIDATION_DELAY
    problem_settings: ProblemSettings = field(default_factory=ProblemSettings)
    solve: SolveOptions = field(default_factory=SolveOptions)
    spot_to_spot: bool = False
    """The feature gate `SpotToSpotConsolidation`."""
    static_capacity: bool = False
    """The feature gate `StaticCapacity`."""
    paused: bool = False
    """Whether disruption is paused in the whole cluster (setting `pause-disruption`)."""
    work_units: int = 4_000
    """Work units, of about a tenth of a millisecond, that multi-node consolidation may spend in
    one pass."""


@dataclass(slots=True)
class PassTimeLimit:
    """The time limit of a pass; the caller sets `is_reached` when the pass takes too long."""

    is_reached: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class DisruptionPass:
    """One pass of the disruption planner: the data that every method works on.

    `command_id` and `cause` go into commands; `queued` are the provider IDs that earlier commands
    disrupt. `idle_methods` are the methods, by name, that found nothing in this same state, with
    the budgets that remained then.
    """

    snapshot: Snapshot
    now: datetime
    command_id: str
    cause: str = ""
    queued: frozenset[str] = frozenset()
    idle_methods: Mapping[str, RemainingBudgets] = field(
        default_factory=dict[str, "RemainingBudgets"]
    )
    unexamined_pools: Mapping[str, frozenset[str]] = field(
        default_factory=dict[str, frozenset[str]]
    )
    """By method: pools that its last pass had no time for; their nodes come first in this one."""
    drift_backoff_pools: frozenset[str] = frozenset()
    """Pools whose drifted nodes are not replaced for a while, since replacements kept failing."""
    options: DisruptionOptions = field(default_factory=DisruptionOptions)
    time_limit: PassTimeLimit = field(default_factory=PassTimeLimit)
    fingerprint: ConsolidationFingerprint | None = None
    """The fingerprint of the snapshot, where it is computed already."""
    cache: CatalogueCache | None = None
    memory: DisruptionMemory = field(default_factory=DisruptionMemory)
    """Results of earlier passes; the pass adds its own."""
    failed: FailedJudgements = field(default_factory=FailedJudgements)
    """Objects that were set aside in this pass."""

    @cached_property
    def simulation(self) -> DisruptionSimulation:
        """The what-ifs of this pass."""
        return DisruptionSimulation(
            self.snapshot,
            now=self.now,
            problem_settings=self.options.problem_settings,
            options=self.options.solve,
            cache=self.cache,
            failed=self.failed,
            memory=self.memory,
        )

    @cached_property
    def expendable_moves(self) -> ExpendableMoves:
        """The places that expendable pods of nodes would take."""
        return ExpendableMoves(
            self.snapshot,
            now=self.now,
            problem_settings=self.options.problem_settings,
            options=self.options.solve,
        )

    @cached_property
    def buffer_room(self) -> BufferRoom:
        """The room of capacity buffers."""
        return BufferRoom(
            self.snapshot,
            now=self.now,
            problem_settings=self.options.problem_settings,
            memory=self.memory.nodes,
        )

    @cached_property
    def prices(self) -> NodePrices:
        """Prices of nodes."""
        settings = self.options.problem_settings
        return NodePrices(
            self.snapshot,
            self.options.solve,
            well_known=settings.well_known,
            commitments=commitment_balances(
                self.snapshot,
                settings.commitments,
                settings.launch_limits.rates,
                well_known=WELL_KNOWN | settings.well_known,
                aliases=settings.aliases,
            ),
        )

    @cached_property
    def totals(self) -> Mapping[str, PoolTotals]:
        """Cost and disruption cost of every pool; none if no pool has the policy `Balanced`."""
        policies = {
            pool.spec.disruption.consolidation_policy for pool in self.snapshot.node_pools.values()
        }
        if BALANCED not in policies:
            return {}
        graceful_candidates = self.candidates(DisruptionClass.GRACEFUL).candidates
        return pool_totals(self.snapshot, graceful_candidates, self.prices)

    def candidates(self, disruption_class: DisruptionClass) -> NodeEvaluation:
        """Evaluate every node, once for each class of methods."""
        evaluated = self._candidates.get(disruption_class)
        if evaluated is None:
            is_graceful = disruption_class is DisruptionClass.GRACEFUL
            graceful_candidates = (
                None if is_graceful else self._candidates.get(DisruptionClass.GRACEFUL)
            )
            evaluated = self._candidates[disruption_class] = evaluate_nodes(
                self.snapshot,
                now=self.now,
                disruption_class=disruption_class,
                queued=self.queued,
                nomination_window=self.options.problem_settings.nomination_window,
                paused=self.options.paused,
                graceful=graceful_candidates,
                failed=self.failed,
                memory=self.memory.candidates,
            )
        return evaluated

    def budgets(self, reason: DisruptionReason) -> PoolBudgets:
        """Return the budgets of all pools, counted once for each reason."""
        budgets = self._budgets.get(reason)
        if budgets is None:
            budgets = self._budgets[reason] = pool_budgets(
                self.snapshot,
                reason,
                now=self.now,
                failed=self.failed,
                memory=self.memory.budget_uses,
            )
        return budgets

    @cached_property
    def _budgets(self) -> dict[DisruptionReason, PoolBudgets]:
        return {}

    @cached_property
    def _candidates(self) -> dict[DisruptionClass, NodeEvaluation]:
        return {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MethodPlan:
    """The result of one method; `constrained` says that budgets kept candidates from it.

    `is_cut_short` says that the time limit ended it early, `unexamined_pools` names the pools of
    which it has evaluated no candidate.
    """

    commands: tuple[Command, ...] = ()
    constrained: bool = False
    is_cut_short: bool = False
    unexamined_pools: frozenset[str] = frozenset()
    notices: tuple[Notice, ...] = ()
    scores: tuple[BalancedScore, ...] = ()
    """Scores of moves under the policy `Balanced` (for others: approved, without a score)."""


class DisruptionMethod(Protocol):
    """A way to find nodes to disrupt."""

    @property
    def name(self) -> str:
        """The method's name in logs and explanations."""
        ...

    @property
    def reason(self) -> DisruptionReason:
        """The reason in budgets, conditions and Events."""
        ...

    @property
    def consolidation_type(self) -> str:
        """The value of the metric label."""
        ...

    @property
    def disruption_class(self) -> DisruptionClass:
        """Whether pods can block the method."""
        ...

    @property
    def is_validated(self) -> bool:
        """Whether commands are validated again after a wait, before they are executed."""
        ...

    @property
    def skips_unchanged_state(self) -> bool:
        """Whether the method is skipped after it found nothing, until something has changed."""
        ...

    def accept(self, candidate: Candidate, disruption_pass: DisruptionPass) -> CandidateAcceptance:
        """Accept or decline a candidate."""
        ...

    def acceptance_inputs(self, disruption_pass: DisruptionPass) -> object:
        """Return everything beside a candidate that `accept` depends on, to be compared by value.

        None if that is too much: then every pass accepts all candidates anew.
        """
        ...

    def plan_steps(
        self,
        disruption_pass: DisruptionPass,
        candidates: tuple[Candidate, ...],
        budgets: PoolBudgets,
    ) -> WorkSteps[MethodPlan]:
        """Choose among accepted candidates what to disrupt now."""
        ...

    def validate_steps(
        self, command: Command, disruption_pass: DisruptionPass
    ) -> WorkSteps[ValidationVerdict]:
        """Validate a command again after the wait; return the part that still holds."""
        ...
