"""Pods of removed nodes are bound where most is free, and buffers must keep their room there."""

from __future__ import annotations

import pytest

from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.state.events import VirtualPodsDeclared
from tests.disruption.small_clusters import EIGHT, box, cluster, pass_over, runs
from tests.scheduling.test_virtual_pods import source, virtual_pods


def lost(*objects, removed="b", virtual=("3500m",), **options):
    """Return what a consolidation of a node would cost buffers; None if it is not possible."""
    state = cluster(*objects, **options)
    pods = [
        pod
        for number, cpu in enumerate(virtual)
        for pod in virtual_pods(1, name=f"buffer-{number}", cpu=cpu)
    ]
    for pod in pods:
        declared = VirtualPodsDeclared(source=source(pod.name), pods=(pod,))
        state.apply_event(declared)
    a_pass = pass_over(state)
    candidates = a_pass.candidates(DisruptionClass.GRACEFUL).candidates
    (chosen,) = (each for each in candidates if each.name == removed)
    run_steps(a_pass.simulation.prepare_steps(avoid_unsettled=False))
    verdict = a_pass.simulation.evaluate((chosen,))
    return a_pass.buffer_room.lost_by(verdict) if verdict.is_possible else None


def three_nodes(**options):
    """Two pods on `a`, one on `b`, and an empty `c`; each node has four cores."""
    return [
        box("a", zone="zone-b"),
        box("b", zone="zone-b"),
        box("c"),
        runs("first", "a", cpu="900m"),
        runs("second", "a", cpu="900m"),
        runs("third", "b", cpu="1", **options),
    ]


def test_a_pod_is_bound_to_the_emptiest_node_where_a_buffer_has_its_room():
    assert lost(*three_nodes()) == 1


def test_without_buffers_nothing_is_lost():
    assert lost(*three_nodes(), virtual=()) == 0


def test_room_that_is_left_beside_the_pod_is_not_lost():
    assert lost(*three_nodes(), virtual=("2500m",)) == 0


def test_a_pod_that_must_be_elsewhere_takes_no_room():
    selector = {"topology.kubernetes.io/zone": "zone-b"}
    assert lost(*three_nodes(node_selector=selector)) == 0


@pytest.mark.parametrize(("removed", "expected"), [("c", 0), ("a", 1)])
def test_virtual_pods_of_the_removed_node_itself_need_room_too(removed, expected):
    """Without `c` the room is made on a new node; pods of `a` would be bound to `c`."""
    assert lost(*three_nodes(), removed=removed) == expected


def test_a_buffer_that_had_no_room_before_loses_none():
    assert lost(*three_nodes(), virtual=("30",)) in {0, None}


def test_pods_may_fill_the_new_node_of_a_move():
    """One large node is replaced; the pods stay on what replaces it."""
    objects = [box("b", EIGHT), runs("first", "b"), runs("second", "b")]
    assert lost(*objects, virtual=("1",)) == 0
