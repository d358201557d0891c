"""Passes that remember earlier ones decide exactly as passes that do not."""

from __future__ import annotations

from dataclasses import fields
from dataclasses import replace as changed
from itertools import pairwise
from math import inf
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.api.nodepool import Disruption
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.disruption.pass_memory import DisruptionMemory
from karpenter_core.disruption.plan import plan
from karpenter_core.disruption.refusal_memory import RefusalMemory
from karpenter_core.disruption.savings_order import SavingsOrder
from karpenter_core.disruption.single_node import SingleNodeConsolidation
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.problem import ReservationPolicy, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.whatif import what_if
from karpenter_core.scheduling.whatif.homeless_pods import HomelessPods
from karpenter_core.scheduling.whatif.what_if import WhatIf, WhatIfOutcome
from karpenter_core.state.disruption_problem import build_disruption_problem
from karpenter_core.state.events import ObjectRemoved
from karpenter_core.state.node_memory import NodeMemory
from karpenter_core.state.provisioning_input import build_provisioning_input
from karpenter_core.testing.builders import node_pool
from karpenter_core.testing.state_builders import node_claim
from tests.disruption.changing_clusters import ChangingCluster
from tests.disruption.small_clusters import (
    GATE,
    box,
    cluster,
    gone,
    messages,
    pass_over,
    runs,
)
from tests.properties import with_examples
from tests.scheduling.plan_dump import plan_text

STEPS = 8
OPTIONS = SolveOptions(reservations=ReservationPolicy.FALLBACK)
LIMITS = (
    {},
    {"below_price": 0.2, "max_claims": 1},
    {"below_price": 0.5, "max_claims": 1},
    {"below_price": 0.5, "max_claims": 3},
)
"""No limits, and limits of which some refuse most questions."""


def values_of(record):
    return {item.name: getattr(record, item.name) for item in fields(record)}


def problem_values(problem):
    """Return a problem as values that can be compared."""
    values = values_of(problem) | {"daemons": [values_of(item) for item in problem.daemons]}
    return values | {
        "nodes": [values_of(node) for node in problem.nodes],
        "volumes": {uid: values_of(asked) for uid, asked in problem.volumes.items()},
    }


@given(st.integers(0, 2**32 - 1))
@with_examples(60)
def test_a_provisioning_pass_with_memory_plans_as_one_without(seed):
    changing = ChangingCluster(Random(seed))
    memory, cache = NodeMemory(), CatalogueCache()
    for _ in range(STEPS):
        changing.change()
        snapshot, now = changing.snapshot, changing.now
        warm = build_provisioning_input(snapshot, now=now, memory=memory)
        cold = build_provisioning_input(snapshot, now=now)
        assert problem_values(warm.problem) == problem_values(cold.problem)
        assert plan_text(solve(warm.problem, cache=cache)) == plan_text(solve(cold.problem))


def test_a_node_that_did_not_change_is_the_same_object_in_the_next_problem():
    changing = ChangingCluster(Random(5))
    memory = NodeMemory()
    first = build_provisioning_input(changing.snapshot, now=changing.now, memory=memory).problem
    changing.add_daemon()
    second = build_provisioning_input(changing.snapshot, now=changing.now, memory=memory).problem
    changing.add_pod()
    third = build_provisioning_input(changing.snapshot, now=changing.now, memory=memory).problem
    same = [old is new for old, new in zip(second.nodes, third.nodes, strict=True)]
    assert not any(old is new for old, new in zip(first.nodes, second.nodes, strict=True))
    assert same.count(False) <= 1 < len(same)


def plan_values(outcome):
    """Return a disruption plan as values that can be compared."""
    return {
        "commands": [command_values(command) for command in outcome.commands],
        "method": outcome.method and outcome.method.name,
        "notices": outcome.notices,
        "reports": [
            {key: value for key, value in values_of(report).items() if key != "method"}
            | {"method": report.method.name}
            for report in outcome.reports
        ],
        "inputs": outcome.inputs,
        "set_aside": outcome.set_aside,
    }


def command_values(command):
    return values_of(command) | {
        "candidates": [candidate_values(candidate) for candidate in command.candidates],
        "replacements": [values_of(planned) for planned in command.replacements],
    }


def candidate_values(candidate):
    return values_of(candidate)


def evaluation_values(evaluation):
    return {
        "candidates": [candidate_values(candidate) for candidate in evaluation.candidates],
        "blocked": [values_of(blocked) for blocked in evaluation.blocked],
        "notices": evaluation.notices,
    }


@given(st.integers(0, 2**32 - 1))
@with_examples(60)
def test_a_disruption_pass_with_memory_plans_as_one_without(seed):
    random = Random(seed)
    changing = ChangingCluster(random, spare=random.choice((0.0, 0.0, 0.5)))
    changing.fill(random.choice((0.0, 1.0, 1.0)))
    memory, cache = DisruptionMemory(), CatalogueCache()
    for _ in range(STEPS):
        changing.change()
        options = {"now": changing.now, "options": GATE}
        warm = pass_over(changing.builder, memory=memory, cache=cache, **options)
        cold = pass_over(changing.builder, **options)
        for disruption_class in DisruptionClass:
            assert evaluation_values(warm.candidates(disruption_class)) == evaluation_values(
                cold.candidates(disruption_class)
            )
        assert plan_values(plan(warm)) == plan_values(plan(cold))


@given(st.integers(0, 2**32 - 1))
@example(2016)
@with_examples(60)
def test_renewed_what_ifs_answer_as_new_ones(seed):
    """About any node, and about pairs, without limits and with a limit that refuses most.

    2016: two zones cost the same, and earlier questions had numbered their signatures otherwise.
    """
    random = Random(seed)
    changing = ChangingCluster(random, spare=random.choice((0.0, 0.5)))
    changing.fill(random.choice((0.0, 0.0, 0.9)))
    memory, cache, kept = NodeMemory(), CatalogueCache(), None
    for _ in range(STEPS):
        changing.change()
        snapshot, now = changing.snapshot, changing.now
        problem, movable = build_disruption_problem(
            snapshot, now=now, memory=memory, problem_settings=None
        )
        if kept is None or not kept.renew(problem, movable, OPTIONS):
            kept = WhatIf(problem, movable, OPTIONS, cache=cache)
        else:
            event("renewed")
        fresh = WhatIf(*build_disruption_problem(snapshot, now=now, problem_settings=None), OPTIONS)
        names = [node.name for node in problem.nodes if not node.closed]
        for removed in [*((name,) for name in names), *pairwise(names)]:
            for limits in LIMITS:
                assert verdict_values(kept.evaluate(removed, **limits)) == verdict_values(
                    fresh.evaluate(removed, **limits)
                )
        unfit = {node.name for node in problem.nodes if fresh.is_known_not_to_fit(node.name)}
        assert set(kept.names_known_not_to_fit()) == unfit


def verdict_values(verdict):
    """Return a verdict as values; a refusal for its price holds what happened to be computed."""
    if verdict.outcome in {WhatIfOutcome.TOO_DEAR, WhatIfOutcome.TOO_MANY}:
        return verdict.outcome
    return (
        verdict.outcome,
        verdict.placements,
        verdict.cost_per_hour,
        [values_of(claim) for claim in verdict.claims],
        verdict.left,
        verdict.sequence,
    )


def test_most_changes_of_pods_alone_renew_the_what_ifs():
    renewed = 0
    for seed in range(40):
        changing = ChangingCluster(Random(seed))
        problem = build_disruption_problem(
            changing.snapshot, now=changing.now, problem_settings=None
        )
        kept = WhatIf(*problem, OPTIONS)
        kept.settle()
        Random(seed).choice(
            (changing.add_pod, changing.remove_pod, changing.bind_pod, changing.change_pod)
        )()
        renewed += kept.renew(
            *build_disruption_problem(changing.snapshot, now=changing.now, problem_settings=None),
            OPTIONS,
        )
    assert renewed >= 20


def test_questions_of_other_options_or_with_too_much_in_memory_are_not_renewed(monkeypatch):
    """Nor are those that have computed nothing yet."""
    changing = ChangingCluster(Random(1))
    problem = build_disruption_problem(changing.snapshot, now=changing.now, problem_settings=None)
    kept = WhatIf(*problem, OPTIONS)
    assert not kept.renew(*problem, OPTIONS)
    kept.settle()
    assert kept.renew(*problem, OPTIONS)
    assert not kept.renew(*problem, changed(OPTIONS, currency="EUR"))
    monkeypatch.setattr(what_if, "_MAX_SIGNATURES", -1)
    assert not kept.renew(*problem, OPTIONS)


def test_a_pass_whose_what_ifs_a_later_one_has_taken_over_makes_others():
    changing = ChangingCluster(Random(1), spare=0.5)
    memory = DisruptionMemory()
    first = pass_over(changing.builder, memory=memory, options=GATE)
    before = plan_values(plan(first))
    changing.remove_pod()
    second = pass_over(changing.builder, memory=memory, options=GATE)
    plan(second)
    assert plan_values(plan(first)) == before


@given(st.integers(0, 2**32 - 1))
@with_examples(100)
def test_refusals_for_pods_that_no_node_takes_are_those_of_whole_questions(seed):
    random = Random(seed)
    changing = ChangingCluster(random)
    changing.fill(random.choice((0.5, 0.9, 1.0, 1.0)))
    problem, movable = build_disruption_problem(
        changing.snapshot, now=changing.now, problem_settings=None
    )
    whatif = WhatIf(problem, movable, OPTIONS)
    whatif.settle()
    names = [node.name for node in problem.nodes if not node.closed]
    questions = [
        (removed, below)
        for removed in [*((name,) for name in names), *pairwise(names), tuple(names)]
        for below in (0.0, 0.2, 0.8, 1e9)
    ]

    def outcomes():
        return [whatif.evaluate(removed, below_price=below, max_claims=1).outcome
                for removed, below in questions]  # fmt: skip

    def pushed():
        fitting = [name for name in names if whatif.push((name,)).fits]
        for _ in fitting:
            whatif.pop()
        return fitting

    sure = outcomes(), pushed()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(WhatIf, "_sure_refusal", lambda *_: None)
        patched.setattr(HomelessPods, "has_any", lambda *_: False)
        assert (outcomes(), pushed()) == sure


@pytest.mark.parametrize("seed", range(10))
def test_candidates_are_sorted_as_without_the_order_of_the_last_pass(seed):
    draw, order = Random(seed), SavingsOrder()
    prices = SimpleNamespace(convert=lambda price: price, rates={})

    def candidate(name):
        return SimpleNamespace(
            name=name, price=draw.choice((1.0, 2.0)), reschedule_cost=draw.choice((1.0, 4.0))
        )

    candidates = [candidate(f"c-{number}") for number in range(30)]
    for _ in range(20):
        assert order.sort(candidates, prices) == SavingsOrder().sort(candidates, prices)
        for place in draw.sample(range(len(candidates)), draw.randrange(4)):
            candidates[place] = candidate(candidates[place].name)
        if draw.random() < 0.3:
            candidates.insert(
                draw.randrange(len(candidates)), candidate(f"new-{len(candidates)}-{draw.random()}")
            )
        if draw.random() < 0.3:
            del candidates[draw.randrange(len(candidates))]


def test_some_refusals_of_full_clusters_are_sure():
    sure = 0
    for seed in range(20):
        changing = ChangingCluster(Random(seed))
        changing.fill(0.9)
        problem, movable = build_disruption_problem(
            changing.snapshot, now=changing.now, problem_settings=None
        )
        whatif = WhatIf(problem, movable, OPTIONS)
        whatif.settle()
        sure += sum(whatif.single_prices(node.name) is not None for node in problem.nodes)
    assert sure > 20


def test_a_refusal_is_not_repeated_once_another_node_has_room():
    """The node whose removal was refused is the same candidate in all passes."""
    leaves = runs("leaves", "b", cpu="3")
    stays = runs("stays", "b", cpu="1", annotations={DO_NOT_DISRUPT: "true"})
    builder = cluster(box("a"), box("b"), runs("moves", "a", cpu="3"), leaves, stays)
    memory = DisruptionMemory()

    def planned(**options):
        return plan(pass_over(builder, **options), methods=(SingleNodeConsolidation(),))

    first, repeated = planned(memory=memory), planned(memory=memory)
    builder.apply_event(ObjectRemoved(leaves))
    assert gone(first) == gone(repeated) == []
    assert messages(first) == messages(repeated) != []
    assert gone(planned(memory=memory)) == gone(planned()) == ["a"]


class OneNode:
    """As much of a candidate as its refusal depends on."""

    pool = node_pool(disruption=Disruption(consolidation_policy="WhenEmptyOrUnderutilized"))
    claim = node_claim("web")


@pytest.mark.parametrize(
    ("least", "whole", "is_kept"),
    [(inf, inf, True), (inf, 1.0, True), (3.0, 4.0, True), (2.0, 4.0, True),
     (1.9, 4.0, False), (3.0, inf, False)],
)  # fmt: skip
def test_a_refusal_is_repeated_if_it_follows_from_prices_alone(least, whole, is_kept):
    """No node takes the pods at any price, or each that does costs too much; and nothing else does."""
    candidate = OneNode()
    rates, prices, notices = {}, (least, whole), ("refused",)
    pass_prices = SimpleNamespace(rates=rates, has_commitments=False)
    memory = RefusalMemory()
    memory.begin_pass(pass_prices)
    memory.keep(candidate, prices, notices, below_price=2.0)
    memory.begin_pass(pass_prices)
    assert memory.repeated(candidate, prices) == (notices if is_kept else None)
    assert memory.repeated(candidate, (least, whole + 1)) is None, "they are others"


def test_refusals_are_forgotten_when_other_prices_or_commitments_count():
    candidate = OneNode()
    prices = (inf, inf)
    for later in (
        SimpleNamespace(rates={"EUR": 1.1}, has_commitments=False),
        SimpleNamespace(rates={}, has_commitments=True),
    ):
        memory = RefusalMemory()
        memory.begin_pass(SimpleNamespace(rates={}, has_commitments=False))
        memory.keep(candidate, prices, ("refused",), below_price=2.0)
        memory.begin_pass(later)
        assert memory.repeated(candidate, prices) is None


@pytest.mark.parametrize("policy", ["Balanced", "WhenEmptyOrUnderutilized"])
@pytest.mark.parametrize("prices", [None, (inf, inf)])
def test_a_refusal_that_depends_on_more_than_prices_is_not_repeated(policy, prices):
    """The policy `Balanced` compares with all nodes of the pool, and prices may not be known."""
    candidate = OneNode()
    candidate.pool = node_pool(disruption=Disruption(consolidation_policy=policy))
    pass_prices = SimpleNamespace(rates={}, has_commitments=False)
    memory = RefusalMemory()
    memory.begin_pass(pass_prices)
    memory.keep(candidate, prices, ("refused",), below_price=2.0)
    memory.begin_pass(pass_prices)
    is_kept = policy != "Balanced" and prices is not None
    assert memory.repeated(candidate, prices) == (("refused",) if is_kept else None)


def test_a_paused_pass_has_no_candidates_of_an_earlier_one():
    state, memory = cluster(box("a"), box("b")), DisruptionMemory()
    for paused, names in ((False, ["a", "b"]), (True, []), (False, ["a", "b"])):
        a_pass = pass_over(state, memory=memory, options=DisruptionOptions(paused=paused))
        found = a_pass.candidates(DisruptionClass.GRACEFUL).candidates
        assert [each.name for each in found] == names
