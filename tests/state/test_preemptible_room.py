"""Virtual pods have the room of expendable pods that Kubernetes' scheduler would evict for them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from karpenter_core.api.labels import EXPENDABLE
from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.whatif.what_if import WhatIf
from karpenter_core.state.disruption_problem import build_disruption_problem
from karpenter_core.state.events import VirtualPodsDeclared
from karpenter_core.state.expendable_pods import NO_CUTOFF
from karpenter_core.state.preemptible_room import cover_virtual_pods
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.testing.builders import EPOCH, existing_node, pod, problem
from tests.disruption.small_clusters import box, cluster
from tests.scheduling.test_virtual_pods import source, virtual_pods


def filler(name="filler", *, cpu="3", priority=-1, **fields):
    built = pod(name, cpu=cpu, priority=priority, phase="Running", **fields)
    shape = msgspec.structs.replace(built.shape, annotations={EXPENDABLE: "true"})
    return msgspec.structs.replace(built, shape=shape)


def covered(*pods, free="1", virtual=2, cutoff=NO_CUTOFF):
    """Return the names of the virtual pods, of a core each, that are covered and that are left."""
    node = replace(existing_node("node-1", cpu=free, memory="8Gi"), pods=pods)
    asked = problem(virtual_pods(virtual, cpu="1"), nodes=[node])
    found = cover_virtual_pods(asked, cutoff=cutoff)
    names = [each.name for each in found.covered_pods.get("node-1", ())]
    return len(names), len(found.pods)


def test_virtual_pods_without_free_room_have_that_of_expendable_pods():
    """One of the core that is free, three of the filler's three cores, and one of none."""
    assert covered(filler(), virtual=5) == (3, 2)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [filler(priority=0)],
        [pod("web", cpu="3", priority=-1, phase="Running")],
        [filler(owner_kind="DaemonSet")],
        [msgspec.structs.replace(filler(), deletion_timestamp=EPOCH)],
    ],
    ids=["none", "priority", "not-expendable", "daemon", "terminating"],
)
def test_pods_that_are_not_evicted_for_others_cover_nothing(others):
    assert covered(*others) == (0, 2)


def test_pods_below_the_cutoff_are_expendable():
    low = pod("low", cpu="3", priority=-5, phase="Running")
    assert covered(low, cutoff=-5) == (0, 2)
    assert covered(low, cutoff=-4) == (1, 1)


def test_pods_that_are_placed_like_real_ones_are_not_covered():
    asked = problem(
        virtual_pods(2, cpu="1", priority=0),
        nodes=[replace(existing_node("node-1", cpu="0"), pods=(filler(),))],
    )
    assert cover_virtual_pods(asked, cutoff=NO_CUTOFF) is asked


def with_fillers():
    """Two nodes of four cores, full of expendable pods, and a virtual pod."""
    state = cluster(
        box("a"),
        box("b"),
        filler("x", cpu="3800m", node_name="a"),
        filler("y", cpu="3800m", node_name="b"),
    )
    state.apply_event(VirtualPodsDeclared(source=source(), pods=tuple(virtual_pods(1, cpu="1"))))
    return state.snapshot()


def test_a_plan_has_covered_pods_on_their_nodes():
    asked = build_provisioning_input(with_fillers(), now=EPOCH, problem_settings=ProblemSettings())
    plan = solve(asked.problem)
    assert (len(plan.claims), dict(plan.unschedulable)) == (0, {})
    (pods,) = plan.existing.values()
    assert [each.name for each in pods] == ["capacity-buffer-headroom-1"]


def test_the_node_of_a_covered_pod_is_removed_only_if_the_pod_has_another_place():
    """The other node can be removed without it."""
    snapshot = with_fillers()
    asked, movable = build_disruption_problem(snapshot, now=EPOCH, problem_settings=None)
    (host,) = asked.covered_pods
    (other,) = {"a", "b"} - {host}
    whatif = WhatIf(replace(asked, pools=(), catalogues={}), movable)
    assert whatif.evaluate([other]).is_possible
    assert not whatif.evaluate([host]).is_possible
