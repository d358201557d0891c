"""Calls with an unknown outcome are repeated unchanged, and are no refusal."""

from __future__ import annotations

import pytest

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
)
from karpenter_core.provider.contract import LaunchedInstance, TerminationStatus
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from providers.aws.tests.given_answers import PAGE, answering
from providers.aws.tests.launch.processes import ON_DEMAND, claim_of

SERVER_FAULTS = [
    ("InternalError", 500),
    ("InternalFailure", 500),
    ("ServerInternal", 500),
    ("ServiceUnavailable", 503),
    ("Unavailable", 503),
    ("SomethingNew", 502),
]


def wave(count):
    return [claim_of(f"web-{number}", ON_DEMAND) for number in range(count)]


def fleets(aws):
    """Return the parameters of each fleet call, the DryRuns left out."""
    return [call.parameters for call in aws.calls.of("CreateFleet")]


@pytest.mark.parametrize(("code", "status"), SERVER_FAULTS)
def test_a_fault_of_the_server_is_no_refusal_and_the_call_is_repeated_word_for_word(
    aws, process, node_class, code, status
):
    """EC2 may have launched all the same; prices that change meanwhile change nothing of the call."""
    claims = wave(2)
    with aws.fail("CreateFleet", code=code, status=status, times=None):
        outcomes = process.launch(*claims, node_class=node_class)
    assert {type(outcome) for outcome in outcomes} == {CloudProviderError}
    process.prices.update_on_demand({"m5.large": 0.001, "t3.large": 9.0}, now=process.clock.now())
    again = process.launch(*claims, node_class=node_class)

    assert {type(outcome) for outcome in again} == {LaunchedInstance}
    assert all(request == fleets(aws)[0] for request in fleets(aws))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("InvalidParameterValue", 400),
        ("IncorrectState", 400),
        ("IdempotentParameterMismatch", 400),
        ("InvalidSubnetID.NotFound", 400),
        ("MaxFleetCountExceeded", 400),
        ("InsufficientInstanceCapacity", 500),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", 403),
    ],
)
def test_after_a_lost_reply_a_refusal_is_not_taken_for_nothing_launched(
    aws, process, node_class, code, status
):
    aws.behaviour.invisible_seconds = 60
    claims = wave(3)
    with aws.lose_replies("CreateFleet", times=None):
        process.launch(*claims, node_class=node_class)
    with aws.fail("CreateFleet", code=code, status=status, times=None):
        refused = process.launch(*claims, node_class=node_class)
    assert {type(outcome) for outcome in refused} == {CloudProviderError}

    outcomes = process.launch(*claims, node_class=node_class)

    assert {type(outcome) for outcome in outcomes} == {LaunchedInstance}
    assert len(aws.living()) == 3


def test_a_first_call_whose_token_was_used_is_uncertain(aws, process, make_process, node_class):
    """A process that was restarted remembers no call; the instances are shown in the end."""
    aws.behaviour.invisible_seconds = 60
    claims = wave(2)
    with aws.lose_replies("CreateFleet", times=None):
        process.launch(*claims, node_class=node_class)
    restarted = make_process()
    with aws.fail("CreateFleet", code="IdempotentParameterMismatch", times=None):
        refused = restarted.launch(*claims, node_class=node_class)
    assert {type(outcome) for outcome in refused} == {CloudProviderError}
    aws.time.advance(60)

    outcomes = restarted.launch(*claims, node_class=node_class)

    assert {type(outcome) for outcome in outcomes} == {LaunchedInstance}
    assert len(aws.living()) == 2


def test_refusals_of_a_repeated_call_do_not_keep_it_in_memory(aws, process, clock, node_class):
    aws.behaviour.invisible_seconds = 3600
    claim = claim_of("lost", ON_DEMAND)
    with aws.lose_replies("CreateFleet", times=None):
        process.launch_one(claim, node_class)
    with aws.fail("CreateFleet", code="IncorrectState", times=None):
        for _ in range(2):
            clock.forward(minutes=2)
            process.launch_one(claim, node_class)
            assert process.launcher.executor.unanswered_calls([claim.uid])
    clock.forward(minutes=2)

    assert not process.launcher.executor.unanswered_calls([claim.uid])


def test_a_refusal_after_a_lost_reply_within_one_call_is_not_taken_for_nothing_launched(
    aws, process, node_class
):
    """The SDK must not repeat the call by itself: it reports the last answer alone."""
    aws.behaviour.invisible_seconds = 60
    aws.lose_replies("CreateFleet", times=1)
    with aws.fail("CreateFleet", code="InvalidParameterValue", times=None):
        outcome = process.launch_one(claim_of("once", ON_DEMAND), node_class)

    assert type(outcome) is CloudProviderError
    assert len(aws.living()) == 1
    assert isinstance(process.launch_one(claim_of("once", ON_DEMAND), node_class), LaunchedInstance)
    assert len(aws.living()) == 1


def test_a_fleet_that_is_answered_after_minutes_is_launched_once(aws, process, node_class):
    aws.behaviour.invisible_seconds = 3600
    aws.behaviour.fleet_seconds = 240
    claims = wave(2)

    for _ in range(2):  # a broken connection first, then a token that is in progress
        waiting = process.launch(*claims, node_class=node_class)
        assert {type(outcome) for outcome in waiting} == {CloudProviderError}
    aws.time.advance(240)
    outcomes = process.launch(*claims, node_class=node_class)

    assert {type(outcome) for outcome in outcomes} == {LaunchedInstance}
    assert len(aws.living()) == 2
    assert "IncorrectState" in [call.outcome for call in aws.calls.of("CreateFleet")]


def test_late_instances_of_a_fleet_are_assigned_as_before(aws, process, make_process, node_class):
    """A process that is started meanwhile sees a part of the fleet, and the claims of the others."""
    aws.behaviour.slow_share, aws.behaviour.slow_seconds = 0.5, 300
    claims = wave(4)
    outcomes = process.launch(*claims, node_class=node_class)
    restarted = make_process()
    for claim, outcome in zip(claims, outcomes, strict=True):
        restarted.write_down(claim, outcome.provider_id)

    shown = {each.provider_id: each.token for each in restarted.instances.list().instances}
    told = {each.provider_id: each.token for each in process.instances.list().instances}

    by_claim = {o.provider_id: c.uid for c, o in zip(claims, outcomes, strict=True)}
    assert len(shown) == 2
    assert shown.items() <= by_claim.items()
    assert told == by_claim, "own launches are listed although EC2 lists them late"


def test_a_lack_of_stock_is_definite_though_its_status_is_that_of_a_fault(aws, process, node_class):
    """EC2 counts it among its server errors; waiting for another answer would bring none."""
    with aws.fail("CreateFleet", code="InsufficientInstanceCapacity", status=500, times=None):
        outcome = process.launch_one(claim_of("none", ON_DEMAND), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert outcome.offerings
    assert isinstance(process.launch_one(claim_of("none", ON_DEMAND), node_class), LaunchedInstance)
    tokens = [request["ClientToken"] for request in fleets(aws)]
    assert len(set(tokens)) == 2, "requested with a new token, not repeated"


@pytest.mark.parametrize(("code", "status"), SERVER_FAULTS)
def test_a_fleet_without_a_launch_template_is_not_sent_and_so_is_not_repeated(
    aws, process, node_class, code, status
):
    claim = claim_of("bare", ON_DEMAND)
    with aws.fail("CreateLaunchTemplate", code=code, status=status, times=None):
        outcome = process.launch_one(claim, node_class)

    assert isinstance(outcome, CloudProviderError)
    assert fleets(aws) == []
    assert not process.launcher.executor.unanswered_calls([claim.uid])


@pytest.fixture
def silent_fleets(clients):
    """Fleets that tell neither of instances nor of errors."""

    def clear(parsed, **_):
        parsed.update(Instances=[], Errors=[])

    events = clients.ec2.meta.events
    events.register("after-call.ec2.CreateFleet", clear)
    yield
    events.unregister("after-call.ec2.CreateFleet", clear)


def test_an_empty_answer_after_a_lost_call_is_an_answer(aws, process, node_class, request):
    """The next attempt is a new call; the token of the first would bring nothing again."""
    claim = claim_of("first", ON_DEMAND)
    with aws.fail("CreateFleet", code="InternalError", status=500, times=None):
        process.launch_one(claim, node_class)
    assert process.launcher.executor.unanswered_calls([claim.uid])
    aws.capacity.sell_out()
    request.getfixturevalue("silent_fleets")
    outcome = process.launch_one(claim, node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert {key.capacity_type for key in outcome.offerings} == {"on-demand"}
    assert not process.launcher.executor.unanswered_calls([claim.uid])
    process.launch_one(claim, node_class)
    tokens = [fleet["ClientToken"] for fleet in fleets(aws)]
    assert tokens[0] == tokens[1] != tokens[2]


def test_a_page_of_a_proxy_is_not_taken_for_a_shortage(aws, process, node_class):
    """The instances are there: their NodeClaims would be deleted, and no offering would be left."""
    claims = wave(2)
    with answering(aws, "CreateFleet", PAGE):
        outcomes = process.launch(*claims, node_class=node_class)
    assert {type(outcome) for outcome in outcomes} == {CloudProviderError}

    again = process.launch(*claims, node_class=node_class)

    assert {type(outcome) for outcome in again} == {LaunchedInstance}
    assert len(aws.living()) == 2


def test_a_page_of_a_proxy_says_nothing_of_instances(aws, process, node_class):
    found = [each.provider_id for each in process.launch(*wave(2), node_class=node_class)]
    with answering(aws, "DescribeInstances", PAGE):
        with pytest.raises(CloudProviderError, match="ec2:DescribeInstances"):
            process.instances.list()
        with pytest.raises(CloudProviderError, match="ec2:DescribeInstances"):
            process.instances.fetch(found)


@pytest.mark.parametrize("code", ["InvalidParameterValue", "IncorrectState"])
def test_a_mistake_in_a_first_call_is_a_failure(aws, process, node_class, code):
    with aws.fail("CreateFleet", code=code, times=None):
        outcome = process.launch_one(claim_of("wrong", ON_DEMAND), node_class)

    assert isinstance(outcome, LaunchFailedError)


@pytest.mark.parametrize(("code", "status"), SERVER_FAULTS)
def test_a_server_fault_ends_no_instance_and_is_no_error_of_one(
    aws, process, node_class, code, status
):
    found = [outcome.provider_id for outcome in process.launch(*wave(3), node_class=node_class)]
    with aws.fail("TerminateInstances", code=code, status=status, times=None):
        outcomes = process.instances.terminate(found)
    calls = aws.calls.count("TerminateInstances")

    assert {type(outcome) for outcome in outcomes} == {UncertainCallError}
    assert calls == 3, "the attempts of one call, and no smaller batches"
    assert process.instances.terminate(found) == [TerminationStatus.STARTED] * 3


def test_a_signature_that_has_expired_launched_nothing_and_gives_no_claim_up(
    aws, process, node_class
):
    """The clock of the machine is wrong, as credentials may be: another NodeClaim would fare no better."""
    claims = wave(2)
    with aws.fail("CreateFleet", code="RequestExpired", message="Request has expired.", times=None):
        outcomes = process.launch(*claims, node_class=node_class)
    assert {type(outcome) for outcome in outcomes} == {AuthError}
    assert all("clock of this machine" in str(outcome) for outcome in outcomes)

    again = process.launch(*claims, node_class=node_class)

    assert {type(outcome) for outcome in again} == {LaunchedInstance}
    assert len(aws.living()) == 2
