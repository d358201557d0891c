"""The interruption queue over real calls (acceptance cases 144 and 145)."""

from __future__ import annotations

import json

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE
from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.contract import InterruptionKind as Kind
from karpenter_provider_aws.labels import CAPACITY_RESERVATION_ID
from karpenter_provider_aws.sdk import ClientLimits, CloudClients
from karpenter_simulated_aws.instances import SimulatedInstanceState
from providers.aws.tests.interruption.cloud_world import ZONE_A, World


def test_a_spot_warning_names_the_instance_and_marks_its_pool(world: World):
    (spot,) = world.launch(spot=True)
    world.aws.messages.spot_interruption(world.aws.instance(spot))

    (said,) = world.poll()

    assert (said.kind, said.provider_id) == (Kind.SPOT_RECLAIM, spot)
    assert said.deadline is not None
    assert world.is_marked("spot")
    assert not world.is_marked("on-demand")


def test_a_message_about_a_listed_node_needs_no_call(world: World):
    (spot,) = world.launch(spot=True)
    world.join(spot, **{CAPACITY_TYPE: "spot"})
    world.aws.messages.spot_interruption(world.aws.instance(spot))

    (said,) = world.poll()

    assert said.provider_id == spot
    assert world.is_marked("spot")
    assert world.aws.calls.count("DescribeInstances") == 0


def test_a_reservation_that_is_taken_back_has_nothing_left(world: World):
    reservation = world.aws.reservations.add(
        instance_type="m5.large", zone=ZONE_A, total=5, interruptible=True
    )
    (reserved,) = world.launch()
    world.join(reserved, **{CAPACITY_RESERVATION_ID: reservation.id, CAPACITY_TYPE: "reserved"})
    world.reservations.reservation_counts.record({reservation.id: 4})
    world.aws.messages.reservation_interruption(world.aws.instance(reserved))

    (said,) = world.poll()

    assert (said.kind, said.provider_id) == (Kind.RESERVATION_RECLAIM, reserved)
    assert world.reservations.reservation_counts.remaining(reservation.id) == 0
    assert not world.is_marked("reserved")


def test_a_repeated_message_does_not_renew_the_mark(world: World):
    """Only what the cloud says anew is news: otherwise a mark would last as long as the message."""
    (spot,) = world.launch(spot=True)
    world.aws.messages.spot_interruption(world.aws.instance(spot))
    world.poll()
    world.offerings.flush()

    again = world.poll()

    assert [one.provider_id for one in again] == [spot]
    assert not world.is_marked("spot")


def test_an_announcement_is_repeated_until_acknowledged(world: World):
    (instance_id,) = world.launch()
    world.aws.messages.rebalance(world.aws.instance(instance_id))

    first, second = world.poll(), world.poll()
    world.acknowledge(*first)

    assert [one.kind for one in first] == [Kind.REBALANCE]
    assert first == second
    assert world.poll() == ()
    assert world.left_in_queue() == 0


def test_after_a_restart_unacknowledged_messages_are_announced_again(world: World):
    """SQS shows a message again after twenty seconds; here it is made visible by hand."""
    (instance_id,) = world.launch()
    world.aws.messages.rebalance(world.aws.instance(instance_id))
    first = world.poll()
    world.interruption_sources = world.restarted()
    assert world.poll() == ()

    world.make_visible()

    assert world.poll() == first


def test_a_redelivered_message_is_deleted_by_its_new_receipt(world: World):
    (instance_id,) = world.launch()
    world.aws.messages.rebalance(world.aws.instance(instance_id))
    first = world.poll()
    world.make_visible()

    again = world.poll()
    world.acknowledge(*again)

    assert again == first
    assert world.left_in_queue() == 0


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (SimulatedInstanceState.STOPPING, Kind.INSTANCE_STOPPED),
        (SimulatedInstanceState.STOPPED, Kind.INSTANCE_STOPPED),
        (SimulatedInstanceState.SHUTTING_DOWN, Kind.INSTANCE_TERMINATED),
        (SimulatedInstanceState.TERMINATED, Kind.INSTANCE_TERMINATED),
    ],
)
def test_changes_of_state_are_announced(world: World, state, kind):
    (instance_id,) = world.launch()
    world.aws.messages.state_change(world.aws.instance(instance_id), state)

    (said,) = world.poll()

    assert (said.kind, said.provider_id, said.detail) == (kind, instance_id, state.value)


def test_a_running_state_is_not_announced_and_its_message_is_deleted(world: World):
    (instance_id,) = world.launch()
    world.aws.messages.state_change(world.aws.instance(instance_id), SimulatedInstanceState.RUNNING)

    said = world.poll()
    world.acknowledge(*said)

    assert [(one.kind, one.provider_id) for one in said] == [(Kind.IRRELEVANT, "")]
    assert world.left_in_queue() == 0


def test_an_unreadable_text_is_announced_and_deleted(world: World):
    world.aws.messages.send_text("What is this?")

    said = world.poll()
    world.acknowledge(*said)

    assert [(one.kind, one.provider_id) for one in said] == [(Kind.UNKNOWN, "")]
    assert "What is this?" in said[0].detail
    assert world.left_in_queue() == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"time": "9999-12-31T23:59:59Z"},
        {"detail": {"instance-id": "i-\ud800", "instance-action": "terminate"}},
        {"detail": {"instance-id": "i-1", "instance-action": "\udfff"}},
        {"detail": {"instance-id": "i-1\0", "instance-action": "terminate"}},
        {"detail": {"instance-id": "i-" * 60_000, "instance-action": "terminate"}},
    ],
)
def test_a_malformed_message_holds_no_other_message_back(world: World, changes):
    """Anybody who may send to the queue can write it; text that cannot be encoded reaches no call."""
    (spot,) = world.launch(spot=True)
    malformed = {
        "version": "0",
        "source": "aws.ec2",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "detail": {"instance-id": "i-1", "instance-action": "terminate"},
        **changes,
    }
    world.aws.messages.send_text(json.dumps(malformed))
    world.aws.messages.spot_interruption(world.aws.instance(spot))

    said = world.poll()
    world.acknowledge(*said)

    assert spot in {one.provider_id for one in said}
    assert all(one.detail.encode() for one in said)
    assert world.left_in_queue() == 0


def test_foreign_instances_are_looked_up_once_and_ignored(world: World):
    """The queue brings those of the whole account."""
    foreign = world.aws.instance(world.aws.launch_foreign())
    world.aws.messages.spot_interruption(foreign)
    said = world.poll()
    world.acknowledge(*said)
    world.aws.messages.state_change(foreign, SimulatedInstanceState.TERMINATED)
    said += world.poll()

    assert [(one.kind, one.provider_id) for one in said] == [(Kind.IRRELEVANT, "")] * 2
    assert world.aws.calls.count("DescribeInstances") == 1
    assert not world.is_marked("spot")


def test_an_instance_of_ours_without_a_node_is_looked_up_once(world: World):
    (instance_id,) = world.launch()
    world.aws.messages.state_change(
        world.aws.instance(instance_id), SimulatedInstanceState.TERMINATED
    )

    assert world.poll() == world.poll()
    assert world.aws.calls.count("DescribeInstances") == 1


def test_an_unknown_instance_is_announced_until_acknowledged(world: World):
    """One that was launched just now may not be described yet."""
    (instance_id,) = world.launch(spot=True)
    world.aws.behaviour.invisible_seconds = 30
    world.aws.messages.spot_interruption(world.aws.instance(instance_id))
    (early,) = world.poll()
    world.aws.behaviour.invisible_seconds = 0

    (later,) = world.poll()

    assert early.id == later.id
    assert early.provider_id == instance_id.rpartition("/")[2]
    assert later.provider_id == instance_id
    assert world.is_marked("spot")


def test_a_message_about_several_is_deleted_once_all_are_acknowledged(world: World):
    instance_ids = world.launch(count=3)
    instances = [world.aws.instance(each) for each in instance_ids]
    foreign = world.aws.instance(world.aws.launch_foreign())
    world.aws.messages.scheduled_change([*instances, foreign], starts_at=world.clock.now())

    said = world.poll()
    world.acknowledge(*said[:2])
    left = world.poll()

    assert {one.provider_id for one in said} == set(instance_ids)
    assert {one.kind for one in said} == {Kind.SCHEDULED_MAINTENANCE}
    assert {one.deadline for one in said} == {None}
    assert left == said[2:]
    assert world.left_in_queue() == 1
    world.acknowledge(*left)
    assert world.left_in_queue() == 0


def test_a_hundred_mixed_messages_are_read_and_deleted(world: World):
    spots = world.launch(spot=True, count=30)
    others = world.launch(count=60)
    for each in spots:
        world.aws.messages.spot_interruption(world.aws.instance(each))
    for each in others[:40]:
        world.aws.messages.state_change(world.aws.instance(each), SimulatedInstanceState.STOPPING)
    for each in others[40:]:
        world.aws.messages.rebalance(world.aws.instance(each))
    for _ in range(10):
        world.aws.messages.send_text("{")
    said = []

    while world.left_in_queue():
        now = world.poll()
        world.acknowledge(*now)
        said += now

    kinds = [one.kind for one in said]
    assert kinds.count(Kind.SPOT_RECLAIM) == 30
    assert kinds.count(Kind.INSTANCE_STOPPED) == 40
    assert kinds.count(Kind.REBALANCE) == 20
    assert kinds.count(Kind.UNKNOWN) == 10
    assert {one.provider_id for one in said} == {"", *spots, *others}
    assert world.aws.calls.count("DeleteMessageBatch") == 10


def test_a_queue_that_is_missing_is_named(world: World):
    world.queue_name = "no-such-queue"
    world.interruption_sources = world.restarted()

    with pytest.raises(CloudProviderError, match=r"interruption-queue.*no-such-queue"):
        world.interruption_sources.poll()


def test_a_recreated_queue_is_polled_again(world: World):
    world.poll()
    queue = world.interruption_sources.queue
    assert queue is not None

    with (
        world.aws.fail("ReceiveMessage", code="AWS.SimpleQueueService.NonExistentQueue"),
        pytest.raises(CloudProviderError, match="there is no queue"),
    ):
        queue.poll(wait=False)

    assert queue.poll(wait=False) == ()
    assert world.aws.calls.count("GetQueueUrl") == 2


@pytest.mark.parametrize("action", ["GetQueueUrl", "ReceiveMessage"])
def test_a_queue_that_may_not_be_read_is_an_error_of_permissions(world: World, action):
    with world.aws.deny(action), pytest.raises(AuthError) as refused:
        world.interruption_sources.poll()

    assert refused.value.action == f"sqs:{action}"


def test_a_message_with_a_denied_deletion_is_an_error_and_comes_again(world: World):
    (instance_id,) = world.launch()
    world.aws.messages.rebalance(world.aws.instance(instance_id))
    first = world.poll()
    with world.aws.deny("DeleteMessageBatch"), pytest.raises(AuthError):
        world.acknowledge(*first)
    world.make_visible()

    again = world.poll()
    world.acknowledge(*again)

    assert again == first
    assert world.left_in_queue() == 0


def test_messages_with_a_node_do_not_wait_for_those_that_cannot_be_looked_up(world: World):
    known, unknown = world.launch(count=2)
    world.join(known)
    for each in (known, unknown):
        world.aws.messages.rebalance(world.aws.instance(each))

    with world.aws.deny("DescribeInstances"):
        during = world.poll()
        world.acknowledge(*during)
        queue = world.interruption_sources.queue
        assert queue is not None
        with pytest.raises(AuthError):
            queue.poll(wait=False)
    after = world.poll()

    assert [one.provider_id for one in during] == [known]
    assert [one.provider_id for one in after] == [unknown]


def test_acknowledging_an_unknown_message_has_no_effect(world: World):
    world.interruption_sources.acknowledge(
        ["never-was", "status/i-1/SystemStatus/1", "block/i-1/cr-1", ""]
    )


def test_without_a_queue_no_message_is_read(world: World):
    world.queue_name = ""
    world.interruption_sources = world.restarted()

    assert world.interruption_sources.poll() == ()
    assert world.aws.calls.count("GetQueueUrl") == 0


def test_without_a_queue_the_other_sources_are_announced(world: World):
    world.queue_name = ""
    world.interruption_sources = world.restarted()
    (instance_id,) = world.launch()
    world.aws.schedule_event(instance_id, "instance-stop")
    world.interruption_sources.status.run()

    assert [one.provider_id for one in world.interruption_sources.poll()] == [instance_id]
    assert world.aws.calls.count("GetQueueUrl") == 0


def test_a_poll_waits_for_messages_but_not_longer_than_the_sdk_reads(world: World):
    """A long poll that the SDK gives up on would be repeated by it, and end in an error."""
    region = world.aws.account.region
    impatient = World(world.aws, CloudClients(region=region, limits=ClientLimits(read_seconds=6)))

    impatient.interruption_sources.poll()

    asked = world.aws.calls.of("ReceiveMessage")[-1].parameters
    assert asked["WaitTimeSeconds"] == 1
    impatient.clients.close()


def test_a_poll_waits_as_long_as_sqs_allows_and_no_longer(world: World):
    """SQS refuses more than 20 seconds (API reference of ReceiveMessage)."""
    region = world.aws.account.region
    patient = World(world.aws, CloudClients(region=region, limits=ClientLimits(read_seconds=60)))
    (instance_id,) = world.launch()
    world.aws.messages.rebalance(world.aws.instance(instance_id))

    assert len(patient.interruption_sources.poll()) == 1

    asked = world.aws.calls.of("ReceiveMessage")[-1].parameters
    assert asked["WaitTimeSeconds"] == 20
    patient.clients.close()
