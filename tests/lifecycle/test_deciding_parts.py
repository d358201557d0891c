"""Parts of conditions of the lifecycle that decide for rare objects only."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import INITIALIZED, REGISTERED
from karpenter_core.api.provisioning_request import CHECK_CAPACITY
from karpenter_core.lifecycle.nodeclaim.consolidatable import consolidatable_step
from karpenter_core.lifecycle.nodeclaim.initialization import initialization_step
from karpenter_core.lifecycle.nodeclaim.liveness import initialization_timeout_step
from karpenter_core.lifecycle.nodeclaim.lost_nodes import has_lost_its_node
from karpenter_core.lifecycle.nodeclaim.nomination import planned_pods
from karpenter_core.lifecycle.nodeclaim.refused_nodes import RefusedNode
from karpenter_core.lifecycle.nodeclaim.registration import registration_step
from karpenter_core.lifecycle.nodeclaim.termination import TerminationAction, claim_termination
from karpenter_core.lifecycle.provisioning_request.parameters import parse_parameters
from karpenter_core.state.events import PodsDecided
from karpenter_core.testing.builders import EPOCH, node_pool, pod
from karpenter_core.testing.state_builders import (
    node,
    node_and_claim,
    node_claim,
    ready_node_pool,
    synced_state,
)
from tests.support.provisioning_requests import request

HOUR = timedelta(hours=1)


def test_a_claim_without_the_label_of_a_pool_is_never_made_consolidatable():
    """Even where a NodePool is found for it."""
    claim = node_claim("a", stage="Initialized")
    bare = claim.model_copy(
        update={
            "metadata": claim.metadata.model_copy(
                update={
                    "labels": {k: v for k, v in claim.metadata.labels.items() if k != NODE_POOL}
                }
            )
        }
    )
    pool = ready_node_pool(node_pool())
    assert consolidatable_step(claim, pool, now=EPOCH + HOUR).claim is not claim
    assert consolidatable_step(bare, pool, now=EPOCH + HOUR).claim is bare


def test_a_node_that_is_not_ready_is_named_before_its_devices():
    claim = node_claim(
        "a",
        stage="Registered",
        annotations={"karpenter.sh/requested-dra-drivers": "gpu.example.com"},
    )
    step = initialization_step(claim, [node(claim=claim, ready="False")], now=EPOCH, slices=())
    assert find_condition(step.claim.status.conditions, INITIALIZED).reason == "NodeNotReady"


def test_the_time_to_initialise_begins_anew_when_the_registration_lies_in_the_future():
    """A clock was ahead: the claim gets the time of now."""
    claim = node_claim("a", stage="Registered", created=EPOCH + HOUR)
    step = initialization_timeout_step(claim, (), now=EPOCH, timeout=HOUR, paused=False)
    assert step.requeue_after == HOUR
    found = find_condition(step.claim.status.conditions, REGISTERED)
    assert found.last_transition_time == EPOCH
    assert not step.delete


def test_a_claim_that_has_not_registered_has_no_node_to_lose():
    claim = node_claim("a", stage="Launched")
    status = claim.status.model_copy(update={"node_name": "ip-1"})
    claim = claim.model_copy(update={"status": status})
    assert not has_lost_its_node(claim, synced_state(claim).snapshot())


def test_a_claim_registers_its_node_although_another_one_is_refused():
    claim = node_claim("web", stage="Launched")
    true = node("ip-1", claim=claim, stage="", taints=["karpenter.sh/unregistered:NoExecute"])
    refused = (RefusedNode(name="ip-2", reason="is older than it"),)
    step = registration_step(claim, [true], now=EPOCH, refused=refused)
    assert find_condition(step.claim.status.conditions, REGISTERED).status == "True"


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [("checkOnly", False), ("bookPartial", False), ("", False), ("all", True)],
)
def test_a_partial_check_is_refused_only_where_it_is_unknown(text, is_refused):
    asked = request(2, provisioning_class=CHECK_CAPACITY, partialCapacityCheck=text)
    assert isinstance(parse_parameters(asked), str) is is_refused


def test_pods_that_the_scheduler_has_not_tried_yet_count_as_planned_for_a_node():
    tried = pod("tried")
    untried = msgspec.structs.replace(pod("untried"), unschedulable=False, tried=False)
    builder = synced_state(*node_and_claim("web-1"), tried, untried)
    builder.apply_event(PodsDecided(placed={tried.uid: "web-1", untried.uid: "web-1"}, at=EPOCH))
    found = planned_pods(builder.snapshot(), claim="web-1", node="web-1")
    assert {each.name for each in found} == {"tried", "untried"}


@pytest.mark.parametrize(
    ("stage", "of_node", "action"),
    [
        ("Launched", REGISTERED, "AWAIT_NODES"),
        ("Launched", "", "TERMINATE_INSTANCE"),
        ("Registered", "", "AWAIT_NODES"),
    ],
)
def test_a_node_is_awaited_once_it_or_its_claim_says_that_it_registered(stage, of_node, action):
    """The node is written first; one that its kubelet created again has lost the label."""
    claim = node_claim("a", stage=stage, deleted=EPOCH)
    its_node = node("a", claim=claim, stage=of_node)
    ledger = synced_state(claim).snapshot().ledger
    step = claim_termination(claim, [its_node], ledger, now=EPOCH)
    assert step.action is TerminationAction[action]
