"""The judge itself: a plan that is spoilt in any way does not pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.labels import ARCH, INSTANCE_TYPE
from karpenter_core.scheduling.requirements import Requirement
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    daemon,
    existing_node,
    node_pool,
    pod,
    pod_shape,
    pods,
    problem,
    requirement_spec,
)
from tests.verifier import hosts_alone, violations

PODS = (*pods(4, "web", cpu="3", node_selector={ARCH: "amd64"}), pod("port", host_ports=[80]))
ASKED = problem(
    PODS,
    pools=[node_pool(limits={"cpu": "64"})],
    nodes=[existing_node("old", available={"cpu": "150m"}), existing_node("used", cpu="1")],
    daemons=[daemon(cpu="200m")],
)
PLAN = solve(ASKED)


def with_claim(**changes):
    return replace(PLAN, claims=(replace(PLAN.claims[0], **changes), *PLAN.claims[1:]))


def listing(*names):
    """List other types, in the requirement too."""
    kept = tuple(r for r in PLAN.claims[0].requirements if r.key != INSTANCE_TYPE)
    listed = Requirement.of(INSTANCE_TYPE, "In", names)
    return with_claim(instance_types=names, requirements=(*kept, listed))


def test_the_plan_that_is_spoilt_below_is_sound():
    """Otherwise the cases below would prove nothing."""
    assert violations(ASKED, PLAN) == []
    assert PLAN.claims
    assert PLAN.existing


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (replace(PLAN, claims=PLAN.claims[1:]), "not each in one place"),
        (with_claim(pods=(*PLAN.claims[0].pods, PODS[-1])), "not each in one place"),
        (listing("c-1x", *PLAN.claims[0].instance_types), "c-1x: cpu"),
        (listing(*PLAN.claims[0].instance_types[::-1]), "not sorted by price"),
        (listing("cg-32x"), "cg-32x cannot be bought"),
        (with_claim(instance_types=PLAN.claims[0].instance_types[:1]), "list of instance types"),
        (
            with_claim(cheapest=replace(PLAN.claims[0].cheapest, price_per_hour=0.0)),
            "cheapest is 0.0",
        ),
        (replace(PLAN, cost=replace(PLAN.cost, hourly=1.0)), "is not the sum"),
        (replace(PLAN, existing={"old": PODS}), "node old: cpu"),
        (
            replace(PLAN, claims=tuple(replace(c, pool="default") for c in PLAN.claims) * 9),
            "exceeds the limit",
        ),
    ],
)
def test_a_spoilt_plan_is_refused(spoilt, said):
    """Each kind of mistake is found and named."""
    assert any(said in text for text in violations(ASKED, spoilt))


def test_taints_ports_and_min_values_are_judged():
    """Rules that the plan above does not touch."""
    tainted = replace(ASKED, pools=(node_pool(taints=["team:NoSchedule"]),))
    assert any("does not tolerate" in text for text in violations(tainted, PLAN))
    wanting = node_pool(requirements=[requirement_spec(INSTANCE_TYPE, "Exists", min_values=40)])
    greedy = replace(ASKED, pools=(wanting,))
    assert any("minValues 40" in text for text in violations(greedy, PLAN))
    twice = problem(pods(2, shape=pod_shape(host_ports=[80])))
    plan = solve(twice)
    together = replace(plan, claims=(replace(plan.claims[0], pods=twice.pods),))
    assert any("port 80 is taken" in text for text in violations(twice, together))


def test_brute_force_finds_a_machine_or_none():
    """The other direction: what could be launched for a pod alone."""
    assert hosts_alone(ASKED, PODS[0]) is not None
    assert hosts_alone(ASKED, pod(cpu="1000")) is None
    assert hosts_alone(ASKED, pod(node_selector={ARCH: "mips"})) is None
