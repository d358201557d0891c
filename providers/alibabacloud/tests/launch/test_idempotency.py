"""Tests one instance per claim: restarts and lost replies (case 61)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import CloudProviderError, LaunchFailedError
from karpenter_core.provider.contract import LaunchedInstance
from providers.alibabacloud.tests.given_answers import answering
from providers.alibabacloud.tests.launch.processes import (
    GROUP,
    ON_DEMAND,
    ONLY_LARGE,
    RUN,
    Process,
    claim_of,
)

WISH = (ON_DEMAND, ONLY_LARGE)
READ = "DescribeInstances"


@pytest.fixture
def restarted(cloud, clients, tmp_path):
    """A second process, which knows nothing of the first."""
    return Process(cloud, clients, tmp_path)


def claims(number):
    return [claim_of(f"n{each}", *WISH) for each in range(number)]


@pytest.mark.parametrize("api", ["", RUN])
def test_a_lost_reply_makes_no_second_instance(cloud, clients, tmp_path, node_class, api):
    """Case 61: the call is made again at once, with its token."""
    process = Process(cloud, clients, tmp_path, launch_api=api)
    cloud.lose_replies(api or GROUP)

    outcome = process.launch_one(claim_of("a", *WISH), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert len(cloud.held().instances) == 1


def test_a_call_that_is_never_answered_is_made_again_when_the_claim_comes_back(process, node_class):
    """Word for word, though a cheaper choice may have come up meanwhile."""
    process.cloud.lose_replies(GROUP, times=3)
    first = process.launch_one(claim_of("a", *WISH), node_class)
    second = process.launch_one(claim_of("a", *WISH), node_class)

    assert isinstance(first, CloudProviderError)
    assert isinstance(second, LaunchedInstance)
    assert len(process.cloud.held().instances) == 1


@pytest.mark.parametrize(
    ("api", "answer"),
    [
        (GROUP, {}),
        (GROUP, {"RequestId": "R-1", "LaunchResults": {}}),
        (RUN, {}),
        (RUN, {"RequestId": "R-1", "InstanceIdSets": None}),
        (RUN, {"InstanceIdSets": {"InstanceIdSet": [""]}}),
        (RUN, {"InstanceIdSets": {"InstanceIdSet": []}}),
    ],
)
def test_an_answer_that_says_nothing_of_instances_is_none(
    cloud, clients, tmp_path, node_class, api, answer
):
    """The instance is there: a shortage would have its claim deleted, and another one launched."""
    process = Process(cloud, clients, tmp_path, launch_api=api)
    with answering(cloud, api, answer):
        first = process.launch_one(claim_of("a", *WISH), node_class)
    second = process.launch_one(claim_of("a", *WISH), node_class)

    assert type(first) is CloudProviderError
    assert isinstance(second, LaunchedInstance)
    assert len(cloud.held().instances) == 1
    assert not process.unavailable_offerings.view(now=process.clock.now()).offerings


def test_a_claim_that_was_launched_keeps_its_instance(process, node_class):
    """Handed over again to the same process."""
    first = process.launch_one(claim_of("a", *WISH), node_class)
    second = process.launch_one(claim_of("a", *WISH), node_class)

    assert first == second
    assert len(process.sent()) == 1


def test_another_process_finds_the_instances_of_the_first(process, restarted, node_class):
    """All of a group, each claim its own; nothing is launched."""
    before = process.launch(*claims(5), node_class=node_class)

    after = restarted.launch(*claims(5), node_class=node_class)

    assert after == before
    assert len(process.sent()) == 1


def test_another_process_finds_the_instance_of_a_lost_reply(process, restarted, node_class):
    """The first never knew."""
    process.cloud.lose_replies(GROUP, times=3)
    process.launch(*claims(3), node_class=node_class)

    outcomes = restarted.launch(*claims(4), node_class=node_class)

    assert len({outcome.provider_id for outcome in outcomes}) == 4
    assert len(process.cloud.held().instances) == 4


def test_the_cluster_is_read_once_for_claims_that_are_new(process, node_class):
    """No other process can have launched for new claims; for older ones it may have."""
    cloud = process.cloud
    process.launch_one(claim_of("first", *WISH), node_class)
    process.clock.forward(300)  # before that the process before this one may have launched
    read = cloud.calls.count(READ)
    for name in ("a", "b", "c"):
        process.launch_one(claim_of(name, *WISH, created=process.clock.now()), node_class)
    assert cloud.calls.count(READ) == read

    created = process.clock.now() - timedelta(minutes=1)
    process.launch_one(claim_of("d", *WISH, created=created), node_class)
    assert cloud.calls.count(READ) == read + 1


def test_a_reelected_leader_finds_instances_that_another_leader_launched(
    process, restarted, node_class
):
    """The claim is no new one then."""
    process.launch_one(claim_of("a", *WISH, created=process.clock.now()), node_class)
    created = process.clock.now()
    there = restarted.launch_one(claim_of("b", *WISH, created=created), node_class)
    process.clock.forward(31)

    assert process.launch_one(claim_of("b", *WISH, created=created), node_class) == there
    assert len(process.cloud.held().instances) == 2


def test_nothing_is_launched_while_the_cluster_cannot_be_read(process, node_class):
    """The error says that nothing was sent."""
    process.cloud.deny(READ)

    with pytest.raises(CloudProviderError):
        process.launch_one(claim_of("a", *WISH), node_class)
    assert not process.sent()


def lost_pages(cloud):
    """Fail every page of instances but the first."""
    return cloud.fail(
        READ,
        code="InternalError",
        status=500,
        times=None,
        where=lambda parameters: bool(parameters.get("NextToken")),
    )


@pytest.mark.parametrize("per_page", [0, 2], ids=["empty page", "some instances"])
def test_a_partial_listing_proves_no_absent_instance(process, restarted, node_class, per_page):
    """Nothing is bought, however young the claims are, until all pages can be read."""
    now = process.clock.now()
    young = [claim_of(f"n{each}", *WISH, created=now) for each in range(6)]
    there = process.launch(*young[:5], node_class=node_class)
    process.cloud.behaviour.instances_per_page = per_page
    with lost_pages(process.cloud):
        for _ in range(2):
            with pytest.raises(CloudProviderError, match="InternalError"):
                restarted.launch(*young, node_class=node_class)
    assert len(process.sent()) == 1

    process.cloud.behaviour.instances_per_page = 2
    outcomes = restarted.launch(*young, node_class=node_class)

    assert outcomes[:5] == there
    assert len(process.cloud.held().instances) == 6


def test_claims_that_may_have_an_instance_wait_for_a_whole_listing_and_young_ones_do_not(
    process, node_class
):
    """A process that read the cluster before knows that no other launched for a new claim."""
    process.launch_one(claim_of("a", *WISH), node_class)
    process.clock.forward(300)
    process.cloud.behaviour.instances_per_page = 0
    with lost_pages(process.cloud):
        young = process.launch_one(claim_of("b", *WISH, created=process.clock.now()), node_class)
        with pytest.raises(CloudProviderError, match="InternalError"):
            process.launch_one(claim_of("c", *WISH), node_class)

    assert isinstance(young, LaunchedInstance)
    assert len(process.cloud.held().instances) == 2


def test_a_claim_whose_instance_is_gone_gets_no_other(process, node_class):
    """Seen to go by this process, or not there any more when ECS is asked."""
    first = process.launch_one(claim_of("a", *WISH), node_class)
    second = process.launch_one(claim_of("b", *WISH), node_class)
    process.instances.terminate([first.provider_id])
    process.instances.terminate([first.provider_id])
    process.cloud.terminate(second.provider_id)
    process.clock.forward(61)

    for name in ("a", "b"):
        outcome = process.launch_one(claim_of(name, *WISH), node_class)
        assert isinstance(outcome, LaunchFailedError)
        assert outcome.reason == "InstanceTerminated"
    assert not process.cloud.held().instances


def test_a_stopping_instance_does_not_serve_its_claim(process, restarted, node_class):
    """It does not come back by itself."""
    first = process.launch_one(claim_of("a", *WISH), node_class)
    process.cloud.stop_instance(first.provider_id)

    outcome = restarted.launch_one(claim_of("a", *WISH), node_class)

    assert isinstance(outcome, LaunchFailedError)


def test_an_instance_missing_from_an_early_listing_is_not_launched_again(process, node_class):
    """For a minute our own word counts."""
    process.cloud.behaviour.invisible_seconds = 50
    first = process.launch_one(claim_of("a", *WISH), node_class)
    process.clock.forward(45)

    assert process.launch_one(claim_of("a", *WISH), node_class) == first


def test_a_claim_without_an_instance_is_requested_again(process, node_class):
    """With another token: the old one would bring the old answer for a day."""
    process.cloud.capacity.sell_out()
    process.launch_one(claim_of("a", *WISH), node_class)
    process.cloud.capacity.clear()
    process.unavailable_offerings.flush()

    outcome = process.launch_one(claim_of("a", *WISH), node_class)

    assert isinstance(outcome, LaunchedInstance)
    tokens = [sent["ClientToken"] for sent in process.sent()]
    assert len(tokens) == len(set(tokens)) == 2
    assert all(len(token) <= 64 for token in tokens)


def test_two_processes_that_launch_the_same_make_one_instance(process, restarted, node_class):
    """Though ECS does not show it yet: the second waits until it does."""
    process.cloud.behaviour.invisible_seconds = 55
    there = process.launch(*claims(3), node_class=node_class)

    at_once = restarted.launch(*claims(3), node_class=node_class)
    process.clock.forward(50)
    soon = restarted.launch(*claims(3), node_class=node_class)
    process.clock.forward(11)
    later = restarted.launch(*claims(3), node_class=node_class)

    assert {type(outcome) for outcome in (*at_once, *soon)} == {CloudProviderError}
    assert later == there
    assert len(process.cloud.held().instances) == 3


def test_a_failed_request_of_another_process_is_repeated(process, restarted, node_class):
    """After a minute there would be an instance to be seen."""
    process.cloud.capacity.sell_out()
    process.launch_one(claim_of("a", *WISH), node_class)
    process.cloud.capacity.clear()
    restarted.launch_one(claim_of("a", *WISH), node_class)

    process.clock.forward(61)

    assert isinstance(restarted.launch_one(claim_of("a", *WISH), node_class), LaunchedInstance)


def test_an_instance_of_a_provider_id_belongs_to_that_claim_alone(process, restarted, node_class):
    """The process died while it wrote down what it had launched, and an instance has vanished.

    By tags alone the remaining instances would be assigned again, in their order.
    """
    lost, kept, waiting = sorted(claims(3), key=lambda claim: claim.uid)
    outcomes = process.launch(lost, kept, waiting, node_class=node_class)
    process.cloud.terminate(outcomes[0].provider_id)
    restarted.write_down(kept, outcomes[1].provider_id)
    process.clock.forward(6 * 60)  # until then ECS might only not show it yet

    again = restarted.launch(lost, waiting, node_class=node_class)

    ids = {outcome.provider_id for outcome in again}
    assert len(ids) == 2
    assert outcomes[1].provider_id not in ids
    assert outcomes[2].provider_id in ids
    listed = {each.provider_id: each for each in restarted.instances.list().instances}
    assert len(listed) == 3
    assert listed[outcomes[1].provider_id].token == kept.uid


def test_a_claim_with_a_lost_instance_is_assigned_no_other(process, restarted, node_class):
    """It names an instance that is gone, and goes itself; what is left is for those who name none."""
    gone, _, waiting = three = sorted(claims(3), key=lambda claim: claim.uid)
    outcomes = process.launch(*three, node_class=node_class)
    for claim, outcome in zip(three[:2], outcomes, strict=False):
        restarted.write_down(claim, outcome.provider_id)
    process.cloud.terminate(outcomes[0].provider_id)

    assert restarted.launch_one(waiting, node_class) == outcomes[2]
    tokens = [each.token for each in restarted.instances.list().instances]
    assert sorted(tokens) == sorted(claim.uid for claim in three if claim is not gone)


def test_a_second_instance_of_a_claim_is_surplus(process, restarted, node_class):
    """So that it is collected: two processes that see other prices may both launch for a claim."""
    claim = claim_of("a", *WISH)
    first = process.launch_one(claim, node_class)
    tags = dict(process.launched(first).tags)
    second = process.launch_one(claim_of("b", *WISH), node_class)
    process.launched(second).tags.clear()
    process.launched(second).tags.update(tags)
    restarted.write_down(claim, first.provider_id)

    listed = {each.provider_id: each.token for each in restarted.instances.list().instances}

    assert listed == {first.provider_id: claim.uid, second.provider_id: ""}


def test_instances_of_a_lost_reply_go_to_claims_without_a_provider_id(process, node_class):
    """A claim found its instance by the tags before the call was repeated for the others.

    New claims are not looked up, so that only the repeated call assigns.
    """
    now = process.clock.now()
    young = [claim_of(f"n{each}", *WISH, created=now) for each in range(3)]
    first, *others = sorted(young, key=lambda claim: claim.uid)
    process.cloud.lose_replies(GROUP, times=3)
    process.launch(first, *others, node_class=node_class)
    low, middle, high = (f"cn-hangzhou.{name}" for name in process.cloud.held().instances)
    process.write_down(first, middle)

    outcomes = process.launch(*others, node_class=node_class)

    assert {outcome.provider_id for outcome in outcomes} == {low, high}


def test_surplus_names_the_claims_of_its_launch(process, restarted, node_class):
    """It has no claim, and is reported as surplus of our own launch."""
    there = claims(3)
    outcomes = process.launch(*there, node_class=node_class)
    more = process.launch_one(claim_of("b", *WISH), node_class)
    surplus = process.launched(more)
    surplus.tags.clear()
    surplus.tags.update(process.launched(outcomes[0]).tags)
    for claim, outcome in zip(there, outcomes, strict=True):
        restarted.write_down(claim, outcome.provider_id)

    listed = {each.provider_id: each for each in restarted.instances.list().instances}

    assert listed[more.provider_id].token == ""
    assert set(listed[more.provider_id].launched_for) == {claim.uid for claim in there}
