"""Launching: adopting, asking, failing (cases 29-32, 55)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from karpenter_core.api.conditions import find, is_true
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from karpenter_core.api.nodeclaim import LAUNCHED
from karpenter_core.errors import (
    AuthError,
    CallPendingError,
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClassNotReadyError,
    OfferingKey,
    ThrottledError,
)
from karpenter_core.lifecycle.changes import metadata_patch, status_patch
from karpenter_core.lifecycle.claim_status import initialise, restamped, with_condition
from karpenter_core.lifecycle.nodeclaim.launch import (
    LaunchAction,
    finalizer_step,
    launch_advice,
    launch_failed,
    launched_claim,
    launched_step,
)
from karpenter_core.state.events import CallFinished, CallStarted
from karpenter_core.testing.builders import EPOCH, instance_type, requirement_spec
from karpenter_core.testing.machines import node_claim, state

LATER = EPOCH + timedelta(seconds=30)
SPOT_A = OfferingKey(instance_type="m-4x", zone="zone-a", capacity_type="spot")


@dataclass(frozen=True, kw_only=True)
class Launched:
    provider_id: str = "kwok://x"
    instance_type: str = "m-4x"
    zone: str = "zone-b"
    capacity_type: str = "spot"
    capacity: dict = field(default_factory=lambda: {"cpu": 4000, "memory": 2**34})
    allocatable: dict = field(default_factory=lambda: {"cpu": 3900, "memory": 2**34})
    image_id: str = "image-1"
    labels: dict = field(default_factory=lambda: {"cloud": "label", "team": "cloud"})
    annotations: dict = field(default_factory=lambda: {"cloud": "note", "own": "cloud"})


def advice(builder, claim):
    return launch_advice(claim, builder.snapshot().ledger)


def condition(step):
    return find(step.claim.status.conditions, LAUNCHED)


def test_a_new_claim_asks_the_provider():
    claim = node_claim("web")
    assert advice(state(claim), claim).action is LaunchAction.CALL


def test_while_a_call_is_open_nobody_asks_again():
    """A time limit never means "did not happen"."""
    claim = node_claim("web")
    builder = state(claim)
    builder.fold(CallStarted(claim.uid, EPOCH))
    assert advice(builder, claim).action is LaunchAction.WAIT


def test_a_remembered_result_is_adopted():
    """A status patch that failed never launches a second instance."""
    claim = node_claim("web")
    builder = state(claim)
    result = launched_claim(claim, Launched())
    builder.fold(CallFinished(claim_uid=claim.uid, launched=result, at=EPOCH))
    found = advice(builder, claim)
    assert (found.action, found.result) == (LaunchAction.ADOPT, result)


def test_a_launched_claim_asks_nobody():
    claim = node_claim("web", stage="Launched")
    assert advice(state(claim), claim).action is LaunchAction.NONE


def test_the_finalizer_comes_first():
    """Case 30."""
    bare = node_claim("web", finalizers=("foreign/one",))
    step = finalizer_step(bare)
    assert step is not None
    assert step.claim.metadata.finalizers == ("foreign/one", "karpenter.sh/termination")
    assert finalizer_step(step.claim) is None


def test_a_launch_completes_the_claim():
    """Of labels the claim's own win, of annotations the provider's."""
    claim = node_claim("web", labels={"team": "own"}, annotations={"own": "claim", "kept": "yes"})
    step = launched_step(claim, launched_claim(claim, Launched()), LATER)
    labels, annotations = step.claim.metadata.labels, step.claim.metadata.annotations
    assert (labels[INSTANCE_TYPE], labels[ZONE], labels[CAPACITY_TYPE]) == (
        "m-4x",
        "zone-b",
        "spot",
    )
    assert (labels["team"], labels["cloud"]) == ("own", "label")
    assert annotations == {"own": "cloud", "kept": "yes", "cloud": "note"}
    status = step.claim.status
    assert (status.provider_id, status.image_id) == ("kwok://x", "image-1")
    assert str(status.allocatable["cpu"]) == "3900m"
    assert is_true(status.conditions, LAUNCHED)


def test_a_launch_is_two_patches_of_what_changed():
    claim = node_claim("web", resource_version=7)
    step = launched_step(claim, launched_claim(claim, Launched()), LATER)
    metadata, status = metadata_patch(claim, step.claim), status_patch(claim, step.claim)
    assert metadata is not None
    assert metadata.resource_version is None
    assert set(metadata.body["metadata"]) == {"labels", "annotations"}
    assert INSTANCE_TYPE in metadata.body["metadata"]["labels"]
    assert status is not None
    assert status.resource_version == "7"
    assert status.body["status"]["providerID"] == "kwok://x"
    assert set(status.body["status"]) == {
        "providerID", "imageID", "capacity", "allocatable", "conditions",
    }  # fmt: skip


def test_nothing_changed_is_no_patch():
    claim = node_claim("web", stage="Launched")
    assert (metadata_patch(claim, claim), status_patch(claim, claim)) == (None, None)


def test_no_capacity_deletes_the_claim_and_names_the_offerings():
    """Case 31."""
    error = InsufficientCapacityError("no capacity for m-4x spot in zone-a", offerings=(SPOT_A,))
    step = launch_failed(node_claim("web", stage="x"), error, now=LATER)
    assert (step.delete, step.exhausted) == ("insufficient_capacity", (SPOT_A,))
    (notice,) = step.notices
    assert (notice.type, notice.reason) == ("Warning", "InsufficientCapacityError")
    assert notice.message == "NodeClaim web event: no capacity for m-4x spot in zone-a"
    (fact,) = step.facts
    assert (fact.metric, fact.labels["reason"]) == ("nodeclaims_disrupted", "insufficient_capacity")
    assert step.error is None


@pytest.mark.parametrize(
    ("scope", "count"),
    [
        (ExhaustedScope.OFFERING, 1),
        (ExhaustedScope.NODE_CLASS, 1),
        (ExhaustedScope.FAMILY_QUOTA, 1),
        (ExhaustedScope.ZONE, 2),
        (ExhaustedScope.REGION, 6),
    ],
)
def test_a_wider_stock_out_reaches_further(scope, count):
    error = InsufficientCapacityError("no", offerings=(SPOT_A,), scope=scope)
    types = (instance_type("m-4x"), instance_type("c-4x"))
    step = launch_failed(node_claim(), error, now=LATER, instance_types=types)
    assert len(step.exhausted) == count
    assert {key.capacity_type for key in step.exhausted} == {"spot"}
    for_one = step.claim.spec.node_class_ref.name if scope is ExhaustedScope.NODE_CLASS else ""
    assert step.exhausted_for == for_one


def test_a_stock_out_that_names_nothing_is_about_all_the_claim_could_become():
    """Else the next plan asks for the same again, once a second."""
    claim = node_claim(requirements=(requirement_spec(ZONE, "In", "zone-b"),))
    types = (instance_type("m-4x"), instance_type("c-4x"))
    step = launch_failed(claim, InsufficientCapacityError("no"), now=LATER, instance_types=types)
    assert {key.instance_type for key in step.exhausted} == {"m-4x", "c-4x"}
    assert {key.zone for key in step.exhausted} == {"zone-b"}


def test_an_unready_node_class_deletes_the_claim():
    """Case 31; the claim is gone at once, so an Event says why."""
    step = launch_failed(node_claim("web"), NodeClassNotReadyError("not now"), now=LATER)
    assert step.delete == "nodeclass_not_ready"
    (notice,) = step.notices
    assert (notice.type, notice.reason) == ("Warning", "NodeClassNotReady")
    assert notice.message == "NodeClaim web event: not now"


def test_a_failed_launch_shows_its_reason_and_is_retried():
    """Case 32."""
    error = LaunchFailedError("instance creation failed", reason="CustomReason")
    claim = initialise(node_claim(), now=EPOCH)
    step = launch_failed(claim, error, now=LATER)
    found = condition(step)
    assert (found.status, found.reason, found.message) == (
        "Unknown", "CustomReason", "instance creation failed",
    )  # fmt: skip
    assert (step.error, step.delete) == (error, "")
    assert found.last_transition_time == EPOCH, "liveness counts from when the condition was added"


@pytest.mark.parametrize(
    ("given", "shown"),
    [("AMIAuthorizationFailure", "AMIAuthorizationFailure"), ("", "LaunchFailed")],
)
def test_a_launch_that_is_not_permitted_shows_the_reason_of_its_refusal(given, shown):
    error = AuthError("not authorized for the image", action="ec2:CreateFleet", reason=given)
    found = condition(launch_failed(node_claim(), error, now=LATER))
    assert (found.reason, found.message) == (shown, "not authorized for the image")


def test_any_other_error_is_cut_to_what_fits():
    step = launch_failed(node_claim(), CloudProviderError("x" * 400), now=LATER)
    assert (condition(step).reason, condition(step).message) == ("LaunchFailed", "x" * 300 + "...")


def test_throttling_says_when_to_come_back():
    error = ThrottledError("slow down", retry_after=timedelta(seconds=9))
    assert launch_failed(node_claim(), error, now=LATER).requeue_after == timedelta(seconds=9)
    unsaid = launch_failed(node_claim(), ThrottledError("slow down"), now=LATER)
    assert (unsaid.requeue_after, condition(unsaid).status) == (None, "Unknown")


def test_a_pending_call_changes_nothing():
    claim = node_claim()
    step = launch_failed(claim, CallPendingError("still open"), now=LATER)
    assert step.claim is claim
    assert (step.delete, step.error) == ("", None)


def test_settled_stages_follow_the_generation():
    """Case 55: and with them `Ready`; nothing else of them changes."""
    claim = node_claim("web", stage="Initialized")
    bumped = claim.model_copy(
        update={"metadata": claim.metadata.model_copy(update={"generation": 2})}
    )
    after = restamped(bumped, LATER).status.conditions
    assert {item.type: item.observed_generation for item in after} == dict.fromkeys(
        ("Launched", "Registered", "Initialized", "Ready"), 2
    )
    assert {item.last_transition_time for item in after} == {EPOCH}
    assert is_true(after, "Ready")
    assert restamped(claim, LATER) is claim


def test_a_stage_that_failed_follows_the_generation_too():
    failed = with_condition(node_claim("web"), "Registered", status="False", reason="x", now=EPOCH)
    bumped = failed.model_copy(
        update={"metadata": failed.metadata.model_copy(update={"generation": 2})}
    )
    found = find(restamped(bumped, LATER).status.conditions, "Registered")
    assert (found.status, found.reason, found.observed_generation) == ("False", "x", 2)


@pytest.mark.parametrize("reason", ["no capacity", "", "1st", "a-b"])
def test_a_reason_that_no_condition_may_have_is_not_written(reason):
    """The API server would refuse the whole status, and the claim would show nothing."""
    step = launch_failed(node_claim(), LaunchFailedError("text", reason=reason), now=LATER)
    assert (condition(step).reason, condition(step).message) == ("LaunchFailed", "text")
