"""The next step of a ProvisioningRequest, from its status, its NodeClaims and the time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.provisioning_request import CHECK_CAPACITY
from karpenter_core.lifecycle.provisioning_request.next_step import next_step, orphaned_claims
from karpenter_core.lifecycle.provisioning_request.notices import notices_of_change, request_state
from karpenter_core.lifecycle.provisioning_request.outcome import with_no_capacity
from karpenter_core.lifecycle.provisioning_request.parameters import is_ours, parse_parameters
from karpenter_core.lifecycle.provisioning_request.status import (
    status_patch,
    with_attempt_ended,
    with_attempt_started,
    with_provisioned,
)
from karpenter_core.state.bookings import bookings
from karpenter_core.state.gang_places import PLACES_DETAIL, claims_by_request
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node, node_and_claim, synced_state
from tests.support.provisioning_requests import (
    ATTEMPT_CLAIMS,
    ATTEMPTS,
    MINUTE,
    RETRY,
    gang_claim,
    gang_node,
    request,
    template,
)

PENDING = {"Accepted": "True", "Provisioned": "False"}
PROVISIONED = {"Accepted": "True", "Provisioned": "True"}
ATTEMPT = {ATTEMPTS: "1", ATTEMPT_CLAIMS: "2"}


def step_of(asked, *objects, after=timedelta(), templates=True):
    snapshot = synced_state(asked, *objects, *((template(),) if templates else ())).snapshot()
    found = {booking.request.uid: booking for booking in bookings(snapshot)}
    claims = claims_by_request(snapshot).get(asked.uid, ())
    return next_step(snapshot, asked, claims, found.get(asked.uid), now=EPOCH + after)


def names(claims):
    return sorted(claim.name for claim in claims)


def condition(step, kind):
    found = step.request.condition(kind)
    return None if found is None else (found.status, found.reason)


def test_a_new_request_is_accepted_and_due():
    step = step_of(request())
    assert condition(step, "Accepted") == ("True", "Accepted")
    assert step.is_due


def test_a_request_waits_for_its_templates_and_names_them_after_a_while():
    early = step_of(request(), templates=False, after=timedelta(seconds=29))
    assert early.request.status.conditions == ()
    assert early.wake_at == EPOCH + timedelta(seconds=30)
    late = step_of(request(), templates=False, after=timedelta(seconds=30))
    assert condition(late, "Accepted") == ("False", "PodTemplateNotFound")
    assert not late.is_due


def test_a_failed_attempt_pauses_for_a_minute_and_then_ever_longer_up_to_ten():
    asked, pauses = request(conditions=PENDING), []
    for _ in range(6):
        asked = with_attempt_ended(asked, "full", now=EPOCH)
        step = step_of(asked)
        assert not step.is_due
        assert step.wake_at is not None
        pauses.append(int((step.wake_at - EPOCH) / MINUTE))
        assert step_of(asked, after=step.wake_at - EPOCH).is_due
    assert pauses == [1, 2, 4, 8, 10, 10]


@pytest.mark.parametrize(
    ("parameters", "seconds"), [({}, 7 * 24 * 3600), ({"ValidUntilSeconds": "90"}, 90)]
)
def test_a_request_fails_when_its_time_is_over(parameters, seconds):
    asked = request(conditions=PENDING, details=ATTEMPT, **parameters)
    claims = (gang_claim("a"), gang_claim("b"))
    before = step_of(asked, *claims, after=timedelta(seconds=seconds - 1))
    assert condition(before, "Failed") is None
    step = step_of(asked, *claims, after=timedelta(seconds=seconds))
    assert condition(step, "Failed") == ("True", "Expired")
    assert names(step.delete) == ["a", "b"]


def test_a_running_attempt_is_left_alone_until_all_nodes_are_initialised():
    asked = request(conditions=PENDING, details=ATTEMPT)
    step = step_of(asked, gang_claim("a", stage="Initialized"), gang_claim("b", stage="Registered"))
    assert step.request is asked
    assert not (step.delete)
    assert not (step.release)
    assert not (step.is_due)
    step = step_of(asked, *gang_node("a"), *gang_node("b"))
    assert condition(step, "Provisioned") == ("True", "CapacityIsProvisioned")
    assert names(step.release) == ["a", "b"]
    assert ATTEMPT_CLAIMS not in step.request.status.provisioning_class_details


@pytest.mark.parametrize(
    "claims",
    [
        (),
        (gang_claim("a", stage="Launched"),),
        (gang_claim("a"), gang_claim("b", deleted=EPOCH)),
        (gang_claim("a"), gang_claim("b", attempt="0")),
    ],
    ids=["none", "one is missing", "one is leaving", "one is of another attempt"],
)
def test_an_attempt_with_fewer_claims_than_it_began_with_has_failed(claims):
    step = step_of(request(conditions=PENDING, details=ATTEMPT), *claims)
    assert condition(step, "Provisioned") == ("False", "CapacityIsNotFound")
    assert names(step.delete) == names(each for each in claims if not each.is_deleting)
    assert step.request.status.provisioning_class_details[RETRY] == (EPOCH + MINUTE).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )


def test_an_attempt_fails_with_the_existing_nodes_that_it_counted_on():
    asked = with_attempt_started(request(6), {"old": {0: 3}}, claims=1, now=EPOCH, starting=())
    fine = step_of(asked, gang_claim("a", size="1"), *node_and_claim("old"))
    assert fine.request is asked
    step = step_of(asked, gang_claim("a", size="1"))
    assert condition(step, "Provisioned") == ("False", "CapacityIsNotFound")
    assert names(step.delete) == ["a"]


@pytest.mark.parametrize("stage", ["Launched", "Initialized"])
def test_an_attempt_lasts_while_nodes_of_another_request_may_go(stage):
    """Also one without NodeClaims of its own."""
    asked = with_attempt_started(request(3), {"a": {0: 3}}, claims=0, now=EPOCH, starting=())
    other = request(name="other", conditions=PENDING, details=ATTEMPT)
    shared = gang_claim("a", job="other", stage=stage)
    step = step_of(asked, other, shared, gang_claim("b", job="other"))
    assert step.request is asked
    assert not step.delete

    own = gang_claim("a", stage="Initialized")
    launched = step_of(asked, own, node("a", claim=own))
    assert condition(launched, "Provisioned") == ("True", "CapacityIsProvisioned")
    done = step_of(asked, *node_and_claim("a"))
    assert condition(done, "Provisioned") == ("True", "CapacityIsFound")
    assert done.request.status.provisioning_class_details[ATTEMPTS] == "1"


def test_no_attempt_begins_while_claims_of_an_earlier_one_exist():
    asked = with_attempt_ended(request(conditions=PENDING, details=ATTEMPT), "full", now=EPOCH)
    later = 5 * MINUTE
    step = step_of(asked, gang_claim("a"), gang_claim("b", deleted=EPOCH), after=later)
    assert names(step.delete) == ["a"]
    assert not step.is_due
    assert step_of(asked, after=later).is_due


def test_a_booking_ends_after_ten_minutes():
    asked = request(3, conditions=PROVISIONED)
    node = gang_node("a", attempt="")
    step = step_of(asked, *node, after=10 * MINUTE - timedelta(seconds=1))
    assert condition(step, "BookingExpired") is None
    assert step.wake_at == EPOCH + 10 * MINUTE
    step = step_of(asked, *node, after=10 * MINUTE)
    assert condition(step, "BookingExpired") == ("True", "CapacityReservationTimeExpired")
    assert not step.delete, "its nodes are nodes like others"


def test_lost_nodes_revoke_a_booking():
    step = step_of(request(6, conditions=PROVISIONED), *gang_node("a", attempt=""))
    assert condition(step, "CapacityRevoked") == ("True", "NodesLost")


def test_a_provisioned_request_without_a_booking_is_left_alone_until_its_time_is_over():
    """Booking begins with the next state of the cluster."""
    snapshot = synced_state(request(conditions=PROVISIONED)).snapshot()
    (asked,) = snapshot.provisioning_requests.values()
    step = next_step(snapshot, asked, (), None, now=EPOCH)
    assert condition(step, "CapacityRevoked") is None
    assert step.wake_at == EPOCH + 10 * MINUTE


@pytest.mark.parametrize("ending", ["Failed", "BookingExpired", "CapacityRevoked"])
def test_claims_of_a_finished_request_stay_if_it_was_provisioned_and_go_if_not(ending):
    kept = step_of(request(3, conditions={**PROVISIONED, ending: "True"}), gang_claim("a"))
    gone = step_of(request(3, conditions={**PENDING, ending: "True"}), gang_claim("a"))
    if ending != "Failed":
        assert names(kept.release) == ["a"]
    assert names(gone.delete) == ["a"]


def test_a_request_that_is_being_deleted_loses_the_claims_of_its_attempt():
    step = step_of(request(conditions=PENDING, details=ATTEMPT, deleted=EPOCH), gang_claim("a"))
    assert names(step.delete) == ["a"]


def test_claims_are_orphans_when_their_request_is_gone_or_another_one_has_its_name():
    claims = (gang_claim("a"), gang_claim("b", attempt=""), gang_claim("c", deleted=EPOCH))
    snapshot = synced_state(*claims).snapshot()
    assert names(orphaned_claims(snapshot, claims_by_request(snapshot))) == ["a"]
    snapshot = synced_state(*claims, request()).snapshot()
    assert not orphaned_claims(snapshot, claims_by_request(snapshot))


def test_requests_of_other_controllers_are_not_ours():
    assert is_ours(request())
    assert is_ours(request(provisioning_class=CHECK_CAPACITY))
    assert not is_ours(request(provisioning_class="queued-provisioning.example.com"))
    assert not is_ours(request(provisioning_class=CHECK_CAPACITY, processorInstance="second"))
    foreign = request(provisioning_class="queued-provisioning.example.com")
    assert step_of(foreign).request is foreign


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (request(ValidUntilSeconds="soon"), 'ValidUntilSeconds is "soon"'),
        (request(ValidUntilSeconds="0"), 'ValidUntilSeconds is "0"'),
        (request(ValidUntilSeconds="315360001"), 'ValidUntilSeconds is "315360001"'),
        (request(provisioning_class=CHECK_CAPACITY, noRetry="perhaps"), 'noRetry is "perhaps"'),
        (
            request(provisioning_class=CHECK_CAPACITY, partialCapacityCheck="true"),
            'partialCapacityCheck is "true", not bookPartial or checkOnly',
        ),
        (
            request(60_000, 40_001),
            "podSets ask for 100001 pods, more than 100000",
        ),
    ],
)
def test_a_parameter_that_cannot_be_read_fails_the_request(asked, text):
    assert text in str(parse_parameters(asked))
    assert condition(step_of(asked), "Failed") == ("True", "InvalidRequest")


TEN_YEARS = 10 * 365 * 24 * 3600


@pytest.mark.parametrize("seconds", [1, TEN_YEARS])
def test_a_request_is_valid_for_one_second_to_ten_years(seconds):
    asked = request(ValidUntilSeconds=str(seconds))
    assert parse_parameters(asked).validity == timedelta(seconds=seconds)


def test_a_capacity_check_without_retry_fails_and_others_wait():
    once = request(provisioning_class=CHECK_CAPACITY, noRetry="true")
    assert with_no_capacity(once, "full", now=EPOCH).is_true("Failed")
    for retried in ({}, {"noRetry": "false"}):
        asked = request(provisioning_class=CHECK_CAPACITY, **retried)
        again = with_no_capacity(asked, "full", now=EPOCH)
        assert not again.is_true("Failed")
        assert "full" in again.condition("Provisioned").message


def test_a_reason_that_names_thousands_of_objects_is_cut():
    """The object must stay small enough to be stored; its author reads the beginning."""
    refused = with_no_capacity(request(), "web, " * 20_000, now=EPOCH)
    message = refused.condition("Provisioned").message
    assert len(message) == 2_003
    assert message.startswith("Attempt 1 failed")
    assert message.endswith("...")


def test_the_status_patch_removes_details_that_are_over_and_keeps_those_of_others():
    others = {"example.com/eta": "soon"}
    old = request(conditions=PENDING, details={**ATTEMPT, **others, PLACES_DETAIL: "gone 0:1"})
    new = with_provisioned(old, {}, launched=2, now=EPOCH)
    patch = status_patch(old, new)
    assert patch is not None
    details = patch["status"]["provisioningClassDetails"]
    assert details == {ATTEMPTS: "1", ATTEMPT_CLAIMS: None, PLACES_DETAIL: None, **others}
    assert all(None not in each.values() for each in patch["status"]["conditions"])
    assert status_patch(new, new) is None


def test_transition_times_change_with_the_status_only():
    first = with_attempt_ended(request(conditions=PENDING), "full", now=EPOCH + MINUTE)
    assert first.condition("Provisioned").last_transition_time == EPOCH
    done = with_provisioned(first, {}, launched=0, now=EPOCH + 2 * MINUTE)
    assert done.condition("Provisioned").last_transition_time == EPOCH + 2 * MINUTE


def test_each_change_is_an_event_once_and_failures_are_warnings():
    asked = request(conditions={"Accepted": "True"})
    failed = with_attempt_ended(asked, "full", now=EPOCH)
    (notice,) = notices_of_change(asked, failed)
    assert (notice.type, notice.reason) == ("Warning", "CapacityIsNotFound")
    launching = with_attempt_started(failed, {}, claims=2, now=EPOCH, starting=())
    (notice,) = notices_of_change(failed, launching)
    assert (notice.type, notice.reason) == ("Normal", "CapacityIsLaunching")
    assert not notices_of_change(launching, launching)
    assert not notices_of_change(asked, request(conditions={"Accepted": "True", "Odd": "True"}))


def test_states_are_one_word():
    assert request_state(request()) == "Pending"
    assert request_state(request(conditions={"Accepted": "True"})) == "Accepted"
    assert request_state(request(conditions=PENDING, details=ATTEMPT)) == "Launching"
    assert request_state(request(conditions=PROVISIONED)) == "Provisioned"
    over = {**PROVISIONED, "BookingExpired": "True"}
    assert request_state(request(conditions=over)) == "BookingExpired"
