"""Instances that are there: acceptance cases 80 to 88, rules PC-040 to PC-052.

Cases 86 and 87 are the core's: it collects what has no claim by what is listed here, and deletes
nothing by a listing that says it is partial.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    NodeClaimNotFoundError,
    ThrottledError,
)
from karpenter_core.provider.contract import Instance, TerminationStatus
from karpenter_provider_alibabacloud.described_instances import parse_provider_id, read_instance
from karpenter_provider_alibabacloud.sdk_caller import SdkCaller
from providers.alibabacloud.tests.instances.cluster_world import SPOT

STRANGER = "cn-hangzhou.i-0000000000000000000"


def listed(world):
    listing = world.instances.list()
    assert listing.complete
    return {instance.provider_id: instance for instance in listing.instances}


def test_provider_ids_are_read_from_the_last_dot_on():
    """Case 88."""
    assert parse_provider_id("cn-hangzhou.i-abc") == ("cn-hangzhou", "i-abc")
    assert parse_provider_id("cn-hangzhou.finance.i-abc") == ("cn-hangzhou.finance", "i-abc")
    for text in ("i-abc", "", "cn-hangzhou.", ".i-abc"):
        with pytest.raises(CloudProviderError, match=text or '""'):
            parse_provider_id(text)


def test_instances_are_listed_with_their_claims_by_every_process(world):
    """PC-040 and PC-070."""
    found = world.launch("web-one", "web-two") + world.launch("alone")

    for _ in range(2):
        instances = listed(world)
        assert set(instances) == set(found)
        assert {(i.node_claim, i.token) for i in instances.values()} == {
            ("web-one", "uid-of-web-one"),
            ("web-two", "uid-of-web-two"),
            ("alone", "uid-of-alone"),
        }
        assert not any(i.terminating for i in instances.values())
        world.restart()


def test_a_fetched_instance_has_its_claim_after_a_restart(world):
    found = world.launch("web-one", "web-two")
    before = {i.provider_id: i.token for i in listed(world).values()}
    world.restart()

    fetched = world.instances.fetch(found)

    assert {i.provider_id: i.token for i in fetched} == before


def test_instances_of_others_are_not_listed(world):
    """PC-044: another cluster's, and those of ACK's own node pools."""
    found = world.launch("mine")
    world.cloud.launch_foreign()
    cluster = world.cloud.world.cluster
    world.run(1, {f"kubernetes.io/cluster/{cluster}": "owned"})
    world.run(
        1,
        {
            f"kubernetes.io/cluster/{cluster}": "owned",
            "ecs:ecs-cluster-id": "another",
            "karpenter.sh/nodepool": "web",
        },
    )

    assert list(listed(world)) == found


def test_a_thousand_instances_are_listed_a_hundred_at_a_time(world):
    """Case 80: ten calls. ECS finds no more by tags, so the first listing continues without them."""
    tags = {
        f"kubernetes.io/cluster/{world.cloud.world.cluster}": "owned",
        "karpenter.sh/nodepool": "web",
    }
    world.cloud.behaviour.addresses_per_instance = 0
    world.run(1000, tags)
    world.instances.list()
    world.cloud.calls.clear()

    assert len(listed(world)) == 1000
    assert world.cloud.calls.count("DescribeInstances") == 10

    world.run(30, tags)
    world.restart()
    assert len(listed(world)) == 1030


def test_a_listing_with_pages_missing_says_so(world, monkeypatch):
    """Case 87, PC-043."""
    monkeypatch.setattr("karpenter_provider_alibabacloud.described_instances.AT_ONCE", 10)
    world.launch(*(f"web-{n}" for n in range(15)))
    with world.cloud.fail(
        "DescribeInstances",
        code="InternalError",
        status=500,
        times=None,
        where=lambda parameters: "NextToken" in parameters,
    ):
        listing = world.instances.list()

    assert not listing.complete
    assert "InternalError" in listing.problem
    assert world.listings == []


def test_a_partial_listing_removes_no_instance(world):
    """PC-043: neither ended nor forgotten, and whose it is stays known."""
    found = world.launch("web-one", "web-two", remembered=True)
    found += world.launch("of-another-process", "of-another-process-too")
    before = {i.provider_id: i.token for i in listed(world).values()}
    known = world.instances.last_listed()
    world.cloud.behaviour.instances_per_page = 0
    with world.cloud.fail(
        "DescribeInstances",
        code="InternalError",
        status=500,
        times=None,
        where=lambda parameters: bool(parameters.get("NextToken")),
    ):
        assert not world.instances.list().complete

    assert world.instances.last_listed() == known
    assert not any(world.recent.ended_instance(f"uid-of-{name}") for name in ("web-one", "web-two"))
    world.cloud.behaviour.instances_per_page = 100
    world.cloud.calls.clear()
    assert {i.provider_id: i.token for i in world.instances.fetch(found)} == before
    assert world.cloud.calls.count("DescribeInstances") == 1


def test_a_failed_query_is_no_absence(world):
    """Case 87, PC-085."""
    (found,) = world.launch("there")
    with world.cloud.cut_off():
        for call in (
            lambda: world.instances.fetch([found]),
            lambda: world.instances.terminate([found]),
            world.instances.list,
        ):
            with pytest.raises(CloudProviderError) as raised:
                call()
            assert not isinstance(raised.value, NodeClaimNotFoundError)


def test_fifty_instances_are_fetched_by_one_call(world):
    """Case 81; those who ask at once are gathered by the core."""
    found = world.launch(*(f"web-{n}" for n in range(25)))
    found += world.launch(*(f"web-{n}" for n in range(25, 50)))
    world.instances.list()
    world.cloud.calls.clear()

    assert all(isinstance(each, Instance) for each in world.instances.fetch(found))
    assert world.cloud.calls.count("DescribeInstances") == 1


def test_a_new_instance_is_not_missing_for_a_minute(world):
    """Case 82."""
    world.cloud.behaviour.invisible_seconds = 3600
    (found,) = world.launch("new", remembered=True)
    world.clock.forward(5)

    (early,) = world.instances.fetch([found])
    assert isinstance(early, CloudProviderError)
    assert not isinstance(early, NodeClaimNotFoundError)
    assert list(listed(world)) == [found]
    (ended,) = world.instances.terminate([found])
    assert isinstance(ended, CloudProviderError)

    world.clock.forward(56)
    (late,) = world.instances.fetch([found])
    assert isinstance(late, NodeClaimNotFoundError)
    assert listed(world) == {}


def test_a_listed_instance_is_gone_once_missing(world):
    (found,) = world.launch("short", remembered=True)
    assert isinstance(world.instances.fetch([found])[0], Instance)
    world.cloud.terminate(found)

    assert isinstance(world.instances.fetch([found])[0], NodeClaimNotFoundError)
    assert world.recent.ended_instance("uid-of-short")
    assert world.instances.terminate([found]) == [TerminationStatus.GONE]


def test_a_claim_whose_instance_is_listed_no_more_is_remembered_as_ended(world):
    """PC-033."""
    (found,) = world.launch("short", remembered=True)
    world.instances.list()
    world.cloud.terminate(found)

    world.instances.list()

    name = parse_provider_id(found)[1]
    assert world.recent.ended_instance("uid-of-short") == name
    assert world.recent.get(name) is None


def test_an_instance_launched_during_a_listing_is_not_missing(world, monkeypatch):
    asked, launched = world.reader.of_cluster, []

    def slow():
        listing = asked()
        launched.extend(world.launch("meanwhile", remembered=True))
        world.clock.forward(1)
        world.instances.fetch(launched)
        return listing

    monkeypatch.setattr(world.reader, "of_cluster", slow)

    assert list(listed(world)) == launched
    assert not world.recent.ended_instance("uid-of-meanwhile")


def test_fetching_returns_instances_and_missing_ids(world):
    """PC-041 and PC-042; of other regions nothing can be said."""
    (found,) = world.launch("one")

    there, stranger, nonsense, elsewhere = world.instances.fetch(
        [found, STRANGER, "kwok://a", "cn-beijing.i-1"]
    )

    assert isinstance(there, Instance)
    assert (there.token, there.terminating) == ("uid-of-one", False)
    assert isinstance(stranger, NodeClaimNotFoundError)
    for error, said in ((nonsense, "kwok://a"), (elsewhere, "cn-beijing")):
        assert said in str(error)
        assert not isinstance(error, NodeClaimNotFoundError)


def test_a_reported_creation_time_is_never_too_early(world):
    """Case 86: it is collected by its age, and ECS has minutes only."""
    now = world.clock.now()
    (found,) = world.launch("young")

    (listed_instance,) = world.instances.fetch([found])
    world.restart()
    (remembered,) = world.launch("known", remembered=True)

    assert 0 <= (listed_instance.created - now.replace(microsecond=0)).total_seconds() <= 60
    (launch,) = world.recent.all().values()
    assert world.instances.fetch([remembered])[0].created == launch.instance.created


def test_a_stopped_instance_is_on_its_way_and_can_be_deleted(world):
    """Case 85."""
    (found,) = world.launch("stopped")
    world.cloud.stop_instance(found)

    assert listed(world)[found].terminating
    assert world.instances.fetch([found])[0].terminating
    assert world.instances.terminate([found]) == [TerminationStatus.STARTED]
    assert world.instances.terminate([found]) == [TerminationStatus.GONE]


def test_termination_is_requested_once_and_ends_with_the_instance(world):
    """Case 84, PC-050 to PC-052."""
    world.cloud.behaviour.terminating_seconds = 30
    (found,) = world.launch("ending")

    assert world.instances.terminate([found, STRANGER]) == [
        TerminationStatus.STARTED,
        TerminationStatus.GONE,
    ]
    world.clock.forward(5)
    assert world.instances.terminate([found]) == [TerminationStatus.STARTED]
    assert world.cloud.calls.count("DeleteInstances") == 1

    world.clock.forward(30)
    assert world.instances.terminate([found]) == [TerminationStatus.GONE]
    assert listed(world) == {}


def test_a_new_instance_that_is_terminated_is_gone_once_missing(world):
    """The caller that deletes it has seen it."""
    (found,) = world.launch("short", remembered=True)

    assert world.instances.terminate([found]) == [TerminationStatus.STARTED]
    assert world.instances.terminate([found]) == [TerminationStatus.GONE]


def test_throttled_deletions_are_not_made_one_by_one(world):
    """It would be more calls, where there were too many."""
    found = world.launch("web-one", "web-two", "web-three", "web-four")
    with world.cloud.fail("DeleteInstances", code="Throttling.User", times=None):
        outcomes = world.instances.terminate(found)

    assert {type(each) for each in outcomes} == {ThrottledError}
    assert world.batches == [4]
    assert world.instances.terminate(found) == [TerminationStatus.STARTED] * 4


def test_a_deletion_without_effect_is_repeated_after_a_minute(world):
    world.cloud.behaviour.terminating_seconds = 600
    (found,) = world.launch("slow")
    for _ in range(3):
        assert world.instances.terminate([found]) == [TerminationStatus.STARTED]
        world.clock.forward(31)

    assert world.cloud.calls.count("DeleteInstances") == 2
    world.instances.list()
    assert world.listings == [()]


def test_many_are_terminated_a_hundred_at_a_time(world):
    tags = {
        f"kubernetes.io/cluster/{world.cloud.world.cluster}": "owned",
        "karpenter.sh/nodepool": "web",
    }
    ids = world.run(130, tags)

    outcomes = world.instances.terminate([f"cn-hangzhou.{name}" for name in ids])

    assert outcomes == [TerminationStatus.STARTED] * 130
    assert world.batches == [100, 30]
    assert world.cloud.held().instances == []


def test_an_instance_that_is_being_made_is_deleted_once_it_runs(world):
    """Case 83: no error, and no call that would be refused."""
    world.cloud.behaviour.pending_seconds = 2
    world.cloud.behaviour.starting_seconds = 2
    (found,) = world.launch("early")

    assert world.instances.terminate([found]) == [TerminationStatus.STARTED]
    assert world.cloud.calls.count("DeleteInstances") == 0
    world.clock.forward(5)
    assert world.instances.terminate([found]) == [TerminationStatus.STARTED]
    assert world.instances.terminate([found]) == [TerminationStatus.GONE]


@pytest.mark.parametrize("names_it", [True, False])
@pytest.mark.parametrize("code", ["InvalidInstanceId.NotFound", "IncorrectInstanceStatus"])
def test_one_failed_deletion_does_not_keep_the_others(world, names_it, code):
    found = world.launch("web-one", "web-two", "web-three")
    name = parse_provider_id(found[1])[1]
    message = f"The specified InstanceId {name} …" if names_it else "refused"
    with world.cloud.fail(
        "DeleteInstances",
        code=code,
        message=message,
        status=403,
        times=None,
        where=lambda parameters: name in str(parameters),
    ):
        assert world.instances.terminate(found) == [TerminationStatus.STARTED] * 3

    assert world.cloud.held().instances == [name]
    assert world.instances.terminate(found) == [
        TerminationStatus.GONE,
        TerminationStatus.STARTED,
        TerminationStatus.GONE,
    ]


def test_a_refusal_is_the_error_of_each(world):
    found = world.launch("web-one", "web-two")
    with world.cloud.deny("DeleteInstances"):
        outcomes = world.instances.terminate(found)

    assert all(isinstance(each, AuthError) for each in outcomes)
    assert all("ecs:DeleteInstances" in str(each) for each in outcomes)
    assert len(world.cloud.held().instances) == 2


def test_a_terminated_instance_frees_its_place_in_the_private_pool(world):
    reservation = world.cloud.reservations.add(
        "paid", instance_type="ecs.g7.large", zone="cn-hangzhou-b", total=2
    )
    (found,) = world.launch(
        "paid", PrivatePoolOptions={"MatchCriteria": "Target", "Id": reservation.id}
    )
    world.reservation_counts.record({reservation.id: 1})
    world.clock.forward(1)

    assert listed(world)[found].capacity_type == "reserved"
    world.instances.terminate([found])
    assert world.reservation_counts.remaining(reservation.id) == 1
    world.instances.terminate([found])
    assert world.reservation_counts.remaining(reservation.id) == 2


def test_listeners_get_all_instances_but_those_we_terminate(world):
    world.cloud.behaviour.terminating_seconds = 60
    stays, goes = world.launch("web-one", "web-two")
    world.instances.terminate([goes])

    world.instances.list()

    assert [[each.id for each in listed_instance] for listed_instance in world.listings] == [
        [parse_provider_id(stays)[1]]
    ]


@pytest.mark.parametrize(
    ("text", "launched"),
    [
        ("2026-03-01T10:20Z", datetime(2026, 3, 1, 10, 20, 59, tzinfo=UTC)),
        ("2026-03-01T10:20:30Z", datetime(2026, 3, 1, 10, 20, 30, tzinfo=UTC)),
        ("2026-03-01T18:20:30+08:00", datetime(2026, 3, 1, 10, 20, 30, tzinfo=UTC)),
        ("2026-03-01T10:20:30", datetime(2026, 3, 1, 10, 20, 30, tzinfo=UTC)),
        ("", None),
    ],
)
def test_the_time_of_launch_is_read_with_and_without_seconds(text, launched):
    """Without them it was in that minute."""
    assert read_instance({"CreationTime": text}).launched_at == launched


def test_an_instance_description_is_read(world):
    (spot,) = world.launch("cheap", **SPOT)
    world.cloud.reclaim(spot)

    found = world.reader.of_ids([parse_provider_id(spot)[1]])
    (instance,) = found.values()

    assert (instance.capacity_type, instance.zone) == ("spot", "cn-hangzhou-b")
    assert instance.locks == {"Recycling"}
    assert instance.vswitch_id == world.cloud.world.vswitches["cn-hangzhou-b"]
    assert instance.security_groups == {world.cloud.world.security_group_id}
    assert read_instance({}).launched_at is None
    in_pool = {"EcsCapacityReservationAttr": {"CapacityReservationId": "crp-1"}}
    assert read_instance(in_pool).capacity_type == "reserved"
    assert read_instance(in_pool, uses_reservations=False).capacity_type == "on-demand"


class ChangedListings:
    """Answers DescribeInstances with what a test gives, and other calls as before."""

    def __init__(self, monkeypatch, answer):
        call = SdkCaller.call

        def changed(caller, action, parameters):
            return answer if action == "DescribeInstances" else call(caller, action, parameters)

        monkeypatch.setattr(SdkCaller, "call", changed)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"RequestId": "r-1"},
        {"Instances": None},
        {"Instances": {}},
        {"Instances": {"Instance": None}},
        {"Instances": {"Instance": []}, "NextToken": "again"},
    ],
)
def test_an_answer_without_a_list_of_instances_does_not_say_that_they_are_gone(
    world, monkeypatch, answer
):
    """Their NodeClaims would be deleted, or lose their finalizers while the instances go on."""
    found = world.launch("web")
    world.restart()
    with monkeypatch.context() as patching:
        ChangedListings(patching, answer)
        with suppress(CloudProviderError):  # raised if not even the first page is known
            assert not world.instances.list().complete
        try:
            fetched = world.instances.fetch(found)
        except CloudProviderError:
            fetched = []
        assert not any(isinstance(each, NodeClaimNotFoundError) for each in fetched)
    assert set(listed(world)) == set(found)


def test_an_empty_list_says_that_there_are_no_instances(world):
    assert listed(world) == {}
