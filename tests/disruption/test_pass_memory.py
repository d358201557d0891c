"""Passes that remember earlier ones decide exactly as passes that do not."""

from __future__ import annotations

from dataclasses import fields
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.pass_memory import DisruptionMemory
from karpenter_core.disruption.plan import plan
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.node_memory import NodeMemory
from karpenter_core.state.provisioning_input import build_provisioning_input
from tests.disruption.changing_clusters import ChangingCluster
from tests.disruption.small_clusters import GATE, pass_over
from tests.properties import with_examples
from tests.scheduling.plan_dump import plan_text

STEPS = 8


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
