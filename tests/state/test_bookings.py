"""The virtual pods that reserve booked capacity, and how arriving pods replace them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.conditions import READY
from karpenter_core.api.records import VolumeView
from karpenter_core.api.storage_records import PersistentVolumeClaimView, StorageClassView
from karpenter_core.disruption.blocked_nodes import BlockedNode, DisruptionObstacle
from karpenter_core.disruption.candidates import evaluate_nodes
from karpenter_core.lifecycle.nodepool.status import with_condition
from karpenter_core.lifecycle.provisioning_request.status import with_failure
from karpenter_core.state.bookings import booked_nodes, bookings, launching_nodes, request_pods
from karpenter_core.state.gang_places import format_pods, parse_places, parse_pods, places_details
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.testing.builders import EPOCH, node_pool, pod
from karpenter_core.testing.state_builders import node_and_claim, ready_node_pool, synced_state
from tests.support.provisioning_requests import (
    ATTEMPT_CLAIMS,
    ATTEMPTS,
    PLACES,
    consumer,
    gang_node,
    request,
    template,
)

SERVING = ProblemSettings(serves_requests=True)
PROVISIONED = {"Accepted": "True", "Provisioned": "True"}
LAUNCHING = {ATTEMPTS: "1", ATTEMPT_CLAIMS: "1"}


def booked(*counts, places=None, conditions=PROVISIONED, **details):
    kept = {} if places is None else places_details(places)
    return request(*counts, conditions=conditions, details={**kept, **details})


def snapshot_of(*objects):
    return synced_state(template(), template("workers-1", cpu="2"), *objects).snapshot()


def counts(*objects):
    """Virtual pods by node."""
    (booking,) = bookings(snapshot_of(*objects))
    return {name: len(pods) for name, pods in booking.pods.items()}


def test_places_on_existing_nodes_and_on_launched_ones_are_booked():
    found = counts(
        *node_and_claim("old"), *gang_node("new", "0=4"), booked(6, places={"old": {0: 2}})
    )
    assert found == {"old": 2, "new": 4}


def test_a_place_vanishes_for_each_pod_that_arrived_first_on_its_own_node():
    nodes = (*gang_node("a"), *gang_node("b"))
    arrived = [consumer(f"w{n}", node_name="b") for n in range(2)]
    assert counts(*nodes, booked(6), *arrived) == {"a": 3, "b": 1}
    more = [consumer(f"x{n}", node_name="b") for n in range(2)]
    assert counts(*nodes, booked(6), *arrived, *more) == {"a": 2}


def test_finished_pods_have_used_their_place_and_pending_ones_have_not():
    nodes = (*gang_node("a"), *gang_node("b"))
    finished = consumer("done", node_name="a", phase="Succeeded")
    assert counts(*nodes, booked(6), finished, consumer("pending")) == {"a": 2, "b": 3}


def test_pods_of_other_requests_and_namespaces_take_no_place():
    others = (
        consumer("other", job="another", node_name="a"),
        pod("plain", node_name="a"),
    )
    assert counts(*gang_node("a"), booked(3), *others) == {"a": 3}


def test_a_pod_takes_a_place_of_the_pod_set_with_its_requests():
    request_of_two = booked(1, 1)
    snapshot = snapshot_of(
        *gang_node("a", "0=1,1=1"), request_of_two, consumer("big", cpu="2", node_name="a")
    )
    (booking,) = bookings(snapshot)
    (left,) = booking.pods["a"]
    assert left.shape.requests["cpu"] == 1000


def test_places_on_nodes_that_are_gone_are_lost_unless_their_pods_arrived_elsewhere():
    (booking,) = bookings(snapshot_of(*gang_node("a"), booked(6)))
    assert booking.lost == 3
    arrived = [consumer(f"w{n}", node_name="a") for n in range(3)]
    (booking,) = bookings(snapshot_of(*gang_node("a"), booked(6), *arrived))
    assert booking.lost == 3, "they are on their own node"
    elsewhere = [consumer(f"w{n}", node_name="far") for n in range(3)]
    nodes = (*gang_node("a"), *node_and_claim("far"))
    (booking,) = bookings(snapshot_of(*nodes, booked(6), *elsewhere))
    assert booking.lost == 0


def partly_booked(*counts, places):
    """A booking of some of the pod sets, as a partial check leaves it."""
    found = booked(*counts, places=places)
    conditions = tuple(
        each.model_copy(update={"reason": "PartialCapacityIsFound"})
        if each.type == "Provisioned"
        else each
        for each in found.status.conditions
    )
    status = found.status.model_copy(update={"conditions": conditions})
    return found.model_copy(update={"status": status})


def test_pod_sets_without_booked_capacity_are_not_lost():
    partly = partly_booked(3, 2, places={"old": {0: 3}})
    (booking,) = bookings(snapshot_of(*node_and_claim("old"), partly))
    assert (booking.lost, len(booking.pods["old"])) == (0, 3)
    (booking,) = bookings(snapshot_of(*node_and_claim("other"), partly))
    assert (booking.lost, booking.pods) == (3, {})


def test_a_pod_of_a_pod_set_without_booked_capacity_takes_no_place_of_another_one():
    partly = partly_booked(3, 2, places={"old": {0: 3}})
    second = consumer("second", cpu="2", node_name="old")
    (booking,) = bookings(snapshot_of(*node_and_claim("old"), partly, second))
    assert len(booking.pods["old"]) == 3
    first = consumer("first", node_name="old")
    (booking,) = bookings(snapshot_of(*node_and_claim("old"), partly, first))
    assert len(booking.pods["old"]) == 2


def test_a_pod_with_other_requests_takes_a_place_while_all_are_booked():
    """Its template may have been changed since, or a webhook has changed the pod."""
    nodes, odd = node_and_claim("old"), consumer("odd", cpu="3", node_name="old")
    whole = booked(3, 2, places={"old": {0: 3, 1: 2}})
    (booking,) = bookings(snapshot_of(*nodes, whole, odd))
    assert len(booking.pods["old"]) == 4
    (booking,) = bookings(snapshot_of(*nodes, partly_booked(3, 2, places={"old": {0: 3}}), odd))
    assert len(booking.pods["old"]) == 2


def test_a_pod_of_a_full_pod_set_takes_a_place_of_another_one():
    nodes = node_and_claim("old")
    arrived = [consumer(f"w{n}", node_name="old") for n in range(4)]
    (booking,) = bookings(snapshot_of(*nodes, booked(3, 2, places={"old": {0: 3, 1: 2}}), *arrived))
    assert len(booking.pods["old"]) == 1


def test_places_of_a_pod_set_without_its_template_are_booked_without_pods():
    """A node with such a place is kept, and the place is not lost."""
    snapshot = synced_state(
        template(), *node_and_claim("old"), booked(3, 2, places={"old": {0: 1, 1: 2}})
    ).snapshot()
    (booking,) = bookings(snapshot)
    assert [(name, len(pods)) for name, pods in booking.pods.items()] == [("old", 1)]
    assert booking.lost == 2


def test_unreadable_places_promise_nothing():
    (booking,) = bookings(snapshot_of(*node_and_claim("old"), booked(6, **{PLACES: "old: 6"})))
    assert booking.lost == 6
    assert not booking.pods


def test_requests_that_are_over_or_not_provisioned_book_nothing():
    for condition in ("Failed", "BookingExpired", "CapacityRevoked"):
        over = booked(3, conditions={**PROVISIONED, condition: "True"})
        assert not bookings(snapshot_of(*gang_node("a"), over))
    assert not bookings(snapshot_of(*gang_node("a"), booked(3, conditions={"Accepted": "True"})))


def free_cpu(snapshot, **options):
    problem = build_provisioning_input(
        snapshot, now=EPOCH, problem_settings=SERVING, **options
    ).problem
    return {node.name: node.available["cpu"] for node in problem.nodes if not node.closed}


def test_booked_capacity_is_not_free_for_other_pods():
    nodes = (*node_and_claim("old"), *node_and_claim("other"))
    free = free_cpu(snapshot_of(*nodes, booked(3, places={"old": {0: 3}})))
    assert free["other"] - free["old"] == 3000


def test_nodes_of_an_attempt_take_no_other_pods_until_the_request_is_provisioned():
    launching = booked(3, conditions={"Accepted": "True"}, **LAUNCHING)
    snapshot = snapshot_of(*gang_node("new"), *node_and_claim("old"), launching)
    assert set(free_cpu(snapshot)) == {"old"}
    assert [node.name for node in launching_nodes(snapshot)] == ["new"]
    gone = snapshot_of(*gang_node("new"), *node_and_claim("old"))
    assert set(free_cpu(gone)) == {"new", "old"}, "without its request the node is like others"


def test_while_an_attempt_runs_its_places_on_existing_nodes_are_reserved():
    launching = booked(4, places={"old": {0: 2}}, conditions={"Accepted": "True"}, **LAUNCHING)
    nodes = (*node_and_claim("old"), *node_and_claim("other"))
    free = free_cpu(snapshot_of(*nodes, launching))
    assert free["other"] - free["old"] == 2000


def ignored_consumer(*objects):
    asked = build_provisioning_input(
        snapshot_of(consumer("early"), pod("plain"), *objects), now=EPOCH, problem_settings=SERVING
    )
    assert [each.name for each in asked.problem.pods] == ["plain"]
    (ignored,) = asked.ignored
    return ignored


@pytest.mark.parametrize(
    "conditions", [{}, {"Accepted": "True"}, {"Provisioned": "False"}, PROVISIONED]
)
def test_consuming_pods_are_ignored_silently_if_requests_are_served(conditions):
    ignored = ignored_consumer(request(2, conditions=conditions))
    assert ignored.silent
    assert ignored.reason == "ProvisioningRequest default/job provides the capacity of the pod"
    off = build_provisioning_input(snapshot_of(consumer("early"), pod("plain")), now=EPOCH)
    assert {each.name for each in off.problem.pods} == {"plain", "early"}


@pytest.mark.parametrize(
    ("conditions", "problem"),
    [
        (None, "does not exist"),
        ({"Failed": "True"}, "has failed"),
        ({**PROVISIONED, "BookingExpired": "True"}, "books no capacity any more"),
        ({**PROVISIONED, "CapacityRevoked": "True"}, "has lost its capacity"),
    ],
)
def test_a_pod_is_told_that_its_request_provides_nothing(conditions, problem):
    """Nothing else would say why it is pending, and it stays so until somebody acts."""
    found = () if conditions is None else (request(2, conditions=conditions),)
    ignored = ignored_consumer(*found)
    assert not ignored.silent
    assert ignored.reason.startswith("ProvisioningRequest default/job, ")
    assert problem in ignored.reason
    assert ignored.reason.endswith("; no node is launched for the pod")


def test_the_reason_of_a_pod_has_the_message_of_the_condition_that_ended_its_request():
    failed = with_failure(request(2), "No capacity", reason="Expired", now=EPOCH)
    assert "the pod, has failed: No capacity; no node" in ignored_consumer(failed).reason
    assert (
        "the pod, has failed; no node"
        in ignored_consumer(request(2, conditions={"Failed": "True"})).reason
    )


def test_the_problem_of_a_gang_has_its_pods_and_no_others():
    snapshot = snapshot_of(pod("plain"), request(2, 1))
    gang = request_pods(snapshot, snapshot.provisioning_requests["default/job"])
    asked = build_provisioning_input(snapshot, now=EPOCH, problem_settings=SERVING, gang=gang)
    assert [each.name for each in asked.problem.pods] == ["job-0-0", "job-0-1", "job-1-0"]
    assert all(each.is_virtual for each in asked.problem.pods)
    assert len({id(each.shape) for each in asked.problem.pods}) == 2


def test_a_gang_is_planned_without_its_ephemeral_volumes_whose_claims_come_with_its_pods():
    """It would wait for claims that wait for it."""
    shape = template().template
    volumes = (
        VolumeView(name="scratch", ephemeral=True, storage_class="fast"),
        VolumeView(name="data", claim_name="data"),
    )
    workers = msgspec.structs.replace(
        template(), template=msgspec.structs.replace(shape, volumes=volumes)
    )
    data = PersistentVolumeClaimView(
        uid="uid-data", namespace="default", name="data", storage_class="fast"
    )
    fast = StorageClassView(uid="uid-fast", name="fast", provisioner="disks")
    snapshot = synced_state(workers, request(2), data, fast).snapshot()
    gang = request_pods(snapshot, snapshot.provisioning_requests["default/job"])
    asked = build_provisioning_input(snapshot, now=EPOCH, problem_settings=SERVING, gang=gang)
    assert [each.name for each in asked.problem.pods] == ["job-0-0", "job-0-1"]
    assert asked.ignored == ()
    assert {
        claim for each in asked.problem.volumes.values() for claim in each.attached["disks"]
    } == {"default/data"}


def test_pods_of_a_request_are_unknown_while_a_template_is_missing():
    snapshot = synced_state(template(), request(2, 1)).snapshot()
    assert request_pods(snapshot, snapshot.provisioning_requests["default/job"]) is None


def test_booked_nodes_are_not_disrupted():
    pool = with_condition(
        ready_node_pool(node_pool()), type=READY, status="True", reason=READY, now=EPOCH
    )
    nodes = (*node_and_claim("old"), *gang_node("new", attempt=""), *node_and_claim("free"))
    snapshot = snapshot_of(pool, *nodes, booked(6, places={"old": {0: 3}}))
    assert {node.name for node in booked_nodes(snapshot)} == {"old", "new"}
    verdicts = evaluate_nodes(snapshot, now=EPOCH).by_state_node
    obstacles = {
        node.name: verdict.obstacle if isinstance(verdict, BlockedNode) else None
        for node, verdict in verdicts.items()
    }
    booking = DisruptionObstacle.BOOKING
    assert obstacles == {"old": booking, "new": booking, "free": None}


PLACES_OF_ANY_SIZE = st.dictionaries(
    st.text("abc-xyz0", min_size=1, max_size=60),
    st.dictionaries(st.integers(0, 31), st.integers(1, 9), min_size=1, max_size=4),
    max_size=5,
)


@given(PLACES_OF_ANY_SIZE, st.integers(1, 900))
def test_places_are_read_as_they_were_written(places, copies):
    """However many nodes there are, each value is one that the API accepts."""
    many = {f"{name}-{n}": counts for n in range(copies) for name, counts in places.items()}
    details = places_details(many)
    assert parse_places({**details, "example.com/other": "kept"}) == many
    assert all(len(text) <= 32_768 for text in details.values())


def test_counts_of_pods_are_read_as_they_were_written_and_nothing_else_is():
    assert parse_pods(format_pods({2: 1, 0: 3})) == {0: 3, 2: 1}
    assert parse_pods("0=3,nonsense") == {}
    assert parse_pods("") == {}
