"""A kubelet that lies about its node gains little: what it says never replaces what the claim says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.labels import NODE_POOL, TERMINATION_FINALIZER
from karpenter_core.api.labels import REGISTERED as REGISTERED_LABEL
from karpenter_core.api.nodeclaim import MULTIPLE_NODES_FOUND, REGISTERED
from karpenter_core.lifecycle.nodeclaim.registration import registration_step
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node, node_claim

UNREGISTERED = "karpenter.sh/unregistered:NoExecute"
LATER = EPOCH + timedelta(seconds=30)


def claim_of_a_pool():
    return node_claim("web", stage="Launched")


def booted(name, claim, **options):
    return node(name, claim=claim, stage="", finalizers=(), **options)


def register(claim, *nodes):
    return registration_step(claim, nodes, now=LATER)


def test_a_second_node_with_the_provider_id_of_a_claim_stops_its_registration():
    """Neither gets the claim's labels, so that no pod of the pool goes to the wrong one."""
    claim = claim_of_a_pool()
    true = booted("ip-1", claim, taints=(UNREGISTERED,))
    impostor = booted("ip-2", claim, taints=())

    step = register(claim, impostor, true)

    condition = find_condition(step.claim.status.conditions, REGISTERED)
    assert (condition.status, condition.reason) == ("False", MULTIPLE_NODES_FOUND)
    assert step.node is None
    assert not step.events


@pytest.mark.parametrize(
    "label", [NODE_POOL, "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"]
)
def test_labels_of_the_claim_replace_those_that_a_kubelet_gave_itself(label):
    claim = node_claim("web", stage="Launched", labels={label: "true-value"})
    kubelet = booted("ip-1", claim, taints=(UNREGISTERED,)).labels

    step = register(
        claim, booted("ip-1", claim, taints=(UNREGISTERED,), labels={**kubelet, label: "lie"})
    )

    assert step.node.labels[label] == "true-value"


def test_labels_that_only_the_kubelet_has_are_not_copied_to_the_claim():
    """Node isolation labels on the Node are the API server's to refuse (NodeRestriction)."""
    claim = claim_of_a_pool()
    lies = {f"node-restriction.kubernetes.io/team-{number}": "x" for number in range(5000)}

    step = register(claim, booted("ip-1", claim, taints=(UNREGISTERED,), labels=lies))

    assert not lies.keys() & step.claim.metadata.labels.keys()
    assert not lies.keys() & step.node.labels.keys()
    assert step.claim.spec == claim.spec


def test_a_kubelet_that_says_it_is_registered_is_registered_all_the_same():
    """Its claim still decides about labels, taints and the finalizer."""
    claim = claim_of_a_pool()

    step = register(claim, booted("ip-1", claim, labels={REGISTERED_LABEL: "true"}))

    assert step.node.labels[REGISTERED_LABEL] == "true"
    assert TERMINATION_FINALIZER in step.node.add_finalizers
    assert step.node.owner.uid == claim.uid


def test_a_node_without_the_unregistered_taint_is_reported():
    claim = claim_of_a_pool()

    step = register(claim, booted("ip-1", claim, taints=()))

    assert [notice.reason for notice in step.notices] == ["UnregisteredTaintMissing"]
