"""An uncertain launch is repeated with its token until ECS answers."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
    ThrottledError,
)
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_provider_alibabacloud.codes import ApiError
from karpenter_provider_alibabacloud.sdk import ClientLimits
from providers.alibabacloud.tests.launch.processes import (
    GROUP,
    ON_DEMAND,
    RUN,
    ZONE_B,
    Process,
    claim_of,
)
from providers.alibabacloud.tests.test_sdk import clients_of

SAYS_NOTHING_WAS_DONE = (
    AuthError,
    InsufficientCapacityError,
    LaunchFailedError,
    ThrottledError,
)
IN_PROGRESS = ("IdempotentProcessing", "LastTokenProcessing")


def claims(process, number):
    """New claims, whose instances are not searched in a listing."""
    now = process.clock.now()
    return [claim_of(f"n{each}", ON_DEMAND, created=now) for each in range(number)]


def launch_one(process, node_class):
    (claim,) = claims(process, 1)
    return process.launch_one(claim, node_class)


def be_in_progress(process, code, times):
    process.cloud.behaviour.token_in_progress_code = code
    process.cloud.behaviour.tokens_in_progress = times


def change_prices(process):
    """Have the next choice be another one: what was cheapest is sold out as far as we know."""
    process.unavailable_offerings.mark_subnet(
        process.cloud.world.vswitches[ZONE_B], now=process.clock.now()
    )


def instances(process):
    return process.cloud.held().instances


@pytest.mark.parametrize("code", IN_PROGRESS)
@pytest.mark.parametrize("api", [GROUP, RUN])
def test_a_token_in_progress_is_repeated_until_it_is_answered(
    cloud, clients, tmp_path, node_class, api, code
):
    process = Process(cloud, clients, tmp_path, launch_api=api)
    cloud.lose_replies(api)
    be_in_progress(process, code, 3)

    outcomes = process.launch(*claims(process, 5), node_class=node_class)

    assert len({outcome.provider_id for outcome in outcomes}) == 5
    assert len(instances(process)) == 5
    assert len({sent["ClientToken"] for sent in process.sent(api)}) == 1


@pytest.mark.parametrize("code", IN_PROGRESS)
def test_a_token_in_progress_is_repeated_with_the_next_launch_of_its_claims(
    process, node_class, code
):
    """Other types would be chosen by then; twice in a row, as one instance is not listed."""
    process.cloud.lose_replies(GROUP)
    be_in_progress(process, code, 25)
    asked = claims(process, 5)
    first = process.launch(*asked, node_class=node_class)
    change_prices(process)
    second = process.launch(*asked[:4], node_class=node_class)
    third = process.launch(*asked, node_class=node_class)

    assert {type(outcome) for outcome in (*first, *second)} == {CloudProviderError}
    assert all(isinstance(outcome, LaunchedInstance) for outcome in third)
    assert len(instances(process)) == 5
    assert len({sent["ClientToken"] for sent in process.sent()}) == 1


def test_a_lost_reply_is_remembered_through_throttling(process, node_class):
    """Five refusals, then another price: the first call is repeated, and nothing else is bought."""
    process.cloud.lose_replies(GROUP)
    with process.cloud.fail(GROUP, code="Throttling.User", times=None):
        refused = [launch_one(process, node_class) for _ in range(5)]
    change_prices(process)

    outcome = launch_one(process, node_class)

    assert not any(isinstance(each, SAYS_NOTHING_WAS_DONE) for each in refused)
    assert isinstance(outcome, LaunchedInstance)
    assert len(instances(process)) == 1


@pytest.mark.parametrize(
    "code",
    ["Forbidden.RAM", "InvalidParameter", "Account.Arrearage", "SomethingNew", "Throttling.User"],
)
def test_a_refusal_after_a_lost_reply_does_not_say_that_nothing_was_done(process, node_class, code):
    with ExitStack() as stack:
        process.cloud.lose_replies(GROUP)
        stack.enter_context(process.cloud.fail(GROUP, code=code, status=403, times=None))
        refused = launch_one(process, node_class)
    change_prices(process)

    outcome = launch_one(process, node_class)

    assert not isinstance(refused, SAYS_NOTHING_WAS_DONE)
    assert isinstance(outcome, LaunchedInstance)
    assert len(instances(process)) == 1


def test_a_refusal_of_the_first_try_is_still_a_refusal(process, node_class):
    """Nothing was done, and the core may go on at once."""
    with process.cloud.fail(GROUP, code="Throttling.User", times=None):
        throttled = launch_one(process, node_class)
    with process.cloud.fail(GROUP, code="Forbidden.RAM", status=403):
        forbidden = launch_one(process, node_class)

    assert isinstance(throttled, ThrottledError)
    assert isinstance(forbidden, AuthError)


USED_UP = [
    "QuotaExceed.ElasticQuota",
    "QuotaExceed.DiskCapacity",
    "InvalidVSwitchId.IpNotEnough",
    "OperationDenied.NoStock",
]


@pytest.mark.parametrize("code", USED_UP)
@pytest.mark.parametrize("api", [GROUP, RUN])
def test_a_repetition_refused_by_the_quota_of_its_first_try_launches_once(
    cloud, clients, tmp_path, node_class, api, code
):
    """The first try's instances took the rest of the quota; they are found once ECS shows them."""
    process = Process(cloud, clients, tmp_path, launch_api=api)
    cloud.behaviour.invisible_seconds = 50
    waiting = claims(process, 3)
    cloud.lose_replies(api)
    with cloud.fail(api, code=code, status=403, times=None):
        refused = []
        for _ in range(4):
            refused += process.launch(*waiting, node_class=node_class)
            process.clock.forward(10)
    change_prices(process)
    cloud.behaviour.invisible_seconds = 0
    with cloud.fail(api, code=code, status=403, times=None):
        outcomes = process.launch(*waiting, node_class=node_class)

    assert not any(isinstance(each, SAYS_NOTHING_WAS_DONE) for each in refused)
    assert len({outcome.provider_id for outcome in outcomes}) == 3
    assert len(instances(process)) == 3


@pytest.mark.parametrize("code", USED_UP)
def test_a_shortage_answers_a_repeated_token_once_an_instance_would_be_seen(
    process, node_class, code
):
    """The first try was never carried out: the core may ask for something else."""
    waiting = claims(process, 1)
    process.cloud.cut_off(GROUP, times=3)
    process.launch(*waiting, node_class=node_class)
    with process.cloud.fail(GROUP, code=code, status=403, times=None):
        (soon,) = process.launch(*waiting, node_class=node_class)
        process.clock.forward(61)
        (short,) = process.launch(*waiting, node_class=node_class)

    assert not isinstance(soon, SAYS_NOTHING_WAS_DONE)
    assert isinstance(short, InsufficientCapacityError)
    assert not instances(process)


@pytest.mark.parametrize("code", [USED_UP[0], "InvalidSpotPriceLimit.LowerThanPublicPrice"])
def test_a_shortage_that_no_instance_causes_answers_a_repeated_token_at_once(
    process, node_class, code
):
    """Spot is as dear for the first try as for the second; and a first try is no repetition."""
    if code not in USED_UP:
        process.cloud.cut_off(GROUP, times=3)
        launch_one(process, node_class)
    with process.cloud.fail(GROUP, code=code, status=403, times=None):
        assert isinstance(launch_one(process, node_class), InsufficientCapacityError)


def test_launches_have_a_read_timeout_of_their_own(cloud):
    """ECS answers a launch when its instances are made, which takes longer than a listing."""
    limits = ClientLimits(read_seconds=0.2, launch_read_seconds=5)
    cloud.behaviour.latency_seconds = 0.5
    with clients_of(cloud, limits=limits) as clients, pytest.raises(ApiError) as caught:
        clients.ecs.call(
            GROUP, {"RegionId": cloud.account.region, "AutoProvisioningGroupType": "instant"}
        )

    assert caught.value.code.startswith("MissingParameter")  # it was answered
