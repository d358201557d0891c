"""A kubelet that lies about its node gains little: what it says never replaces what the claim says."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.labels import INITIALIZED as INITIALIZED_LABEL
from karpenter_core.api.labels import NODE_POOL, TERMINATION_FINALIZER
from karpenter_core.api.labels import REGISTERED as REGISTERED_LABEL
from karpenter_core.api.nodeclaim import MULTIPLE_NODES_FOUND, NODE_REFUSED, REGISTERED
from karpenter_core.lifecycle.nodeclaim.hydration import hydration_step
from karpenter_core.lifecycle.nodeclaim.refused_nodes import (
    REFUSAL_RETRY,
    refused_nodes,
    refused_notices,
)
from karpenter_core.lifecycle.nodeclaim.registration import registration_step
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node, node_claim, synced_state

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


def snapshot_of(*objects):
    return synced_state(*objects).snapshot()


def with_node_name(claim, name):
    status = claim.status.model_copy(update={"node_name": name})
    return claim.model_copy(update={"status": status})


def refusals(claim, *objects):
    return {each.name: each.reason for each in refused_nodes(claim, snapshot_of(claim, *objects))}


def test_a_node_that_is_older_than_the_claim_is_refused():
    """The instance did not exist then: an old Node without provider ID may take any id once."""
    claim = node_claim("web", stage="Launched", created=LATER)
    impostor = booted("ip-2", claim, created=EPOCH)
    true = booted("ip-1", claim, created=LATER)
    snapshot = snapshot_of(claim, impostor, true)

    assert refusals(claim, impostor, true) == {"ip-2": "is older than it"}
    assert [each.name for each in snapshot.nodes_of(claim)] == ["ip-1"]
    assert snapshot.claims_of(impostor) == ()
    assert snapshot.state_nodes_by_claim["web"].node.name == "ip-1"


def test_a_claim_whose_only_node_is_refused_waits_for_its_own():
    claim = claim_of_a_pool()
    refused = refused_nodes(
        node_claim("web", stage="Launched", created=LATER),
        snapshot_of(node_claim("web", stage="Launched", created=LATER), booted("ip-2", claim)),
    )

    step = registration_step(claim, (), now=LATER, refused=refused)

    condition = find_condition(step.claim.status.conditions, REGISTERED)
    assert (condition.status, condition.reason) == ("Unknown", NODE_REFUSED)
    assert condition.message == (
        'Node "ip-2" shows the provider ID of this NodeClaim and is older than it'
    )
    assert step.node is None
    assert step.requeue_after == REFUSAL_RETRY
    (notice,) = refused_notices(claim, refused)
    assert (notice.reason, notice.type) == ("NodeRefused", "Warning")


def test_a_later_node_never_takes_the_place_of_the_one_that_registered():
    claim = with_node_name(node_claim("web", stage="Initialized"), "ip-1")
    true, impostor = node("ip-1", claim=claim), node("ip-0", claim=claim)
    snapshot = snapshot_of(claim, impostor, true)

    assert refusals(claim, impostor, true) == {
        "ip-0": 'is not Node "ip-1", which registered for it'
    }
    assert [each.name for each in snapshot.nodes_of(claim)] == ["ip-1"]
    assert snapshot.state_nodes_by_claim["web"].node.name == "ip-1"


def test_a_registered_claim_without_its_node_does_not_take_another():
    claim = with_node_name(node_claim("web", stage="Initialized"), "ip-1")
    impostor = node("ip-0", claim=claim)
    snapshot = snapshot_of(claim, impostor)

    assert snapshot.nodes_of(claim) == ()
    assert snapshot.claims_of(impostor) == ()
    assert snapshot.state_nodes_by_claim["web"].node is None


@pytest.mark.parametrize(("deleted", "refused"), [(None, True), (LATER, False)])
def test_the_node_of_another_claim_is_refused_unless_that_claim_ends(deleted, refused):
    """The other claim's instance may have given its address, and so its name, to the new one."""
    other = with_node_name(
        node_claim("old", stage="Initialized", provider_id="kwok://old", deleted=deleted), "ip-1"
    )
    claim = claim_of_a_pool()
    again = booted("ip-1", claim)

    found = refusals(claim, other, again)

    expected = {"ip-1": 'is the Node that registered for NodeClaim "old"'} if refused else {}
    assert found == expected


@pytest.mark.parametrize("changed", ["secret", None])
def test_the_claim_determines_the_nodepool_after_registration(changed):
    claim = node_claim("web", stage="Initialized")
    kubelet = node("ip-1", claim=claim)
    labels = {key: text for key, text in kubelet.labels.items() if key != NODE_POOL}
    if changed is not None:
        labels[NODE_POOL] = changed
    kubelet = msgspec.structs.replace(kubelet, labels=labels)

    step = hydration_step(claim, (kubelet,))
    state_node = snapshot_of(claim, kubelet).state_nodes_by_claim["web"]

    assert step.node.labels[NODE_POOL] == "default"
    assert [notice.reason for notice in step.notices] == ["NodeLabelRestored"]
    assert (state_node.pool, state_node.labels[NODE_POOL]) == ("default", "default")


def test_labels_of_the_cloud_stay_as_they_are_on_the_node():
    """A provider makes a reserved Node an on-demand one when its reservation ends."""
    claim = node_claim("web", stage="Initialized", capacity_type="reserved")
    on_demand = node("ip-1", claim=claim, labels={"karpenter.sh/capacity-type": "on-demand"})

    step = hydration_step(claim, (on_demand,))

    assert step.node is None
    assert not step.notices


@pytest.mark.parametrize("lost", [REGISTERED_LABEL, INITIALIZED_LABEL])
def test_lost_labels_of_the_lifecycle_are_restored(lost):
    """Without them the Node would count as booting, and never be disrupted again."""
    claim = node_claim("web", stage="Initialized", startup_taints=["boot:NoExecute"])
    its_node = node("ip-1", claim=claim)
    bare = without_labels(its_node, lost)

    step = hydration_step(claim, (bare,))

    assert step.node.applied_to(bare).labels == its_node.labels
    assert step.node.applied_to(bare).taints == ()
    assert [notice.reason for notice in step.notices] == ["NodeLabelRestored"]
    assert lost in step.notices[0].message


@pytest.mark.parametrize("stage", ["Launched", "Registered"])
def test_labels_of_later_stages_are_not_set_early(stage):
    claim = node_claim("web", stage=stage)
    step = hydration_step(claim, (node("ip-1", claim=claim, stage=stage),))
    assert step.node is None


def test_a_node_that_cannot_be_used_is_not_labelled_as_initialised():
    claim = node_claim("web", stage="Initialized")
    silent = without_labels(node("ip-1", claim=claim, ready="Unknown"), INITIALIZED_LABEL)
    assert hydration_step(claim, (silent,)).node is None


def test_a_deleted_node_gets_no_labels_back():
    claim = node_claim("web", stage="Initialized")
    leaving = without_labels(node("ip-1", claim=claim, deleted=EPOCH), REGISTERED_LABEL)
    assert hydration_step(claim, (leaving,)).node is None


def test_a_node_that_its_kubelet_has_created_again_is_registered_again():
    """Otherwise the taint of an unregistered Node would stay, and no pod could run there."""
    claim = node_claim("web", stage="Initialized", taints=["team=a:NoSchedule"])
    again = node(
        "ip-1",
        provider_id=claim.status.provider_id,
        taints=["karpenter.sh/unregistered:NoExecute"],
        finalizers=(),
    )

    step = hydration_step(claim, (again,))

    registered = step.node.applied_to(again)
    assert [each.key for each in registered.taints] == ["team"]
    assert registered.labels[REGISTERED_LABEL] == "true"
    assert registered.labels[NODE_POOL] == "default"
    assert registered.labels[INITIALIZED_LABEL] == "true"
    assert registered.finalizers == (TERMINATION_FINALIZER,)


@pytest.mark.parametrize(
    ("stage", "deleted", "expected"),
    [("Initialized", None, True), ("Initialized", EPOCH, False), ("Launched", None, False)],
)
def test_the_taint_of_unregistered_nodes_is_removed_from_a_registered_one(stage, deleted, expected):
    """A webhook or controller may put it back; before its registration a Node has it by right."""
    claim = node_claim("web", stage=stage)
    taints = (UNREGISTERED, "team=a:NoSchedule")
    tainted = node("ip-1", claim=claim, taints=taints, deleted=deleted)

    step = hydration_step(claim, (tainted,))

    assert (step.node is not None) is expected
    assert [notice.reason for notice in step.notices] == ["UnregisteredTaintReturned"] * expected
    if step.node is not None:
        assert [each.key for each in step.node.applied_to(tainted).taints] == ["team"]


def without_labels(its_node, *keys):
    labels = {key: text for key, text in its_node.labels.items() if key not in keys}
    return msgspec.structs.replace(its_node, labels=labels)
