"""Pods of removed nodes are bound where most is free, and buffers must keep their room there."""

from __future__ import annotations

import random

import msgspec
import pytest

from karpenter_core.api.records import AffinityTerm, LabelSelector
from karpenter_core.disruption.buffer_room import BufferRoom
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.state.events import VirtualPodsDeclared
from tests.disruption.small_clusters import EIGHT, box, cluster, pass_over, runs
from tests.scheduling.test_virtual_pods import source, virtual_pods


def consolidated(*objects, removed="b", virtual=("3500m",), labels=None, **options):
    """Return a pass, its candidate of this name, and the answer whether that can be removed."""
    state = cluster(*objects, **options)
    pods = [
        pod
        for number, cpu in enumerate(virtual)
        for pod in virtual_pods(1, name=f"buffer-{number}", cpu=cpu, labels=labels)
    ]
    for pod in pods:
        declared = VirtualPodsDeclared(source=source(pod.name), pods=(pod,))
        state.apply_event(declared)
    a_pass = pass_over(state)
    candidates = a_pass.candidates(DisruptionClass.GRACEFUL).candidates
    (chosen,) = (each for each in candidates if each.name == removed)
    run_steps(a_pass.simulation.prepare_steps(avoid_unsettled=False))
    return a_pass, chosen, a_pass.simulation.evaluate((chosen,))


def lost(*objects, **options):
    """Return what a consolidation of a node would cost buffers; None if it is not possible."""
    a_pass, _, verdict = consolidated(*objects, **options)
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


def test_the_emptiest_node_is_that_with_the_largest_free_share_of_its_allocatable_resources():
    """Of `c` a core is reserved for the system: two of its three others stay free beside the pod."""
    (node, claim), third = box("c"), runs("third", "b", cpu="1")
    node = msgspec.structs.replace(node, allocatable={**node.allocatable, "cpu": 3000})
    objects = [box("a"), box("b"), (node, claim), runs("first", "a", cpu="800m"), third]
    assert lost(*objects, virtual=("3100m",)) == 0, "the room on `a` is left to the buffer"


def test_without_buffers_nothing_is_lost():
    assert lost(*three_nodes(), virtual=()) == 0


def test_room_that_is_left_beside_the_pod_is_not_lost():
    assert lost(*three_nodes(), virtual=("2500m",)) == 0


def test_a_pod_that_must_be_elsewhere_takes_no_room():
    selector = {"topology.kubernetes.io/zone": "zone-b"}
    assert lost(*three_nodes(node_selector=selector)) == 0


@pytest.mark.parametrize(("beside", "expected"), [("other", 1), ("db", 0)])
def test_a_pod_that_depends_on_others_is_bound_to_the_emptiest_node_that_admits_it(
    beside, expected
):
    """The what-if puts it on `a`, where no buffer has room; a pod `db` on `c` keeps it from there."""
    term = AffinityTerm(
        topology_key="kubernetes.io/hostname", selector=LabelSelector(match_labels={"app": "db"})
    )
    *others, third = three_nodes()
    shape = msgspec.structs.replace(third.shape, pod_anti_affinity=(term,))
    small = runs("small", "c", cpu="100m", labels={"app": beside})
    objects = [*others, small, msgspec.structs.replace(third, shape=shape)]
    assert lost(*objects) == expected


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


@pytest.mark.parametrize(("app", "expected"), [("web", 1), ("other", 0)])
def test_pods_that_repel_those_of_a_buffer_leave_no_room(app, expected):
    """A moved pod takes the room on `c`, and `a` has as much, but for a pod that repels the buffer's."""
    term = AffinityTerm(
        topology_key="kubernetes.io/hostname", selector=LabelSelector(match_labels={"app": app})
    )
    first = runs("first", "a", cpu="100m")
    shape = msgspec.structs.replace(first.shape, pod_anti_affinity=(term,))
    repelling = msgspec.structs.replace(first, shape=shape)
    objects = [box("a"), box("b"), box("c"), repelling, runs("second", "b", cpu="1")]
    assert lost(*objects, labels={"app": "web"}) == expected


@pytest.mark.parametrize(
    ("priority", "beside", "virtual", "expected"),
    [
        (0, "3500m", ("3500m",), 1),
        (-1, "3500m", ("3500m",), 0),  # the scheduler evicts it for the pods of the buffer
        (0, "1", ("3500m",), 0),  # it fits beside the pod on `a`
        (0, "3500m", (), 0),
    ],
)
def test_expendable_pods_find_room_only_where_a_buffer_has_it(priority, beside, virtual, expected):
    """No node is launched for them, so they would be bound there."""
    low = runs("low", "b", annotations={"karpenter.sh/expendable": "true"})
    low = msgspec.structs.replace(low, shape=msgspec.structs.replace(low.shape, priority=priority))
    objects = [box("a"), box("b"), box("c"), runs("first", "a", cpu=beside), low]
    a_pass, chosen, verdict = consolidated(*objects, virtual=virtual)
    assert a_pass.expendable_moves.taking_buffer_room((chosen,), verdict) == expected


@pytest.mark.parametrize("seed", range(60))
def test_the_first_nodes_with_room_decide_as_the_solver_does(seed, monkeypatch):
    """Room that they have for all, the solver finds too; it decides in all other cases."""
    rng = random.Random(seed)
    sizes = ["300m", "900m", "1500m", "2500m"]
    objects = [box(name) for name in "abcdefgh"]
    objects += [
        runs(f"{name}-{number}", name, cpu=rng.choice(sizes[:3]))
        for name in "abcdefgh"
        for number in range(rng.randint(0, 2))
    ]
    virtual = tuple(rng.choice(sizes) for _ in range(rng.randint(1, 6)))
    quick = [lost(*objects, removed=name, virtual=virtual) for name in "abc"]
    monkeypatch.setattr(BufferRoom, "_have_room", lambda *_: False)
    assert quick == [lost(*objects, removed=name, virtual=virtual) for name in "abc"]
