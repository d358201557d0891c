"""Instances of a cluster: who they are, which are gone, and which the cloud does not show yet."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import Instance, TerminationStatus
from tests.properties import with_examples
from tests.provider.small_cloud import PREFIX, START, SmallCloud


@pytest.fixture
def cloud():
    return SmallCloud()


def is_not_found(outcome):
    return isinstance(outcome, NodeClaimNotFoundError)


def is_unknown(outcome):
    return isinstance(outcome, CloudProviderError) and not is_not_found(outcome)


def owners(cloud):
    return {each.provider_id: each.node_claim for each in cloud.instances.list().instances}


def test_every_id_gets_its_outcome_in_order_by_one_reading(cloud):
    there = cloud.launch("i-1", instance_type="big", zone="b")

    found, stranger, nonsense, again = cloud.instances.fetch(
        [there, f"{PREFIX}i-9", "kwok://a", there]
    )

    assert isinstance(found, Instance)
    assert (found.node_claim, found.token) == ("claim-of-i-1", "uid-claim-of-i-1")
    assert (found.instance_type, found.zone, found.created) == ("big", "b", START)
    assert is_not_found(stranger)
    assert is_unknown(nonsense)
    assert again == found
    assert cloud.reads == ["of_ids"]


def test_no_ids_cost_no_reading(cloud):
    assert cloud.instances.fetch([]) == []
    assert cloud.instances.terminate(["kwok://a"])
    assert cloud.reads == []


def test_a_failed_reading_is_no_absence(cloud):
    there = cloud.launch("i-1")
    cloud.is_down = True
    for call in (
        lambda: cloud.instances.fetch([there]),
        lambda: cloud.instances.terminate([there]),
        cloud.instances.list,
    ):
        with pytest.raises(CloudProviderError, match="no answer"):
            call()
    assert cloud.terminated == []


def test_a_new_instance_that_is_not_shown_yet_is_listed_and_neither_missing_nor_terminated(cloud):
    new = cloud.launch("i-1", is_recent=True)
    cloud.unseen.add("i-1")

    assert is_unknown(cloud.instances.fetch([new])[0])
    assert is_unknown(cloud.instances.terminate([new])[0])
    assert owners(cloud) == {new: ""}

    cloud.clock.seconds = 60
    assert is_not_found(cloud.instances.fetch([new])[0])
    assert owners(cloud) == {}


def test_a_new_instance_that_was_shown_is_gone_once_missing(cloud):
    new = cloud.launch("i-1", is_recent=True)
    assert isinstance(cloud.instances.fetch([new])[0], Instance)
    del cloud.launched["i-1"]
    cloud.clock.seconds = 1

    assert is_not_found(cloud.instances.fetch([new])[0])
    assert cloud.recent.ended_instance("uid-claim-of-i-1") == "i-1"
    assert cloud.instances.terminate([new]) == [TerminationStatus.GONE]


def test_a_recent_launch_is_not_taken_for_gone_if_the_cloud_describes_terminated_instances():
    cloud = SmallCloud(shows_terminated=True)
    new = cloud.launch("i-1", is_recent=True)
    assert isinstance(cloud.instances.fetch([new])[0], Instance)
    cloud.unseen.add("i-1")
    cloud.clock.seconds = 200
    assert cloud.instances.fetch([new])[0].token == "uid-claim-of-i-1"
    assert is_unknown(cloud.instances.terminate([new])[0])

    cloud.unseen.clear()
    cloud.change("i-1", is_leaving=True, is_gone=True)
    assert is_not_found(cloud.instances.fetch([new])[0])
    assert owners(cloud) == {}
    assert cloud.instances.terminate([new]) == [TerminationStatus.GONE]


@with_examples(100)
@given(
    steps=st.lists(
        st.sampled_from(["show", "hide", "fetch", "list", "wait"]), min_size=1, max_size=12
    )
)
def test_an_existing_instance_is_not_found_only_after_a_minute_or_after_it_was_shown(steps):
    """A cloud that shows an instance, and then not, has ended it; before, it is late."""
    cloud = SmallCloud()
    new = cloud.launch("i-1", is_recent=True)
    cloud.unseen.add("i-1")
    was_shown = False
    for step in steps:
        match step:
            case "show":
                cloud.unseen.clear()
            case "hide":
                cloud.unseen.add("i-1")
            case "wait":
                cloud.clock.seconds += 25
            case "list":
                cloud.instances.list()
                was_shown = was_shown or not cloud.unseen
            case _:
                outcome = cloud.instances.fetch([new])[0]
                was_shown = was_shown or not cloud.unseen
                assert isinstance(outcome, Instance) == (not cloud.unseen)
                if is_not_found(outcome):
                    assert was_shown or cloud.clock.seconds >= 60


def test_a_cached_listing_says_the_time_that_it_shows(cloud):
    old = cloud.launch("i-1")
    assert cloud.instances.list().as_of is None
    cloud.clock.seconds = 10
    cloud.cache_listing()
    cloud.clock.seconds = 50

    listing = cloud.instances.list()

    assert listing.as_of == START + timedelta(seconds=10)
    assert [each.provider_id for each in listing.instances] == [old]


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_listing_from_before_a_launch_is_no_end_of_the_instance(cloud, is_shown):
    """The instance was launched, and perhaps described, later than the listing."""
    cloud.cache_listing()
    cloud.clock.seconds = 1
    new = cloud.launch("i-1", is_recent=True)
    if is_shown:
        cloud.instances.fetch([new])
    cloud.clock.seconds = 62

    assert owners(cloud) == {new: ""}
    assert isinstance(cloud.instances.fetch([new])[0], Instance)
    assert cloud.recent.get("i-1") is not None


def test_a_cached_listing_ends_an_instance_that_it_should_show(cloud):
    cloud.launch("i-1", is_recent=True)
    cloud.unseen.add("i-1")
    cloud.clock.seconds = 60
    cloud.cache_listing()
    cloud.clock.seconds = 100

    assert owners(cloud) == {}


def test_a_cached_listing_keeps_terminations_that_were_started(cloud):
    cloud.cache_listing()
    cloud.launch("i-1")
    cloud.instances.list()

    assert cloud.kept == []


def test_a_partial_listing_forgets_nothing(cloud):
    cloud.launch("i-1")
    recent = cloud.launch("i-2", is_recent=True)
    cloud.instances.list()
    before = cloud.instances.last_listed()
    cloud.launched.clear()
    cloud.problem = "page 2 is missing"
    cloud.clock.seconds = 100

    listing = cloud.instances.list()

    assert (listing.complete, listing.problem) == (False, "page 2 is missing")
    assert cloud.instances.last_listed() == before
    assert cloud.recent.get("i-2") is not None
    assert len(cloud.kept) == len(cloud.listed) == 1, "nobody is told of a partial listing"
    cloud.problem = ""
    cloud.instances.list()
    assert cloud.instances.last_listed() == {}
    assert is_not_found(cloud.instances.fetch([recent])[0])


def test_the_launch_time_of_this_process_is_more_exact(cloud):
    cloud.clock.seconds = 7
    new = cloud.launch("i-1", is_recent=True)

    assert cloud.instances.fetch([new])[0].created == cloud.clock.now()


def test_an_instance_of_a_call_for_several_claims_is_assigned_by_the_whole_call():
    """One of two instances alone would be assigned to the first claim of the call."""
    cloud = SmallCloud(is_tagged=True)
    both = [cloud.launch(name, "a", "b") for name in ("i-1", "i-2")]

    (second,) = cloud.instances.fetch([both[1]])

    assert second.node_claim == owners(cloud)[both[1]] == "b"
    assert second.launched_for == ("uid-a", "uid-b")
    cloud.reads.clear()
    assert [each.node_claim for each in cloud.instances.fetch(both)] == ["a", "b"]
    assert cloud.reads == ["of_ids"], "the last listing has them"


def test_a_foreign_instance_with_several_claims_costs_no_listing():
    cloud = SmallCloud(is_tagged=True)
    foreign = cloud.launch("i-1", "a", "b")
    cloud.others.add("i-1")

    assert cloud.instances.fetch([foreign])[0].node_claim == ""
    assert cloud.reads == ["of_ids"]


def test_a_terminated_instance_frees_its_reservation_once(cloud):
    reserved = cloud.launch("i-1", reservation_id="paid", capacity_type="reserved")
    cloud.counts.record({"paid": 0})

    assert cloud.instances.terminate([reserved]) == [TerminationStatus.STARTED]
    assert cloud.counts.remaining("paid") == 0
    cloud.launched.clear()
    for _ in range(2):
        assert cloud.instances.terminate([reserved]) == [TerminationStatus.GONE]
    assert cloud.counts.remaining("paid") == 1
