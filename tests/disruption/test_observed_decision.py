"""Estimates of savings: which nodes they compare, and which they name."""

from __future__ import annotations

from types import SimpleNamespace

from karpenter_core.disruption.savings_estimate import (
    SavingsEstimate,
    nodes_of_unplaced_pods,
    observed_decision,
)
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import EPOCH, pod, problem


def test_reasons_are_sorted_by_their_nodes_and_then_by_their_text():
    asked = problem([])
    kept = {"a": "third", "b": "first", "c": "first", "z": "second"}
    decision = observed_decision(
        SimpleNamespace(kept=kept, nodes=(), problem=asked),
        solve(asked),
        SavingsEstimate(
            nodes=0,
            planned_nodes=0,
            price_per_hour=0.0,
            planned_price_per_hour=0.0,
            kept_nodes=4,
            currency="USD",
        ),
        id="observe-1",
        cause="a test",
        at=EPOCH,
    )
    told = [(each.message, each.count, each.names) for each in decision.obstacles]
    assert told == [("first", 2, ("b", "c")), ("second", 1, ("z",)), ("third", 1, ("a",))]
    assert decision.summary == "no node can be compared, 4 are kept"


def test_nodes_are_compared_whose_pods_all_have_a_place_on_new_or_existing_nodes():
    launched, placed, left = (pod(name) for name in ("launched", "placed", "left"))

    def compared(name, *pods):
        return SimpleNamespace(state_node=SimpleNamespace(name=name), pods=pods)

    nodes = (compared("a", launched, placed), compared("b", placed, left), compared("c"))
    plan = SimpleNamespace(
        claims=(SimpleNamespace(pods=(launched,)),), existing={"node-1": (placed,)}
    )
    assert nodes_of_unplaced_pods(SimpleNamespace(nodes=nodes), plan) == {"b"}
