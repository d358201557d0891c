"""Repeats disruption passes over a state that each command changes.

Each command is carried out in the state after its validation. The passes are those of the
controller (`disruption.plan`): the same methods, budgets, PodDisruptionBudgets and prices, at the
times at which its loop runs them. Evicted pods are bound as kube-scheduler binds them. Pending pods
are placed before each pass, as the controller does. When nothing can be disrupted, time moves to
the next end of a `consolidateAfter` or of a window of budgets. Nothing here reads a clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.cli.disruption_passes import count_virtual, disruption_pass
from karpenter_core.cli.rebalance.evicted_pods import eviction_order, scheduler_places
from karpenter_core.cli.rebalance.folding import StateFold
from karpenter_core.disruption.budgets import DisruptionReason, budget_errors, next_opening
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.disruption.plan import methods_of, plan
from karpenter_core.scheduling.isolation import solve_isolated
from karpenter_core.state.pool_schedules import shuts_down_pools
from karpenter_core.state.provisioning_input import build_provisioning_input

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.cli.cluster_source import CommandInput
    from karpenter_core.disruption.blocked_nodes import BlockedNode
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import DisruptionMethod, DisruptionPass
    from karpenter_core.scheduling.problem import PlannedNodeClaim
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["NodeCosts", "Rebalance", "RebalanceStep", "disruptions_now", "simulate_rebalance"]

_MOST_PASSES: Final = 4_000
_HORIZON: Final = timedelta(days=1)
"""Time after which quiet times are not awaited any more."""
_POLL: Final = timedelta(seconds=10)
"""Time between two passes without commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCosts:
    """Number and price per hour of the nodes of NodePools, in the reporting currency."""

    nodes: int
    price_per_hour: float
    unknown_prices: int


_NOTHING: Final = NodeCosts(nodes=0, price_per_hour=0.0, unknown_prices=0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RebalanceStep:
    """One command, the time after the start at which it is planned, and the price after it."""

    command: Command
    after: timedelta
    price_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rebalance:
    """All steps, the costs before and after, and the nodes that stay because something blocks them.

    `is_complete` is False if the number of passes or the horizon ended the simulation.
    """

    steps: tuple[RebalanceStep, ...]
    before: NodeCosts
    after: NodeCosts
    launched: NodeCosts
    """The nodes that were launched for pods that were pending at the start."""
    relaunched: NodeCosts
    """The nodes that were launched for evicted pods which the scheduler bound elsewhere than planned."""
    blocked: tuple[BlockedNode, ...]
    is_complete: bool
    exhausted_pools: tuple[str, ...] = ()
    """NodePools whose budgets allow no disruption at the end."""

    @property
    def savings_per_hour(self) -> float:
        """Savings of all steps together, less the price of the nodes that evicted pods needed."""
        saved = sum(step.command.evidence.savings_per_hour for step in self.steps)
        return saved - self.relaunched.price_per_hour


def disruptions_now(command_input: CommandInput) -> Rebalance:
    """Return the commands of one pass of the controller, drift included."""
    snapshot = count_virtual(command_input.cluster).snapshot
    planner_pass = _pass(command_input, snapshot, command_input.cluster.now)
    methods = methods_of(planner_pass.options, shuts_down=shuts_down_pools(snapshot.pool_schedules))
    before = _costs(planner_pass)
    commands = plan(planner_pass, methods=methods).commands
    price = before.price_per_hour
    steps: list[RebalanceStep] = []
    for command in commands:
        price -= command.evidence.savings_per_hour
        steps.append(RebalanceStep(command=command, after=timedelta(), price_per_hour=price))
    removed = sum(len(command.candidates) for command in commands)
    launched = sum(len(command.replacements) for command in commands)
    after = replace(before, nodes=before.nodes - removed + launched, price_per_hour=price)
    return Rebalance(
        steps=tuple(steps),
        before=before,
        after=after,
        launched=_NOTHING,
        relaunched=_NOTHING,
        blocked=_blocked(planner_pass),
        is_complete=True,
        exhausted_pools=_exhausted_pools(planner_pass),
    )


def simulate_rebalance(command_input: CommandInput) -> Rebalance:
    """Return the steps of consolidation until nothing more can be done, drift aside.

    The state of the input is changed: it can be used once.
    """
    cluster = command_input.cluster
    fold = StateFold(cluster.folded_state)
    methods = _consolidating_methods(command_input)
    now = cluster.now
    fold.pass_time(now)
    planner_pass = _pass(command_input, _counted(command_input, now), now)
    before = _costs(planner_pass)
    launched = relaunched = _NOTHING
    displaced: set[str] = set()
    price = before.price_per_hour
    steps: list[RebalanceStep] = []
    is_complete = False
    for _ in range(_MOST_PASSES):
        nodes = _provision(command_input, fold, now)
        if nodes is not None:
            planner_pass = _pass(command_input, _counted(command_input, now), now)
            again = {
                name
                for name, claim in nodes.items()
                if any(pod.uid in displaced for pod in claim.pods)
            }
            launched = _sum(launched, _costs(planner_pass, nodes.keys() - again))
            relaunched = _sum(relaunched, _costs(planner_pass, again))
            price += _costs(planner_pass, nodes.keys()).price_per_hour
        planned = plan(planner_pass, methods=methods)
        for command in planned.commands:
            price -= command.evidence.savings_per_hour
            steps.append(
                RebalanceStep(command=command, after=now - cluster.now, price_per_hour=price)
            )
        if planned.method is not None and planned.commands:
            if planned.method.is_validated:
                now += planner_pass.options.validation_delay
                fold.pass_time(now)
            displaced |= _carry_out(command_input, fold, planned.commands, now)
        else:
            chance = _next_chance(planner_pass, fold)
            if chance is None:
                is_complete = True
                break
            if chance - cluster.now > _HORIZON:
                break
            now += _POLL * max(1, math.ceil((chance - now) / _POLL))
            fold.pass_time(now)
        planner_pass = _pass(command_input, _counted(command_input, now), now)
    return Rebalance(
        steps=tuple(steps),
        before=before,
        after=_costs(planner_pass),
        launched=launched,
        relaunched=relaunched,
        blocked=_blocked(planner_pass),
        is_complete=is_complete,
        exhausted_pools=_exhausted_pools(planner_pass),
    )


def _next_chance(planner_pass: DisruptionPass, fold: StateFold) -> datetime | None:
    """Return when a pass may find more: a node is quiet or gone, or a window of budgets or of a pool ends."""
    snapshot, now = planner_pass.snapshot, planner_pass.now
    times = [fold.next_quiet(now), fold.next_departure()]
    for name, pool in snapshot.node_pools.items():
        if not budget_errors(pool, now) and any(each.pool == name for each in snapshot.state_nodes):
            times.append(next_opening(pool, now))
    times += [
        each.evaluate_at
        for each in snapshot.pool_schedules.values()
        if each.evaluate_at is not None and each.evaluate_at > now
    ]
    return min((at for at in times if at is not None), default=None)


def _provision(
    command_input: CommandInput, fold: StateFold, now: datetime
) -> Mapping[str, PlannedNodeClaim] | None:
    """Place the pending pods as the controller does; return new nodes, None if nothing changes."""
    cluster = command_input.cluster
    snapshot = cluster.folded_state.snapshot()
    if not snapshot.pending_pods and not snapshot.has_virtual_pods:
        return None
    provisioning = build_provisioning_input(
        snapshot, now=now, problem_settings=cluster.problem_settings
    )
    if not provisioning.problem.pods:
        return None
    return fold.provision(solve_isolated(provisioning.problem, cluster.options), now)


def _carry_out(
    command_input: CommandInput, fold: StateFold, commands: Iterable[Command], now: datetime
) -> set[str]:
    """Start commands and bind the evicted pods as the scheduler does; return their UIDs."""
    cluster = command_input.cluster
    evicted = [pod for command in commands for pod in fold.start(command, now)]
    snapshot = cluster.folded_state.snapshot()
    fold.bind(
        scheduler_places(eviction_order(evicted, snapshot), cluster, snapshot, now),
        now,
    )
    return {pod.uid for pod in evicted}


def _sum(first: NodeCosts, second: NodeCosts) -> NodeCosts:
    return NodeCosts(
        nodes=first.nodes + second.nodes,
        price_per_hour=first.price_per_hour + second.price_per_hour,
        unknown_prices=first.unknown_prices + second.unknown_prices,
    )


def _consolidating_methods(command_input: CommandInput) -> Sequence[DisruptionMethod]:
    options = DisruptionOptions(static_capacity=command_input.static_capacity)
    return [
        method for method in methods_of(options) if method.reason is not DisruptionReason.DRIFTED
    ]


def _counted(command_input: CommandInput, now: datetime) -> Snapshot:
    """Return the snapshot of the state as it is now, with the places that virtual pods have now."""
    cluster = command_input.cluster
    snapshot = cluster.folded_state.snapshot()
    if not snapshot.has_virtual_pods:
        return snapshot
    provisioning = build_provisioning_input(
        snapshot, now=now, problem_settings=cluster.problem_settings
    )
    return count_virtual(replace(cluster, snapshot=snapshot, input=provisioning)).snapshot


def _pass(command_input: CommandInput, snapshot: Snapshot, now: datetime) -> DisruptionPass:
    return disruption_pass(command_input, snapshot, now=now, command_id="plan")


def _costs(planner_pass: DisruptionPass, names: Container[str] | None = None) -> NodeCosts:
    """Sum up the nodes of NodePools, of these names if some are given."""
    nodes = [
        each
        for each in planner_pass.snapshot.state_nodes
        if each.managed and not each.marked_for_deletion and (names is None or each.name in names)
    ]
    prices = [planner_pass.prices.hourly_cost_of(each) for each in nodes]
    return NodeCosts(
        nodes=len(nodes),
        price_per_hour=sum(price for price in prices if price is not None),
        unknown_prices=sum(price is None for price in prices),
    )


def _blocked(planner_pass: DisruptionPass) -> tuple[BlockedNode, ...]:
    blocked = planner_pass.candidates(DisruptionClass.GRACEFUL).blocked
    return tuple(each for each in blocked if each.state_node.managed)


def _exhausted_pools(planner_pass: DisruptionPass) -> tuple[str, ...]:
    budgets = planner_pass.budgets(DisruptionReason.UNDERUTILIZED)
    return tuple(
        sorted(name for name, each in budgets.items() if each.total and each.remaining == 0)
    )
