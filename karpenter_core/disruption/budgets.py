"""Computes how many nodes of a NodePool its budgets allow to disrupt."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from karpenter_core.api.cron_schedule import CronSchedule
from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.api.node_shares import parse_node_share
from karpenter_core.api.notices import Notice
from karpenter_core.disruption.command_queue import find_stale_mark
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.identity_memo import IdentityMemo
from karpenter_core.state.state_nodes import is_instance_terminating

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodepool import Budget, NodePool
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "UNLIMITED",
    "BudgetUse",
    "DisruptionReason",
    "PoolBudget",
    "allowed_by",
    "allowed_disruptions",
    "blocking_notice",
    "budget_errors",
    "inactive_from",
    "is_active",
    "next_opening",
    "pool_budgets",
]

_LONGEST_WAIT: Final = timedelta(days=1)
BudgetUse: TypeAlias = "tuple[str, bool] | None"
"""The pool of a node and whether it consumes a budget; None if it counts for no budget."""

UNLIMITED: Final = 2**31 - 1
"""Number of nodes that an inactive budget allows (upstream's value)."""


class DisruptionReason(StrEnum):
    """The reasons for which a node may be disrupted voluntarily."""

    UNDERUTILIZED = "Underutilized"
    EMPTY = "Empty"
    DRIFTED = "Drifted"
    SHUTDOWN = "Shutdown"
    """A window of the pool's schedules shuts it down; budgets for all reasons apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBudget:
    """Disruptions that the budgets of a pool allow for one reason.

    `allowed` is the number in the budgets, `consuming` the number of nodes that are being removed
    or are not Ready for any cause, and `remaining` the number that may still be disrupted.
    """

    pool: str
    reason: DisruptionReason
    total: int
    allowed: int
    consuming: int
    errors: tuple[str, ...]

    @property
    def remaining(self) -> int:
        """Number of nodes that may still be disrupted."""
        return max(self.allowed - self.consuming, 0)


def is_active(budget: Budget, now: datetime) -> bool:
    """Tell whether a budget restricts anything now.

    One without a schedule always does. Otherwise a hit of the schedule lies within the last
    `duration`, the beginning of which is not counted.

    Raises:
        BadInputError: the schedule or duration cannot be read.
    """
    if budget.schedule is None and budget.duration is None:
        return True
    if budget.schedule is None or budget.duration is None:
        raise BadInputError("a budget has a schedule and a duration, or neither")
    schedule = CronSchedule.parse(budget.schedule)
    hit = schedule.next_after(now - budget.duration.timedelta)
    return hit is not None and hit <= now


def inactive_from(budget: Budget, now: datetime) -> datetime | None:
    """Return when a budget that restricts something now ends to do so; None if it never does.

    Windows that overlap or meet count as one, up to a day.

    Raises:
        BadInputError: the schedule or duration cannot be read.
    """
    if budget.schedule is None or budget.duration is None:
        return None
    schedule, duration = CronSchedule.parse(budget.schedule), budget.duration.timedelta
    end, latest = now, now + _LONGEST_WAIT
    while end <= latest:
        hit = schedule.next_after(end - duration)
        if hit is None or hit > end:
            return end
        end = hit + duration
    return None


def next_opening(pool: NodePool, now: datetime) -> datetime | None:
    """Return when the first of a pool's budgets that are active now ends; None without one.

    Raises:
        BadInputError: a budget cannot be read.
    """
    ends = (
        inactive_from(budget, now)
        for budget in pool.spec.disruption.budgets
        if is_active(budget, now)
    )
    return min((end for end in ends if end is not None), default=None)


def allowed_by(budget: Budget, total: int, now: datetime) -> int:
    """Return how many of a pool's `total` nodes one budget allows; a percentage rounds up.

    Raises:
        BadInputError: the budget cannot be read.
    """
    if not is_active(budget, now):
        return UNLIMITED
    share = parse_node_share(budget.nodes)
    if share is None:
        raise BadInputError(
            f'budget: nodes is "{budget.nodes}", which is neither a number nor a percentage'
        )
    if share.is_percentage:
        return -(-total * share.number // 100)
    return share.number


def budget_errors(pool: NodePool, now: datetime) -> tuple[str, ...]:
    """Return the errors in a pool's budgets; with any error, nothing is disrupted."""
    errors: list[str] = []
    for index, budget in enumerate(pool.spec.disruption.budgets):
        try:
            allowed_by(budget, 0, now)
        except BadInputError as error:
            errors.append(f"NodePool {pool.name}: spec.disruption.budgets[{index}]: {error}")
    return tuple(errors)


def allowed_disruptions(
    pool: NodePool, reason: DisruptionReason, *, total: int, now: datetime
) -> int:
    """Return the least that any budget for this reason allows.

    Raises:
        BadInputError: a budget cannot be read.
    """
    return min(
        (
            allowed_by(budget, total, now)
            for budget in pool.spec.disruption.budgets
            if budget.reasons is None or reason in budget.reasons
        ),
        default=UNLIMITED,
    )


def pool_budgets(
    snapshot: Snapshot,
    reason: DisruptionReason,
    *,
    now: datetime,
    failed: FailedJudgements | None,
    memory: IdentityMemo[StateNode, BudgetUse] | None,
) -> dict[str, PoolBudget]:
    """Return every pool's budget for one reason; a pool with a malformed one allows nothing.

    A pool whose budget cannot be evaluated is added to `failed` and left out: it allows nothing.
    `memory` holds what earlier passes found of nodes.
    """
    failed = failed or FailedJudgements()
    memory = IdentityMemo() if memory is None else memory
    uses = Counter(memory.values(snapshot.counted_nodes, _budget_use))
    budgets: dict[str, PoolBudget] = {}
    for name, pool in sorted(snapshot.node_pools.items()):
        total = uses[name, False] + uses[name, True]
        with failed.judging(pool.ref, "disruption"):
            errors = budget_errors(pool, now)
            budgets[name] = PoolBudget(
                pool=name,
                reason=reason,
                total=total,
                allowed=0 if errors else allowed_disruptions(pool, reason, total=total, now=now),
                consuming=uses[name, True],
                errors=errors,
            )
    return budgets


def blocking_notice(pool: NodePool, budget: PoolBudget) -> Notice | None:
    """Return an Event on a pool with nodes whose budgets allow no disruption."""
    if budget.total == 0 or budget.allowed != 0:
        return None
    return Notice(
        regarding=pool.ref,
        type="Normal",
        reason="DisruptionBlocked",
        message=(
            f"No allowed disruptions for disruption reason {budget.reason} due to blocking budget"
        ),
        dedupe=(pool.uid, str(budget.reason)),
        window=timedelta(minutes=1),
    )


def _budget_use(state_node: StateNode) -> BudgetUse:
    """Return the pool of a node that counts for its budgets, and whether it is being disrupted."""
    if not _is_counted(state_node):
        return None
    return state_node.pool, _is_consuming(state_node)


def _is_counted(state_node: StateNode) -> bool:
    return (
        state_node.claim is not None
        and state_node.initialized
        and bool(state_node.pool)
        and not is_instance_terminating(state_node.claim)
    )


def _is_consuming(state_node: StateNode) -> bool:
    ready = state_node.node is not None and state_node.node.ready == "True"
    # A node that a failed command could not unmark yet takes no pods: it counts as disrupted.
    return not ready or state_node.marked_for_deletion or find_stale_mark(state_node) is not None
