"""Passes and what-ifs have an answer for every odd pod."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.whatif.what_if import WhatIf
from tests.properties import with_examples
from tests.scheduling.unusual_pods import odd_pods
from tests.scheduling.whatif_cases import FEATURES, OPTIONS, drawn_cluster, movable
from tests.support.strategies import problems

odd = with_examples(100)
randoms = st.randoms(use_true_random=False)


def running_on(name, pods):
    return tuple(replaced(each, node_name=name, phase="Running") for each in pods)


@odd
@given(problems(most_pods=8), odd_pods(), odd_pods())
def test_a_pass_with_invalid_pods_has_a_plan(facts, waiting, running):
    """Pending ones, and ones that run on a node that is there."""
    nodes = facts.nodes
    if nodes:
        guests = running_on(nodes[0].name, running)
        guests = tuple(replaced(each, uid=f"running-{each.uid}") for each in guests)
        nodes = (replace(nodes[0], pods=(*nodes[0].pods, *guests)), *nodes[1:])
    asked = replace(facts, pods=(*facts.pods, *waiting), nodes=nodes)

    plan = solve(asked, OPTIONS)

    placed = [each.uid for claim in plan.claims for each in claim.pods]
    placed += [each.uid for pods in plan.existing.values() for each in pods]
    assert sorted([*placed, *plan.unschedulable]) == sorted(each.uid for each in asked.pods)


@odd
@given(randoms, odd_pods(), odd_pods())
def test_simulations_with_invalid_pods_have_verdicts(random, waiting, running):
    """Of every node alone, of two, and when one after the other is taken away."""
    facts = drawn_cluster(random, FEATURES)
    if not facts.nodes:
        return
    where = random.choice(facts.nodes)
    guests = running_on(where.name, running)
    guests = tuple(replaced(each, uid=f"running-{each.uid}") for each in guests)
    nodes = tuple(
        replace(node, pods=(*node.pods, *guests)) if node is where else node for node in facts.nodes
    )
    facts = replace(facts, pods=waiting, nodes=nodes)
    whatif = WhatIf(facts, movable(facts), OPTIONS)

    for node in nodes:
        verdict = whatif.evaluate((node.name,))
        whatif.evaluate((node.name,), max_claims=1, below_price=random.choice((0.1, 10.0)))
        assert verdict.is_possible or verdict.outcome
        assert verdict.claims is not None
    whatif.evaluate(tuple(node.name for node in nodes[:2]))
    for node in nodes:
        whatif.push((node.name,))
