"""Drift of static NodePools: one replacement for each node, within budget and limits (187-192)."""

from __future__ import annotations

import msgspec
import pytest

from karpenter_core.api.labels import DO_NOT_DISRUPT, DRIFT
from karpenter_core.api.nodeclaim import DISRUPTION_REASON, DRIFTED
from karpenter_core.api.nodepool import Budget
from karpenter_core.disruption.command import CommandDecision
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.disruption.plan import METHODS, methods_of
from karpenter_core.disruption.static_drift import StaticDriftMethod
from karpenter_core.state.events import DeletionMarked
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node_claim, with_claim_conditions
from tests.disruption.small_clusters import NOW, box, cluster, found, gone, pool, runs

ON = DisruptionOptions(static_capacity=True)


def drifted(name, *, pool="default", **options):
    its_node, claim = box(name, **options)
    labels = {**its_node.labels, "karpenter.sh/nodepool": pool}
    metadata = claim.metadata.model_copy(
        update={"labels": {**claim.metadata.labels, "karpenter.sh/nodepool": pool}}
    )
    claim = claim.model_copy(update={"metadata": metadata})
    return (
        msgspec.structs.replace(its_node, labels=labels),
        with_claim_conditions(claim, DRIFTED, now=EPOCH),
    )


def fleet(count, **options):
    return [drifted(f"{options.get('pool', 'default')}-{n}", **options) for n in range(count)]


def static(name="default", *, replicas=5, nodes=None, budgets=None, **options):
    limits = None if nodes is None else {"nodes": nodes}
    chosen = (Budget(nodes=budgets or "100%"),)
    return pool(name, replicas=replicas, limits=limits, budgets=chosen, **options)


def commands(builder, **options):
    return found(builder, StaticDriftMethod(), options=ON, **options).commands


def test_each_command_replaces_one_node_by_one_claim_of_the_template():
    outcome = found(
        cluster(static(labels={"team": "web"}), *fleet(5), runs("a", "default-0")),
        StaticDriftMethod(),
        options=ON,
    )

    assert len(outcome.commands) == 5
    assert len({command.id for command in outcome.commands}) == 5
    for command in outcome.commands:
        (planned,) = command.replacements
        assert command.decision is CommandDecision.REPLACE
        assert len(command.candidates) == 1
        assert (planned.pool, planned.pods, planned.instance_types) == ("default", (), ())
        assert planned.labels["team"] == "web"
    assert outcome.commands[-1].candidates[0].name == "default-0"  # empty nodes go first


@pytest.mark.parametrize(("budget", "expected"), [("2", 2), ("20%", 1), ("0", 0), ("100%", 5)])
def test_the_budget_decides_how_many_are_replaced(budget, expected):
    """Cases 187 and 191."""
    assert len(commands(cluster(static(budgets=budget), *fleet(5)))) == expected


def test_each_pool_has_its_own_budget():
    """Case 188."""
    pools = [
        static(name, replicas=2, budgets=b) for name, b in (("a", "1"), ("b", "2"), ("c", "100%"))
    ]
    nodes = [each for name in "abc" for each in fleet(2, pool=name)]

    per_pool = [command.candidates[0].pool.name for command in commands(cluster(*pools, *nodes))]

    assert sorted(per_pool) == ["a", "b", "b", "c", "c"]


@pytest.mark.parametrize(
    ("nodes", "limit", "expected"),
    [(5, "5", 0), (2, "5", 2), (5, "7", 2), (5, "6", 1), (5, None, 5)],
)
def test_the_node_limit_leaves_room_for_replacements(nodes, limit, expected):
    """Cases 189 and 191."""
    assert len(commands(cluster(static(nodes=limit), *fleet(nodes)))) == expected


def test_an_exhausted_limit_has_events_on_node_and_claim():
    outcome = found(cluster(static(nodes="5"), *fleet(5)), StaticDriftMethod(), options=ON)

    messages = {(notice.regarding.kind, notice.message) for notice in outcome.notices}
    text = "Drifted node is not replaced: limits.nodes=5 leaves no room for a replacement"
    assert {("Node", text), ("NodeClaim", text)} <= messages


def test_deleting_nodes_count_against_the_limit():
    leaving = node_claim("leaving", deleted=EPOCH)
    assert len(commands(cluster(static(nodes="7"), *fleet(5), leaving))) == 1


@pytest.mark.parametrize("replicas", [0, 1])
def test_nothing_is_replaced_while_there_are_more_nodes_than_replicas(replicas):
    """Cases 190 and 192."""
    assert commands(cluster(static(replicas=replicas), *fleet(2))) == ()


def test_nodes_that_are_being_replaced_count_as_nodes():
    """Case 190: active and pending together are more than the replicas."""
    its_node, claim = box("marked")
    marked = (its_node, with_claim_conditions(claim, DISRUPTION_REASON, now=EPOCH))
    assert commands(cluster(static(replicas=1), *fleet(1), marked)) == ()


def test_a_started_command_leaves_the_pool_at_its_replicas():
    """Case 187: active 5 (3 old and 2 new) and deleting 2; the budget is used up."""
    builder = cluster(
        static(budgets="2", nodes="9"), *fleet(5), node_claim("new-1"), node_claim("new-2")
    )
    builder.apply_event(DeletionMarked(names=("default-0", "default-1"), cause="drift"))

    assert commands(builder) == ()


@pytest.mark.parametrize("what", ["not drifted", "do-not-disrupt", "detect only", "backing off"])
def test_some_nodes_are_left_alone(what):
    """Case 192."""
    nodes = fleet(1)
    notes = {}
    backoff = frozenset()
    if what == "not drifted":
        nodes = [box("default-0")]
    elif what == "do-not-disrupt":
        nodes = fleet(1, annotations={DO_NOT_DISRUPT: "true"})
    elif what == "detect only":
        notes = {DRIFT: "detect-only"}
    else:
        backoff = frozenset({"default"})
    builder = cluster(static(replicas=1, notes=notes), *nodes)

    assert commands(builder, drift_backoff_pools=backoff) == ()


def test_nothing_is_replaced_while_no_instance_type_is_available():
    assert commands(cluster(static(), *fleet(5), market=())) == ()


def test_dynamic_pools_are_left_to_the_other_drift_method():
    assert commands(cluster(pool(), *fleet(2))) == ()


def test_the_gate_adds_the_method_after_emptiness():
    names = [method.name for method in methods_of(ON)]

    assert names == ["emptiness", "static-drift", *(method.name for method in METHODS[1:])]
    assert methods_of(DisruptionOptions()) == METHODS


def test_no_method_touches_static_pools_while_the_gate_is_off():
    builder = cluster(static(), *fleet(5))

    assert gone(found(builder, now=NOW)) == []
