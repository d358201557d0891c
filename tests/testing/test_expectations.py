"""Every kind of expectation can hold and can fail."""

from __future__ import annotations

from typing import Any

import pytest

from karpenter_core.testing.expectations import CloudAccount, Observation, unmet_expectations
from karpenter_core.testing.scenarios import Expectation

NODE = {
    "metadata": {"name": "node-1", "labels": {"karpenter.sh/nodepool": "general"}},
    "spec": {"providerID": "kwok://1", "taints": [{"key": "busy", "effect": "NoSchedule"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}
CLAIM = {"metadata": {"name": "claim-1"}, "status": {"providerID": "kwok://1"}}
INSTANCE = {"providerID": "kwok://1"}
CLOUD = CloudAccount(instances=[INSTANCE], launches={"uid-1": 1})
NO_CLOUD = CloudAccount()
EVENT = {
    "reason": "FailedScheduling",
    "involvedObject": {"kind": "Pod"},
    "message": "did not tolerate taint example.com/team",
}
POOL = {
    "metadata": {"name": "general"},
    "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Gone"}]},
}
WHOLE = Observation(
    pods=[{"metadata": {"name": "a"}, "status": {"phase": "Running"}}],
    nodes=[NODE, {"metadata": {"name": "foreign"}, "spec": {}}],
    node_claims=[CLAIM],
    claims_ever=2,
    events=[EVENT],
    cloud=CLOUD,
    objects={("NodePool", "general"): POOL},
)


def failures(then: dict[str, Any], seen: Observation = WHOLE) -> tuple[str, ...]:
    return unmet_expectations(Expectation.model_validate(then), seen)


@pytest.mark.parametrize(
    "then",
    [
        {},
        {"pods": {"running": 1, "pending": 0}},
        {"nodes": 1},
        {"readyNodes": 1},
        {"nodeClaims": 1, "launched": 2, "instances": 1},
        {"consistent": True},
        {"poolsUsed": ["general"]},
        {"nodeTaintsAbsent": ["other"]},
        {"events": [{"reason": "FailedScheduling", "kind": "Pod", "contains": ["team"]}]},
        {"events": [{"contains": ["nothing like it"], "count": 0}]},
        {
            "conditions": [
                {"kind": "NodePool", "name": "general", "type": "Ready", "status": "False"}
            ]
        },
    ],
)
def test_a_met_expectation_has_no_unmet_part(then: dict[str, Any]):
    """Each part by itself."""
    assert failures(then) == ()


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ({"pods": {"running": 2}}, "running pods: 1, expected 2"),
        ({"pods": {"pending": {"atLeast": 1}}}, "pending pods: 0, expected at least 1"),
        ({"nodes": 2}, "nodes: 1, expected 2"),
        ({"readyNodes": 0}, "ready nodes: 1, expected 0"),
        ({"nodeClaims": 0}, "NodeClaims: 1, expected 0"),
        ({"launched": {"atMost": 1}}, "NodeClaims ever: 2, expected at least 0 and at most 1"),
        ({"instances": 0}, "instances: 1, expected 0"),
        ({"poolsUsed": []}, "NodePools with nodes: ['general'], expected []"),
        ({"nodeTaintsAbsent": ["busy"]}, "taint busy is on node-1"),
        ({"events": [{"reason": "Other"}]}, "0 events Other"),
        ({"events": [{"kind": "Node"}]}, "0 events  on Node"),
        ({"events": [{"count": 0}]}, "1 events"),
        (
            {"conditions": [{"kind": "NodePool", "name": "x", "type": "Ready", "status": "True"}]},
            "NodePool x does not exist",
        ),
        (
            {
                "conditions": [
                    {
                        "kind": "NodePool",
                        "name": "general",
                        "type": "Ready",
                        "status": "False",
                        "reason": "Lost",
                    },
                ],
            },
            "'reason': 'Gone'",
        ),
    ],
)
def test_failed_expectation_names_the_actual_value(then: dict[str, Any], said: str):
    """The message names the fact, what was seen and what was expected."""
    (message,) = failures(then)

    assert said in message


def test_the_emptiness_expectation_names_all_remaining_objects():
    """Pods, nodes, claims and instances, each with examples."""
    assert len(failures({"nothingLeft": True})) == 4
    assert failures({"nothingLeft": True}, Observation(nodes=[{"metadata": {}, "spec": {}}])) == ()


def test_a_duplicate_is_reported_even_after_its_collection():
    """Two launches for one claim are one too many, whatever became of the second instance."""
    cloud = CloudAccount(instances=[INSTANCE], launches={"uid-1": 2})
    seen = Observation(nodes=[NODE], node_claims=[CLAIM], cloud=cloud)

    (message,) = failures({"consistent": True}, seen)

    assert "more than once for the same claim: uid-1" in message


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (Observation(cloud=CLOUD, nodes=[NODE]), "instances without NodeClaim: kwok://1"),
        (Observation(cloud=CLOUD, node_claims=[CLAIM]), "instances without Node: kwok://1"),
        (
            Observation(cloud=NO_CLOUD, node_claims=[CLAIM], nodes=[NODE]),
            "NodeClaims without instance: kwok://1",
        ),
    ],
)
def test_leaks_are_detected_in_both_directions(seen: Observation, said: str):
    """Instances without a claim, and claims without an instance."""
    assert any(said in message for message in failures({"consistent": True}, seen))
