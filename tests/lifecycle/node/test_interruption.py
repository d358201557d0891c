"""Announced interruptions have the right effects on a claim."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.base import OwnerReference
from karpenter_core.api.conditions import find_condition
from karpenter_core.api.interruptions import INTERRUPTING, InterruptionKind
from karpenter_core.api.labels import TERMINATION_TIMESTAMP, ZONE
from karpenter_core.api.nodeclaim import DISRUPTION_REASON, RequirementSpec
from karpenter_core.errors import (
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    OfferingKey,
    QuotaGroup,
)
from karpenter_core.lifecycle.claim_status import with_condition
from karpenter_core.lifecycle.node.interruption import MESSAGE_TYPES, interruption_step
from karpenter_core.provider.contract import Interruption
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.state.events import CataloguePublished
from karpenter_core.state.interruption import is_interrupted_soon
from karpenter_core.testing.builders import EPOCH, instance_type, pod
from karpenter_core.testing.state_builders import node, node_claim, synced_state

SPOT_RECLAIM, REBALANCE = InterruptionKind.SPOT_RECLAIM, InterruptionKind.REBALANCE
IN_TWO_MINUTES = EPOCH + timedelta(minutes=2)
FORCEFUL = [InterruptionKind(kind) for kind in sorted(INTERRUPTING)]


def said(kind=SPOT_RECLAIM, *, deadline=IN_TWO_MINUTES, detail=""):
    return Interruption(id="1", kind=kind, deadline=deadline, detail=detail)


def spot_claim(**options):
    return node_claim("web", stage="Initialized", capacity_type="spot", **options)


def step_of(message, claim=None, *, now=EPOCH, others=(), act_on_rebalance=False):
    claim = claim or spot_claim()
    snapshot = synced_state(claim, node("web", claim=claim), *others).snapshot()
    return interruption_step(snapshot, claim, message, now=now, act_on_rebalance=act_on_rebalance)


def deadline(step) -> str:
    return step.claim.metadata.annotations.get(TERMINATION_TIMESTAMP, "")


@pytest.mark.parametrize("kind", FORCEFUL)
def test_interrupted_claim_is_deleted_with_its_reason(kind):
    """The reason is what the pods' Evicted Events will name."""
    step = step_of(said(kind))

    reason = find_condition(step.claim.status.conditions, DISRUPTION_REASON)
    assert step.delete
    assert reason is not None
    assert (reason.status, reason.reason) == ("True", str(kind))


def test_the_disruption_reason_counts_from_the_interruption():
    """Its time bounds the wait for the deletion."""
    written = with_condition(spot_claim(), DISRUPTION_REASON, now=EPOCH, reason="Underutilized")
    later = EPOCH + timedelta(hours=1)

    first = step_of(said(), written, now=later)
    again = step_of(said(), first.claim, now=later + timedelta(seconds=30))

    for step in (first, again):
        reason = find_condition(step.claim.status.conditions, DISRUPTION_REASON)
        assert reason is not None
        assert (reason.reason, reason.last_transition_time) == ("SpotInterruption", later)


@pytest.mark.parametrize(
    ("grace", "before", "expected"),
    [
        (None, "", "2026-01-01T00:02:00Z"),
        ("1h", "", "2026-01-01T00:02:00Z"),
        ("30s", "", ""),
        (None, "2026-01-01T00:01:00Z", "2026-01-01T00:01:00Z"),
        ("30s", "2026-01-01T09:00:00Z", "2026-01-01T00:02:00Z"),
        (None, "whenever", "2026-01-01T00:02:00Z"),
    ],
)
def test_deadline_of_the_cloud_holds_if_it_is_earlier(grace, before, expected):
    """A grace period that ends sooner is left to the termination, which writes it down."""
    annotations = {TERMINATION_TIMESTAMP: before} if before else {}
    claim = spot_claim(termination_grace_period=grace, annotations=annotations)

    assert deadline(step_of(said(), claim)) == expected


def test_without_a_deadline_the_claim_drains_in_its_own_time():
    """Maintenance that says no time gives budgets their due."""
    step = step_of(said(InterruptionKind.SCHEDULED_MAINTENANCE, deadline=None))

    assert (step.delete, deadline(step)) == (True, "")


def test_unhealthy_instance_has_a_deadline_now():
    """Nothing on it can be trusted to end by itself."""
    step = step_of(said(InterruptionKind.INSTANCE_UNHEALTHY, deadline=None))

    assert deadline(step) == "2026-01-01T00:00:00Z"


def test_reclaimed_offering_becomes_unavailable():
    """The replacement must not be launched from the same offering."""
    key = {"instance_type": "m-4x", "zone": "zone-a"}
    reserved = node_claim("web", stage="Initialized", capacity_type="reserved")

    assert step_of(said()).exhausted == (OfferingKey(**key, capacity_type="spot"),)
    assert step_of(said(InterruptionKind.RESERVATION_RECLAIM), reserved).exhausted == (
        OfferingKey(**key, capacity_type="reserved"),
    )


@pytest.mark.parametrize(
    "kind",
    [InterruptionKind.SCHEDULED_MAINTENANCE, InterruptionKind.INSTANCE_TERMINATED, REBALANCE],
)
def test_other_interruptions_make_no_offering_unavailable(kind):
    """An instance may be stopped by a user."""
    assert step_of(said(kind), act_on_rebalance=True).exhausted == ()


def test_a_rebalance_recommendation_deletes_the_claim_only_by_setting():
    """It is a Normal Event: nothing has happened yet."""
    noted = step_of(said(REBALANCE, deadline=None))
    acted = step_of(said(REBALANCE, deadline=None), act_on_rebalance=True)

    assert not noted.delete
    assert find_condition(noted.claim.status.conditions, DISRUPTION_REASON) is None
    assert {(n.type, n.reason) for n in noted.notices} == {
        ("Normal", "SpotRebalanceRecommendation")
    }
    assert (acted.delete, deadline(acted)) == (True, "")


@pytest.mark.parametrize("kind", [InterruptionKind.UNKNOWN, InterruptionKind.IRRELEVANT])
def test_a_message_that_announces_nothing_or_cannot_be_read_changes_nothing(kind):
    """It is only counted."""
    claim = spot_claim()

    step = step_of(said(kind), claim)

    assert step.claim is claim
    assert (step.delete, step.notices, step.metric_updates) == (False, (), ())


def test_deleted_claim_gets_an_earlier_deadline_and_keeps_its_reason():
    """A reclaim may come while a node is being consolidated away."""
    claim = with_condition(
        spot_claim(deleted=EPOCH), DISRUPTION_REASON, reason="Underutilized", now=EPOCH
    )

    step = step_of(said(), claim)

    reason = find_condition(step.claim.status.conditions, DISRUPTION_REASON)
    assert reason is not None
    assert (reason.reason, deadline(step)) == ("Underutilized", "2026-01-01T00:02:00Z")
    assert (step.delete, step.metric_updates, step.exhausted) == (False, (), ())


def test_the_same_message_again_changes_nothing_more():
    """Messages are repeated until they are acknowledged."""
    first = step_of(said())

    again = step_of(said(), first.claim)

    assert again.claim is first.claim


def test_claim_and_node_get_an_event_with_announcement_and_action():
    """With the time and whatever the cloud said besides."""
    step = step_of(said(detail="EC2 says so"))

    assert {n.regarding.kind for n in step.notices} == {"NodeClaim", "Node"}
    assert {n.reason for n in step.notices} == {"SpotInterrupted"}
    assert {n.reason for n in step.on_delete} == {"TerminatingOnInterruption"}
    assert step.notices[0].message.endswith(" by 2026-01-01T00:02:00Z: EC2 says so")


def test_the_claim_and_its_pods_are_counted_under_the_kind_of_message():
    """As the AWS provider of Karpenter calls it."""
    bound = pod("web-0", node_name="web", phase="Running")

    metric_updates = {
        metric_update.metric: metric_update
        for metric_update in step_of(said(), others=(bound,)).metric_updates
    }

    assert metric_updates["nodeclaims_disrupted"].labels["reason"] == "spot_interrupted"
    assert metric_updates["pods_disruption_initiated"].value == 1


def test_every_kind_has_a_name_in_metrics():
    """None is counted under another's."""
    assert set(MESSAGE_TYPES) == set(InterruptionKind)
    assert len(set(MESSAGE_TYPES.values())) == len(MESSAGE_TYPES)


def interrupted(kind=SPOT_RECLAIM, *, at="2026-01-01T00:02:00Z", deleted=EPOCH):
    claim = spot_claim(deleted=deleted, annotations={TERMINATION_TIMESTAMP: at} if at else {})
    return with_condition(claim, DISRUPTION_REASON, reason=str(kind), now=EPOCH)


@pytest.mark.parametrize("kind", FORCEFUL)
def test_node_with_a_near_deadline_is_being_interrupted(kind):
    """So its pods need another place, whatever protects them."""
    assert is_interrupted_soon(interrupted(kind), EPOCH)


@pytest.mark.parametrize(
    "claim",
    [
        None,
        interrupted(deleted=None),
        interrupted(at=""),
        interrupted(at="later"),
        interrupted(at="2026-01-01T01:00:00Z"),
        interrupted(REBALANCE),
        spot_claim(deleted=EPOCH, annotations={TERMINATION_TIMESTAMP: "2026-01-01T00:02:00Z"}),
    ],
)
def test_other_nodes_are_not_being_interrupted(claim):
    """A grace period of the user's is no reason to break what keeps pods where they are."""
    assert not is_interrupted_soon(claim, EPOCH)


def failed_launch(error, *, stage="Launched", **options):
    claim = node_claim("web", stage=stage, capacity_type="spot", **options)
    claim = claim.model_copy(
        update={
            "metadata": claim.metadata.model_copy(
                update={
                    "owner_references": (
                        OwnerReference(
                            api_version="karpenter.sh/v1",
                            kind="NodePool",
                            name="default",
                            uid="uid-of-pool",
                        ),
                    )
                }
            )
        }
    )
    message = Interruption(id="1", kind=InterruptionKind.LAUNCH_FAILED, error=error)
    return claim, step_of(message, claim)


def own_offering(claim):
    labels = claim.metadata.labels
    return OfferingKey(
        instance_type=labels["node.kubernetes.io/instance-type"],
        zone=labels["topology.kubernetes.io/zone"],
        capacity_type="spot",
    )


@pytest.mark.parametrize(
    "error", [None, LaunchFailedError("no boot"), InsufficientCapacityError("sold out")]
)
def test_launch_that_fails_late_masks_its_own_offering(error):
    """Whatever the error is: the same offering would be launched and fail again at once."""
    claim, step = failed_launch(error)

    assert (step.delete, step.exhausted, step.exhausted_for) == (True, (own_offering(claim),), "")
    assert {notice.reason for notice in step.notices} == {"LaunchFailed"}
    assert all(str(error or "") in notice.message for notice in step.notices)
    assert step.metric_updates[0].labels["reason"] == "launch_failed"


def test_launch_that_fails_late_masks_the_shortage_as_a_launch_would():
    other = OfferingKey(instance_type="large", zone="zone-b", capacity_type="on-demand")
    group = QuotaGroup(label="family", value="m", capacity_type="spot")
    error = InsufficientCapacityError(
        "full", offerings=(other,), quota_groups=(group,), scope=ExhaustedScope.NODE_CLASS
    )

    claim, step = failed_launch(error)

    assert set(step.exhausted) == {other, group}
    assert step.exhausted_for == claim.spec.node_class_ref.name


def test_a_late_quota_failure_masks_all_offerings_of_the_quota():
    """Its own offering alone would be followed by another of the same quota."""
    group = QuotaGroup(label="family", value="m", capacity_type="spot")

    _, step = failed_launch(InsufficientCapacityError("full", quota_groups=(group,)))

    assert group in step.exhausted


def test_a_late_shortage_of_another_offering_masks_that_one_alone():
    other = OfferingKey(instance_type="large", zone="zone-b", capacity_type="on-demand")

    claim, step = failed_launch(InsufficientCapacityError("full", offerings=(other,)))

    assert step.exhausted == (other,)
    assert own_offering(claim) not in step.exhausted


@pytest.mark.parametrize(("stage", "counted"), [("Launched", 1), ("Initialized", 0)])
def test_launch_that_fails_late_counts_as_a_failed_registration(stage, counted):
    """It pauses the NodePool as other launches without a node do; a registered node counted already."""
    _, step = failed_launch(LaunchFailedError("no boot"), stage=stage)

    assert len(step.events) == counted
    assert all((event.pool_uid, event.succeeded) == ("uid-of-pool", False) for event in step.events)


def test_launch_of_a_deleted_claim_that_fails_late_masks_its_offering_alone():
    """Its deletion has another reason, and its end is counted already."""
    claim, step = failed_launch(LaunchFailedError("no boot"), deleted=EPOCH)

    assert (step.claim, step.delete, step.exhausted) == (claim, False, (own_offering(claim),))
    assert (step.events, step.metric_updates) == ((), ())


def test_shortage_of_a_claim_without_an_offering_masks_all_that_it_allows():
    """The cloud named the NodeClaim, and the launch has not been recorded yet."""
    only_a = RequirementSpec(key=ZONE, operator="In", values=("zone-a",))
    claim = node_claim("web", requirements=[only_a])
    state = synced_state(claim)
    catalogue = Catalogue(version="1", instance_types=(instance_type("small", cpu="4"),))
    state.apply_event(CataloguePublished("default", catalogue))
    message = Interruption(
        id="1",
        kind=InterruptionKind.LAUNCH_FAILED,
        token=claim.uid,
        error=InsufficientCapacityError("sold out"),
    )

    step = interruption_step(state.snapshot(), claim, message, now=EPOCH, act_on_rebalance=False)

    assert {(key.instance_type, key.zone) for key in step.exhausted} == {("small", "zone-a")}
