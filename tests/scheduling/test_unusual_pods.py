"""Passes and what-ifs have an answer for every odd pod."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.whatif.what_if import WhatIf
from karpenter_core.testing.builders import daemon, pod_shape, pods, problem
from karpenter_core.testing.builders import pod as make_pod
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


MANY = 4000
HUGE_REQUESTS = {f"example.com/resource-{number}": "1" for number in range(MANY)}


@pytest.mark.parametrize("kind", ["pod", "daemon"])
def test_a_pod_of_thousands_of_resources_takes_no_memory_and_holds_up_nobody(kind):
    """Each resource is a line in all tables; anyone may create such a pod."""
    web = pods(3, "web")
    if kind == "pod":
        asked = problem((make_pod("huge", requests=HUGE_REQUESTS), *web))
    else:
        shape = pod_shape(requests=HUGE_REQUESTS, owner_kind="DaemonSet")
        asked = problem(web, daemons=[daemon("huge", shape=shape)])
    solve(problem(web))  # what is made once is no memory of this problem

    tracemalloc.start()
    plan = solve(asked)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 10 * 2**20
    assert {each.uid for claim in plan.claims for each in claim.pods} == {each.uid for each in web}
    assert {each.message for each in plan.unschedulable.values()} <= {
        'nodepool "default": resource: the pod requests 4003 resources, more than 100'
    }
    assert len(plan.unschedulable) == (kind == "pod")
