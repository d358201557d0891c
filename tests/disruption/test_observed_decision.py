"""Estimates of savings: which nodes they compare, and which they name."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import msgspec

from karpenter_core.disruption.savings_estimate import (
    SavingsEstimate,
    build_fresh_problem,
    nodes_of_unplaced_pods,
    observed_decision,
)
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.events import DeletionMarked, VirtualPodsDeclared
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.testing.builders import EPOCH, pod, problem
from karpenter_core.testing.state_builders import node
from tests.disruption.small_clusters import FOUR, box, cluster, pool, runs
from tests.scheduling.test_virtual_pods import source, virtual_pods
from tests.state.test_pod_volumes import bound, mounting, volume, zone, zones


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


def test_pods_that_would_move_keep_what_their_volumes_require():
    """A comparison that puts a pod away from its volume would promise too much."""
    plain = runs("plain", "a")
    mounts = msgspec.structs.replace(
        runs("mounts", "a"),
        shape=msgspec.structs.replace(plain.shape, volumes=mounting("data").volumes),
    )
    snapshot = cluster(box("a"), plain, mounts, bound(), volume("pv", zone("zone-a"))).snapshot()
    settings = ProblemSettings()
    asked = build_provisioning_input(snapshot, now=EPOCH, problem_settings=settings)
    fresh = build_fresh_problem(
        snapshot,
        asked.problem,
        now=EPOCH,
        problem_settings=settings,
        options=SolveOptions(),
        other_nodes={},
        keep=(),
    )
    assert sorted(each.name for each in fresh.problem.pods) == ["mounts", "plain"]
    (volumes,) = fresh.problem.volumes.items()
    assert volumes[0] == mounts.uid
    assert volumes[1].alternatives == (zones("zone-a"),)


def test_the_room_of_buffers_keeps_what_their_volumes_require():
    """It is in the comparison on both sides, with the same volumes."""
    (room,) = virtual_pods(1, name="room")
    shape = msgspec.structs.replace(room.shape, volumes=mounting("data").volumes)
    room = msgspec.structs.replace(room, shape=shape)
    state = cluster(box("a"), bound(), volume("pv", zone("zone-a")))
    state.apply_event(VirtualPodsDeclared(source=source("room"), pods=(room,)))
    settings = ProblemSettings()
    asked = build_provisioning_input(state.snapshot(), now=EPOCH, problem_settings=settings)
    assert asked.problem.volumes[room.uid].alternatives
    fresh = build_fresh_problem(
        state.snapshot(),
        asked.problem,
        now=EPOCH,
        problem_settings=settings,
        options=SolveOptions(),
        other_nodes={},
        keep=(),
    )
    assert [each.uid for each in fresh.problem.pods] == [room.uid]
    assert fresh.problem.volumes == {room.uid: asked.problem.volumes[room.uid]}


def compared(state, *, keep=(), other_nodes=None, **changes):
    """Return the problem of a provisioning pass over a cluster, and that of a comparison."""
    settings = ProblemSettings()
    asked = build_provisioning_input(state.snapshot(), now=EPOCH, problem_settings=settings)
    problem = replace(asked.problem, **changes)
    return problem, build_fresh_problem(
        state.snapshot(),
        problem,
        now=EPOCH,
        problem_settings=settings,
        options=SolveOptions(),
        other_nodes=other_nodes or {},
        keep=keep,
    )


def two_nodes():
    return cluster(pool(), box("a"), runs("web", "a"), box("b"), runs("api", "b"))


def test_a_replaced_node_frees_its_place_and_its_part_of_all_limits():
    problem, fresh = compared(two_nodes(), max_new_nodes=3)
    assert [each.state_node.name for each in fresh.nodes] == ["a", "b"]
    assert fresh.problem.nodes == ()
    assert sorted(each.name for each in fresh.problem.pods) == ["api", "web"]
    assert problem.pool_usage["default"]["cpu"] == 8000
    assert fresh.problem.pool_usage["default"]["cpu"] == 0
    assert fresh.problem.max_new_nodes == 5
    assert fresh.kept == {}


def test_a_node_whose_pods_found_no_place_stays_with_them():
    _, fresh = compared(two_nodes(), keep=("a",))
    assert [each.state_node.name for each in fresh.nodes] == ["b"]
    assert [each.name for each in fresh.problem.nodes] == ["a"]
    assert [each.name for each in fresh.problem.pods] == ["api"]
    assert set(fresh.kept) == {"a"}


def test_a_node_that_an_annotation_keeps_is_not_compared():
    """The controller would not remove it: its price is no savings."""
    stays = {"karpenter.sh/do-not-disrupt": "true"}
    not_so = {"karpenter.sh/do-not-disrupt": "false"}
    others = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    nodes = (
        box("a", annotations=stays),
        box("b", annotations=not_so),
        box("c", annotations=others),
    )
    _, fresh = compared(cluster(pool(), *nodes))
    assert [each.state_node.name for each in fresh.nodes] == ["b", "c"]
    assert fresh.kept == {"a": "an annotation of the node forbids its removal"}


def test_a_node_of_another_autoscaler_that_its_annotation_keeps_is_not_compared():
    group = {"group": "web", "node.kubernetes.io/instance-type": FOUR.name}
    kept = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    nodes = (
        node("a", labels=group, annotations=kept),
        node("b", labels=group),
    )
    _, fresh = compared(cluster(pool(), *nodes), other_nodes={"group": "web"})
    assert fresh.kept["a"] == "an annotation of the node forbids its removal"
    assert fresh.kept.get("b") != fresh.kept["a"]


def test_a_node_that_ends_anyway_is_not_compared():
    state = two_nodes()
    state.apply_event(DeletionMarked(names=("a",), cause="a test"))
    _, fresh = compared(state)
    assert [each.state_node.name for each in fresh.nodes] == ["b"]
    assert fresh.kept == {}


def test_a_node_that_leaves_is_not_compared():
    state = two_nodes()
    state.apply_event(DeletionMarked(names=("a",), cause="command-1"))
    _, fresh = compared(state)
    assert [each.state_node.name for each in fresh.nodes] == ["b"]
