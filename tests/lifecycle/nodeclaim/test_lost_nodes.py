"""Registered claims whose Node is gone."""

from __future__ import annotations

import pytest

from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.lifecycle.nodeclaim.lost_nodes import are_too_many_lost, has_lost_its_node
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node, node_claim, synced_state


def registered(name, stage="Initialized", **options):
    claim = node_claim(name, stage=stage, **options)
    status = claim.status.model_copy(update={"node_name": f"node-{name}"})
    return claim.model_copy(update={"status": status})


def lost(claim, *nodes):
    return has_lost_its_node(claim, synced_state(claim, *nodes).snapshot())


def test_a_registered_claim_without_a_node_has_lost_it():
    claim = registered("a")
    assert lost(claim)
    assert not lost(claim, node("node-a", claim=claim))


def test_a_node_of_its_name_may_be_that_of_the_claim():
    """Clouds set the provider ID later than the kubelet creates the Node."""
    assert not lost(registered("a"), node("node-a", provider_id=""))


@pytest.mark.parametrize(
    "claim",
    [
        node_claim("a", stage="Launched"),
        registered("a", deleted=EPOCH),
        node_claim("a", stage="Initialized"),
    ],
)
def test_other_claims_have_lost_nothing(claim):
    """Those that await registration, are deleted already, or name no Node."""
    assert not lost(claim)


@pytest.mark.parametrize(
    ("without_node", "with_node", "held"),
    [(1, 0, False), (2, 0, True), (2, 1, True), (2, 2, False), (5, 5, False), (6, 5, True)],
)
def test_most_claims_without_a_node_look_like_a_mistake(without_node, with_node, held):
    claims = [registered(f"a{n}") for n in range(without_node)]
    whole = [registered(f"b{n}") for n in range(with_node)]
    nodes = [node(f"node-{claim.name}", claim=claim) for claim in whole]
    snapshot = synced_state(*claims, *whole, *nodes).snapshot()
    assert are_too_many_lost(snapshot, before=None) is held


@pytest.mark.parametrize(
    ("before", "has_node", "held"),
    [({"a", "b"}, True, False), ({"a", "b", "new"}, True, True), ({"a", "b"}, False, True)],
)
def test_a_node_that_has_registered_since_shows_that_there_is_no_mistake(before, has_node, held):
    claims = {name: registered(name) for name in ("a", "b", "new")}
    nodes = [node("node-new", claim=claims["new"])] if has_node else []
    snapshot = synced_state(*claims.values(), *nodes).snapshot()
    uids = frozenset(claims[name].uid for name in before)
    assert are_too_many_lost(snapshot, before=None)
    assert are_too_many_lost(snapshot, before=uids) is held


def test_claims_that_have_not_registered_do_not_count_as_whole():
    """They have no Node that they could have lost."""
    claims = [registered(f"a{n}") for n in range(3)]
    starting = [node_claim(f"b{n}", stage="Launched") for n in range(10)]
    assert are_too_many_lost(synced_state(*claims, *starting).snapshot(), before=None)


def test_claims_of_other_providers_do_not_count_as_whole():
    """Nobody here can say whether their Nodes are there."""
    claims = [registered(f"a{n}") for n in range(3)]
    other = NodeClassRef(group="other.io", kind="Other", name="a")
    foreign = [registered(f"b{n}", node_class_ref=other) for n in range(10)]
    nodes = [node(f"node-{claim.name}", claim=claim) for claim in foreign]
    assert are_too_many_lost(synced_state(*claims, *foreign, *nodes).snapshot(), before=None)


def test_claims_that_are_being_deleted_do_not_count_as_whole():
    """They would make a mistake look like the loss of a few."""
    claims = [registered(f"a{n}") for n in range(3)]
    ending = [registered(f"b{n}", deleted=EPOCH) for n in range(10)]
    nodes = [node(f"node-{claim.name}", claim=claim) for claim in ending]
    assert are_too_many_lost(synced_state(*claims, *ending, *nodes).snapshot(), before=None)
