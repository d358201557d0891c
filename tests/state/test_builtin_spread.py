"""The spread over zones that very many pods get from the scheduler itself."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from karpenter_core.api.labels import HOSTNAME, ZONE
from karpenter_core.api.records import LabelSelector, TopologySpread
from karpenter_core.scheduling.problem import PreferencePolicy, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.state import builtin_spread
from karpenter_core.state.builtin_spread import with_builtin_spread
from karpenter_core.state.provisioning_input import build_provisioning_input
from karpenter_core.testing.builders import (
    EPOCH,
    catalogue,
    instance_type,
    node_pool,
    offering,
    pod,
    pod_shape,
    problem,
)
from karpenter_core.testing.state_builders import ready_node_pool, synced_state

WEB = {"app": "web", "pod-template-hash": "7c86b64b8b"}


def replicas(count, **more):
    shape = replace(pod_shape(labels=WEB, cpu="1"), **more)
    return [pod(f"web-{number}", shape=shape) for number in range(count)]


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(builtin_spread, "MOST_NOMINATED_PODS", 5)


@pytest.mark.usefixtures("few")
def test_pods_of_a_replica_set_prefer_zones_with_few_of_them_if_they_are_too_many():
    spread = with_builtin_spread(replicas(6))
    assert [each.name for each in spread] == [f"web-{number}" for number in range(6)]
    (shape,) = {id(each.shape): each.shape for each in spread}.values()
    assert shape.topology_spread == (
        TopologySpread(
            topology_key=ZONE,
            max_skew=5,
            when_unsatisfiable="ScheduleAnyway",
            selector=LabelSelector(match_labels=WEB),
        ),
    )


@pytest.mark.usefixtures("few")
def test_pods_that_are_nominated_have_no_other_spread_than_their_own():
    asked = replicas(5)
    assert with_builtin_spread(asked) is asked


OWN = TopologySpread(topology_key=HOSTNAME, max_skew=1, when_unsatisfiable="ScheduleAnyway")


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    "more",
    [
        {"topology_spread": (OWN,)},
        {"owner_kind": "Job", "owner_api_version": "batch/v1"},
        {"owner_kind": "ReplicaSet", "owner_api_version": "example.com/v1"},
        {"owner_controls": False},
        {"labels": {}},
    ],
    ids=lambda more: ",".join(map(str, more.values())),
)
def test_pods_that_the_scheduler_does_not_spread_are_left_alone(more):
    asked = replicas(6, **more)
    assert all(new is old for new, old in zip(with_builtin_spread(asked), asked, strict=True))


def zonal_types():
    return catalogue(
        instance_type(
            "large",
            cpu="10",
            memory="64Gi",
            offerings=[
                offering(zone=f"zone-{zone}", price=1.0 + n / 10) for n, zone in enumerate("abc")
            ],
        )
    )


def zones(options=None):
    asked = problem(with_builtin_spread(replicas(60)), catalogue=zonal_types())
    plan = solve(asked, options or SolveOptions())
    assert not plan.unschedulable
    pods: Counter[str] = Counter()
    for claim in plan.claims:
        pods[claim.cheapest.zone] += len(claim.pods)
    return pods


def test_such_pods_are_planned_in_all_zones_where_few_are_in_the_cheapest(monkeypatch):
    assert zones() == {"zone-a": 60}
    monkeypatch.setattr(builtin_spread, "MOST_NOMINATED_PODS", 5)
    spread = zones()
    assert sum(spread.values()) == 60
    assert max(spread.values()) - min(spread[f"zone-{zone}"] for zone in "abc") <= 5
    assert zones(SolveOptions(preferences=PreferencePolicy.IGNORE)) == {"zone-a": 60}


@pytest.mark.parametrize(("count", "spread"), [(1000, 0), (1001, 1001)])
def test_a_pass_of_more_than_a_thousand_pods_plans_that_spread(count, spread):
    snapshot = synced_state(ready_node_pool(node_pool("default")), *replicas(count)).snapshot()
    asked = build_provisioning_input(snapshot, now=EPOCH).problem
    assert len(asked.pods) == count
    assert sum(bool(each.shape.topology_spread) for each in asked.pods) == spread
