"""Invariants of every disruption plan on random clusters."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    DO_NOT_DISRUPT,
    SAVINGS_FLOOR,
    ZONE,
)
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView, PodView
from karpenter_core.disruption.candidates import DisruptionClass, evaluate_nodes
from karpenter_core.disruption.drift import DriftMethod
from karpenter_core.disruption.emptiness import EmptinessMethod
from karpenter_core.disruption.multi_node import MultiNodeConsolidation
from karpenter_core.disruption.plan import plan
from karpenter_core.disruption.single_node import SingleNodeConsolidation
from karpenter_core.scheduling.problem import ReservationPolicy, SolveOptions
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.scheduling.whatif.what_if import WhatIf
from karpenter_core.state.disruption_problem import build_disruption_problem
from karpenter_core.testing.builders import EPOCH
from tests.disruption.random_clusters import clusters, drawn
from tests.disruption.small_clusters import GATE, NOW, box, cluster, pass_over
from tests.properties import with_examples
from tests.scheduling.whatif_cases import plan_of
from tests.verifier import violations

METHODS = (EmptinessMethod(), DriftMethod(), MultiNodeConsolidation(), SingleNodeConsolidation())
ASKED = st.sampled_from(METHODS)


def asked(objects, market, method, **options):
    builder = cluster(*objects, market=market)
    one = pass_over(builder, options=GATE, **options)
    return builder, one, plan(one, methods=(method,))


def budget_of(pool, reason, total):
    """Compute what a pool's budgets allow: the least of those for the reason."""
    allowed = []
    for item in pool.spec.disruption.budgets:
        if item.reasons is None or str(reason) in item.reasons:
            number = int(item.nodes.removesuffix("%"))
            allowed.append(-(-total * number // 100) if item.nodes.endswith("%") else number)
    return min(allowed, default=total)


def budget_case(random):
    """Draw a cluster and a method that is likely to have a command for it."""
    kind = random.choice(("drift", "several", "several", "any"))
    if kind == "drift":
        return drawn(random, drifted=0.6), DriftMethod()
    if kind == "several":
        return drawn(random, spare=0.5), MultiNodeConsolidation()
    return drawn(random), random.choice(METHODS)


def taken_and_allowed(case, method):
    """Return by pool how many nodes the commands take, how many go already, and the budget."""
    builder, _, outcome = asked(*case, method)
    snapshot = builder.snapshot()
    counted = [state_node for state_node in snapshot.state_nodes if state_node.initialized]
    totals = Counter(state_node.pool for state_node in counted)
    going = Counter(state_node.pool for state_node in counted if state_node.marked_for_deletion)
    taken = Counter(c.pool.name for command in outcome.commands for c in command.candidates)
    return {
        name: (count, going[name], budget_of(snapshot.node_pools[name], method.reason, total))
        for name, total in totals.items()
        if (count := taken[name])
    }


@given(st.integers(0, 2**32 - 1))
@with_examples(100)
def test_no_plan_exceeds_a_budget(seed):
    """Leaving nodes count; nodes that were never initialised do not."""
    case, method = budget_case(Random(seed))
    result = taken_and_allowed(case, method)
    event(f"{method.name}: {bool(result)}")
    for count, going, allowed in result.values():
        assert count + going <= allowed


def test_a_third_of_the_examples_of_budgets_have_commands_of_drift_or_of_several_nodes():
    """Else the property above would be about empty nodes alone; a good part is at its budget."""
    examples = [budget_case(Random(seed)) for seed in range(150)]
    results = [(method, taken_and_allowed(case, method)) for case, method in examples]
    drift = [by_pool for method, by_pool in results if by_pool and isinstance(method, DriftMethod)]
    several = [
        by_pool
        for method, by_pool in results
        if by_pool and isinstance(method, MultiNodeConsolidation)
    ]
    at_budget = [
        by_pool
        for by_pool in (*drift, *several)
        if any(count + going == allowed for count, going, allowed in by_pool.values())
    ]
    assert len(drift) + len(several) >= len(examples) / 3
    assert min(len(drift), len(several)) >= len(examples) / 8
    assert len(at_budget) >= len(examples) / 12


def dearest_launch(planned, market):
    """Return the highest price at which a claim may be launched."""
    asked = {r.key: r for r in planned.requirements}
    prices = []
    for of in market:
        if of.name not in planned.instance_types:
            continue
        sold = [
            o
            for o in of.offerings
            if o.available
            and all(
                asked[k].has(v)
                for k, v in ((ZONE, o.zone), (CAPACITY_TYPE, o.capacity_type))
                if k in asked
            )
        ]
        kinds = [kind for kind in CAPACITY_TYPES if any(o.capacity_type == kind for o in sold)]
        prices.append(max(o.price.amount for o in sold if o.capacity_type == kinds[0]))
    return max(prices)


def floor_of(members):
    text = members[0].pool.metadata.annotations.get(SAVINGS_FLOOR, "0")
    if text.endswith("%"):
        return sum(c.price.amount for c in members) * float(text[:-1]) / 100
    return float(text)


@given(clusters(), st.sampled_from((MultiNodeConsolidation(), SingleNodeConsolidation())))
@with_examples(80)
def test_consolidation_always_lowers_the_cost(case, method):
    """At the dearest price that a launch may have, and by the floors of the pools at least."""
    _, _, outcome = asked(*case, method)
    market = case[1]
    for command in outcome.commands:
        event(f"{len(command.candidates)} -> {len(command.replacements)}")
        price = sum(c.price.amount for c in command.candidates)
        worst = sum(dearest_launch(planned, market) for planned in command.replacements)
        by_pool = {}
        for candidate in command.candidates:
            by_pool.setdefault(candidate.pool.name, []).append(candidate)
        floor = sum(floor_of(members) for members in by_pool.values())
        assert worst < price or not price
        assert price - worst >= floor - 1e-6
        assert command.evidence.savings_per_hour >= price - worst - 1e-9
        assert len(command.replacements) <= len(command.candidates)


@given(clusters(), st.sampled_from(METHODS[1:]))
@with_examples(80)
def test_every_pod_fits_where_the_command_says(case, method):
    """Executed in the order of the verdict, and checked by an independent verifier."""
    builder, one, outcome = asked(*case, method)
    for command in outcome.commands:
        names = [c.state_node.name for c in command.candidates]
        most = len(names) if len(command.replacements) > 1 else 1
        verdict = one.simulation.evaluate(
            command.candidates, max_claims=None if method.name == "drift" else most
        )
        assert verdict.moves == command.moves
        problem, movable = build_disruption_problem(
            builder.snapshot(), now=NOW, problem_settings=None
        )
        options = SolveOptions(reservations=ReservationPolicy.FALLBACK)
        without = WhatIf(problem, movable, options).problem_without(names)
        told = replace(plan_of(verdict), claims=command.replacements)
        told = replace(
            told,
            cost=replace(
                told.cost, hourly=sum(p.cheapest.price_per_hour for p in command.replacements)
            ),
        )
        assert violations(without, told) == []


def told(outcome):
    return [
        (
            str(command),
            [p.instance_types for p in command.replacements],
            [p.requirements for p in command.replacements],
            {name: sorted(pod.uid for pod in pods) for name, pods in command.moves.items()},
        )
        for command in outcome.commands
    ]


@given(clusters(), ASKED, st.randoms(use_true_random=False))
@with_examples(50)
def test_the_order_of_objects_does_not_matter(case, method, random):
    objects, market = case
    _, _, outcome = asked(objects, market, method)
    shuffled = list(objects)
    random.shuffle(shuffled)
    _, _, other = asked(shuffled, market, method)
    assert told(outcome) == told(other)


@given(clusters(), ASKED)
@with_examples(50)
def test_a_second_pass_over_an_unchanged_cluster_gives_the_same_command(case, method):
    builder, _, outcome = asked(*case, method)
    for command in outcome.commands:
        again = run_steps(method.validate_steps(command, pass_over(builder, options=GATE)))
        assert again.rejection is None
        assert again.failed_candidates == 0
        assert told(replace(outcome, commands=(again.command,))) == told(outcome)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_planning_changes_no_input(method):
    """Two passes over one snapshot, one after the other, have equal results."""
    import random

    for seed in range(30):
        objects, market = drawn(random.Random(seed))
        _, one, outcome = asked(objects, market, method)
        assert told(plan(one, methods=(method,))) == told(outcome)


class World:
    """A cluster on which commands are carried out at once, as they were meant."""

    def __init__(self, objects, market):
        self.market = {of.name: of for of in market}
        self.pods = {o.uid: o for o in objects if isinstance(o, PodView)}
        self.objects_by_name, self.others = {}, []
        for item in objects:
            if isinstance(item, (NodeView, NodeClaim)):
                self.objects_by_name.setdefault(item.name, []).append(item)
            elif not isinstance(item, PodView):
                self.others.append(item)
        self._launched = 0

    def builder(self):
        return cluster(
            self.others,
            list(self.objects_by_name.values()),
            list(self.pods.values()),
            market=tuple(self.market.values()),
        )

    def carry_out(self, command):
        """Let the old go and the new come; return what the new ones cost."""
        for candidate in command.candidates:
            del self.objects_by_name[candidate.name]
        for name, pods in command.moves.items():
            self._bind(pods, name)
        for planned in command.replacements:
            self._launched += 1
            name, cheapest = f"new-{self._launched}", planned.cheapest
            self.objects_by_name[name] = list(
                box(
                    name,
                    self.market[cheapest.instance_type],
                    pool=planned.pool,
                    zone=cheapest.zone,
                    capacity_type=cheapest.capacity_type,
                )
            )
            self._bind(planned.pods, name)
        lost = [
            pod for pod in self.pods.values() if pod.node_name not in {"", *self.objects_by_name}
        ]
        for pod in lost:
            assert self._is_forced(pod, command), "every pod of a node that went has a place"
            self.pods[pod.uid] = msgspec.structs.replace(
                pod, node_name="", phase="Pending", unschedulable=True, start_time=None
            )
        return sum(planned.cheapest.price_per_hour for planned in command.replacements)

    @staticmethod
    def _is_forced(pod, command):
        """Whether a pod that may not be evicted ends with its node, at the node's deadline.

        It has no place until it has been made anew: nothing is planned for it before.
        """
        (claim,) = (c.claim for c in command.candidates if c.name == pod.node_name)
        has_deadline = claim.spec.termination_grace_period is not None
        is_protected = pod.shape.annotations.get(DO_NOT_DISRUPT) == "true"
        return is_protected and has_deadline and command.reason == "Drifted"

    def _bind(self, pods, name):
        for pod in pods:
            placed = msgspec.structs.replace(
                pod, node_name=name, phase="Running", unschedulable=False, start_time=EPOCH
            )
            self.pods[pod.uid] = placed


@given(clusters())
@with_examples(25)
def test_a_cluster_converges(case):
    """Command by command it costs less, until nothing is left to do."""
    world = World(*case)
    for _ in range(60):
        outcome = plan(pass_over(world.builder(), options=GATE), methods=METHODS)
        if not outcome.commands:
            break
        for command in outcome.commands:
            price = sum(c.price.amount for c in command.candidates)
            spent = world.carry_out(command)
            if command.reason == "Underutilized":
                assert spent < price or not price
    assert not outcome.commands


@given(clusters())
@with_examples(40)
def test_nodes_of_two_classes_are_evaluated_once_and_alike(case):
    """A second class of methods gets what it would get by itself."""
    snapshot = cluster(*case[0], market=case[1]).snapshot()
    graceful = evaluate_nodes(snapshot, now=NOW)
    alone = evaluate_nodes(snapshot, now=NOW, disruption_class=DisruptionClass.EVENTUAL)
    after = evaluate_nodes(
        snapshot, now=NOW, disruption_class=DisruptionClass.EVENTUAL, graceful=graceful
    )
    assert [(c.name, c.reschedule_cost) for c in after.candidates] == [
        (c.name, c.reschedule_cost) for c in alone.candidates
    ]
    assert [(b.state_node, b.obstacle, b.message) for b in after.blocked] == [
        (b.state_node, b.obstacle, b.message) for b in alone.blocked
    ]
