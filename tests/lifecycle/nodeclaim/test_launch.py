"""Launches are adopted, called for and failed (cases 29-32, 55)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from karpenter_core.api.conditions import find_condition, is_true
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
    QuotaGroup,
    ThrottledError,
)
from karpenter_core.lifecycle.changes import metadata_patch, status_patch
from karpenter_core.lifecycle.claim_status import (
    with_condition,
    with_current_generation,
    with_initial_conditions,
)
from karpenter_core.lifecycle.nodeclaim.launch import (
    LaunchAction,
    finalizer_step,
    launch_advice,
    launch_failed,
    launched_claim,
    launched_step,
)
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.state.events import LaunchCallFinished, LaunchCallStarted
from karpenter_core.state.unavailable_offerings import without_unavailable
from karpenter_core.testing.builders import EPOCH, instance_type, requirement_spec
from karpenter_core.testing.state_builders import node_claim, synced_state

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
    return find_condition(step.claim.status.conditions, LAUNCHED)


def test_new_claim_calls_the_provider():
    claim = node_claim("web")
    assert advice(synced_state(claim), claim).action is LaunchAction.CALL


def test_open_call_is_not_repeated():
    """A time limit never means "did not happen"."""
    claim = node_claim("web")
    builder = synced_state(claim)
    builder.apply_event(LaunchCallStarted(claim.uid, EPOCH))
    assert advice(builder, claim).action is LaunchAction.WAIT


def test_result_in_the_ledger_is_adopted():
    """A status patch that failed never launches a second instance."""
    claim = node_claim("web")
    builder = synced_state(claim)
    result = launched_claim(claim, Launched())
    builder.apply_event(LaunchCallFinished(claim_uid=claim.uid, launched=result, at=EPOCH))
    outcome = advice(builder, claim)
    assert (outcome.action, outcome.result) == (LaunchAction.ADOPT, result)


def test_launched_claim_calls_no_provider():
    claim = node_claim("web", stage="Launched")
    assert advice(synced_state(claim), claim).action is LaunchAction.NONE


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


def test_a_launch_patches_a_claim_twice_with_changed_fields_only():
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
    (metric_update,) = step.metric_updates
    assert (metric_update.metric, metric_update.labels["reason"]) == (
        "nodeclaims_disrupted",
        "insufficient_capacity",
    )
    assert step.error is None


def only_in(zone):
    requirements = (requirement_spec(ZONE, "In", zone),)
    claim = node_claim("web", stage="x")
    return claim.model_copy(
        update={"spec": claim.spec.model_copy(update={"requirements": requirements})}
    )


def test_a_claim_that_allows_no_offering_counts_against_its_pool():
    """Nothing is sold out, so the next plan would be the same at once, and the next."""
    step = launch_failed(
        only_in("nowhere"), InsufficientCapacityError("none"), now=LATER,
        instance_types=(instance_type("m-4x"),),
    )  # fmt: skip
    assert step.exhausted == ()
    (event,) = step.events
    assert (event.pool_uid, event.succeeded) == ("uid-default", False)
    assert event.reason == "NoOfferingAllowed"
    assert "NodeClaim web allows no instance type and zone" in event.message


def test_a_claim_whose_offerings_are_all_sold_out_already_does_not():
    """As the last of many claims for one offering: the next plan chooses another."""
    sold_out = instance_type("m-4x")
    offerings = tuple(replace(each, available=False) for each in sold_out.offerings)
    step = launch_failed(
        only_in("zone-a"), InsufficientCapacityError("none"), now=LATER,
        instance_types=(replace(sold_out, offerings=offerings),),
    )  # fmt: skip
    assert (step.exhausted, step.events) == ((), ())


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
def test_wider_scope_makes_more_offerings_unavailable(scope, count):
    error = InsufficientCapacityError("no", offerings=(SPOT_A,), scope=scope)
    types = (instance_type("m-4x"), instance_type("c-4x"))
    step = launch_failed(node_claim(), error, now=LATER, instance_types=types)
    assert len(step.exhausted) == count
    assert {key.capacity_type for key in step.exhausted} == {"spot"}
    for_one = step.claim.spec.node_class_ref.name if scope is ExhaustedScope.NODE_CLASS else ""
    assert step.exhausted_for == for_one


def test_placement_has_no_capacity_as_spot_and_on_demand():
    """Reserved instances have capacity that is set aside for them."""
    error = InsufficientCapacityError("no", offerings=(SPOT_A,), scope=ExhaustedScope.PLACEMENT)
    step = launch_failed(node_claim(), error, now=LATER, instance_types=(instance_type("m-4x"),))
    assert {(key.instance_type, key.zone) for key in step.exhausted} == {("m-4x", "zone-a")}
    assert sorted(key.capacity_type for key in step.exhausted) == ["on-demand", "spot"]


def test_quota_group_replaces_the_offerings_of_the_claim():
    """Each capacity type has a mask of its own: spot is tried again sooner."""
    group = QuotaGroup(label="family", value="m", least_cpu_milli=8000)
    error = InsufficientCapacityError("no", quota_groups=(group,))
    types = (instance_type("m-8x", cpu="8", labels={"family": "m"}),)
    step = launch_failed(node_claim(), error, now=LATER, instance_types=types)
    assert set(step.exhausted) == {
        QuotaGroup(label="family", value="m", least_cpu_milli=8000, capacity_type=each)
        for each in ("reserved", "spot", "on-demand")
    }


@pytest.mark.parametrize(
    "group",
    [
        {"label": "family", "value": "M"},
        {"least_cpu_milli": 8001},
        {"capacity_type": "ondemand"},
        {"zone": "nowhere"},
    ],
)
def test_quota_group_without_a_requested_offering_masks_those_of_the_claim(group):
    """It is a mistake of the provider; the next plan would ask for the same at once."""
    error = InsufficientCapacityError("no", quota_groups=(QuotaGroup(**group),))
    types = (instance_type("m-8x", cpu="8", labels={"family": "m"}),)
    step = launch_failed(node_claim(), error, now=LATER, instance_types=types)
    masked = {key.zone for key in step.exhausted if isinstance(key, OfferingKey)}
    assert masked == {offering.zone for offering in types[0].offerings}


def test_quota_group_that_is_masked_already_masks_nothing_else():
    """Claims of one batch meet the same quota one after the other."""
    group = QuotaGroup(label="family", value="m", capacity_type="spot")
    error = InsufficientCapacityError("no", quota_groups=(group,))
    types = (instance_type("m-8x", cpu="8", labels={"family": "m"}),)
    masked = without_unavailable(Catalogue(version="1", instance_types=types), frozenset({group}))
    step = launch_failed(node_claim(), error, now=LATER, instance_types=masked.instance_types)
    assert step.exhausted == (group,)


def test_quota_group_is_added_to_named_offerings():
    group = QuotaGroup(capacity_type="spot", zone="zone-b")
    error = InsufficientCapacityError("no", offerings=(SPOT_A,), quota_groups=(group,))
    step = launch_failed(node_claim(), error, now=LATER)
    assert set(step.exhausted) == {SPOT_A, group}


def test_error_without_offerings_covers_all_compatible_ones():
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
    claim = with_initial_conditions(node_claim(), now=EPOCH)
    step = launch_failed(claim, error, now=LATER)
    current = condition(step)
    assert (current.status, current.reason, current.message) == (
        "Unknown", "CustomReason", "instance creation failed",
    )  # fmt: skip
    assert (step.error, step.delete) == (error, "")
    assert current.last_transition_time == EPOCH, (
        "liveness counts from when the condition was added"
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [("AMIAuthorizationFailure", "AMIAuthorizationFailure"), ("", "LaunchFailed")],
)
def test_a_launch_that_is_not_permitted_shows_the_reason_of_its_refusal(given, shown):
    error = AuthError("not authorized for the image", action="ec2:CreateFleet", reason=given)
    current = condition(launch_failed(node_claim(), error, now=LATER))
    assert (current.reason, current.message) == (shown, "not authorized for the image")


def test_any_other_error_is_cut_to_the_length_limit():
    step = launch_failed(node_claim(), CloudProviderError("x" * 400), now=LATER)
    assert (condition(step).reason, condition(step).message) == ("LaunchFailed", "x" * 300 + "...")


def test_throttled_launch_is_requeued_in_time():
    error = ThrottledError("slow down", retry_after=timedelta(seconds=9))
    assert launch_failed(node_claim(), error, now=LATER).requeue_after == timedelta(seconds=9)
    unsaid = launch_failed(node_claim(), ThrottledError("slow down"), now=LATER)
    assert (unsaid.requeue_after, condition(unsaid).status) == (None, "Unknown")


def test_a_pending_call_changes_nothing():
    claim = node_claim()
    step = launch_failed(claim, CallPendingError("still open"), now=LATER)
    assert step.claim is claim
    assert (step.delete, step.error) == ("", None)


def test_completed_stages_follow_the_generation():
    """Case 55: and with them `Ready`; nothing else of them changes."""
    claim = node_claim("web", stage="Initialized")
    bumped = claim.model_copy(
        update={"metadata": claim.metadata.model_copy(update={"generation": 2})}
    )
    after = with_current_generation(bumped, LATER).status.conditions
    assert {item.type: item.observed_generation for item in after} == dict.fromkeys(
        ("Launched", "Registered", "Initialized", "Ready"), 2
    )
    assert {item.last_transition_time for item in after} == {EPOCH}
    assert is_true(after, "Ready")
    assert with_current_generation(claim, LATER) is claim


def test_a_stage_that_failed_follows_the_generation_too():
    failed = with_condition(node_claim("web"), "Registered", status="False", reason="x", now=EPOCH)
    bumped = failed.model_copy(
        update={"metadata": failed.metadata.model_copy(update={"generation": 2})}
    )
    current = find_condition(with_current_generation(bumped, LATER).status.conditions, "Registered")
    assert (current.status, current.reason, current.observed_generation) == ("False", "x", 2)


def test_a_stage_that_is_open_is_judged_again_instead():
    claim = node_claim("web", stage="Launched")
    bumped = claim.model_copy(
        update={"metadata": claim.metadata.model_copy(update={"generation": 2})}
    )
    after = with_current_generation(bumped, LATER).status.conditions
    assert find_condition(after, "Launched").observed_generation == 2
    for stage in ("Registered", "Initialized"):
        assert find_condition(after, stage) == find_condition(claim.status.conditions, stage)
        assert find_condition(after, stage).status == "Unknown"


@pytest.mark.parametrize("reason", ["no capacity", "", "1st", "a-b"])
def test_a_reason_that_no_condition_may_have_is_not_written(reason):
    """The API server would refuse the whole status, and the claim would show nothing."""
    step = launch_failed(node_claim(), LaunchFailedError("text", reason=reason), now=LATER)
    assert (condition(step).reason, condition(step).message) == ("LaunchFailed", "text")
