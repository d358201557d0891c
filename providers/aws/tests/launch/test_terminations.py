"""Tests that a protected instance holds back no other of its batch."""

from __future__ import annotations

import pytest

from karpenter_core.errors import AuthError, CloudProviderError, TerminationRefusedError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_provider_aws.described_instances import parse_provider_id
from karpenter_provider_aws.sdk import ClientLimits, CloudClients
from karpenter_simulated_aws.testing import attempts
from providers.aws.tests.launch.processes import ON_DEMAND, claim_of

STARTED = TerminationStatus.STARTED


@pytest.fixture
def clients(aws):
    """Clients that try once: a call that is refused is not throttled."""
    made = CloudClients(
        region=aws.account.region, limits=ClientLimits(read_seconds=10, retries=attempts(1))
    )
    yield made
    made.close()


@pytest.fixture(autouse=True)
def slow_end(aws):
    """Have instances stay `shutting-down`."""
    aws.behaviour.terminating_seconds = 3600


def launched(process, node_class, count):
    """Launch instances; return their provider IDs."""
    claims = [claim_of(f"batch-{number:03}", ON_DEMAND) for number in range(count)]
    return [outcome.provider_id for outcome in process.launch(*claims, node_class=node_class)]


def living(aws, found):
    """Return the instances that are not terminating."""
    return [each for each in found if aws.instance(each).ends_at is None]


def name_of(provider_id):
    return parse_provider_id(provider_id)[1]


def test_a_protected_instance_is_named_and_the_rest_of_its_batch_ends(aws, process, node_class):
    found = launched(process, node_class, 120)
    aws.protect(found[17])

    outcomes = dict(zip(found, process.instances.terminate(found), strict=True))

    refused = outcomes.pop(found[17])
    assert isinstance(refused, TerminationRefusedError)
    assert name_of(found[17]) in str(refused)
    assert "disableApiTermination" in str(refused)
    assert set(outcomes.values()) == {STARTED}
    assert living(aws, found) == [found[17]]
    assert aws.calls.count("TerminateInstances") == 2


def test_an_instance_that_no_policy_permits_to_end_is_named_and_the_rest_ends(
    aws, process, node_class
):
    found = launched(process, node_class, 60)
    aws.forbid_termination(found[3])
    aws.forbid_termination(found[44])

    outcomes = dict(zip(found, process.instances.terminate(found), strict=True))

    for bad in (found[3], found[44]):
        refused = outcomes.pop(bad)
        assert isinstance(refused, TerminationRefusedError)
        assert "ec2:TerminateInstances" in str(refused)
        assert name_of(bad) in str(refused)
        assert "tags" in str(refused)
    assert set(outcomes.values()) == {STARTED}
    assert aws.calls.count("TerminateInstances") == 3


def test_a_refused_instance_that_ec2_does_not_name_is_isolated_by_halving(aws, process, node_class):
    found = launched(process, node_class, 64)
    bad = name_of(found[21])
    aws.fail(
        "TerminateInstances",
        code="OperationNotPermitted",
        message="an instance of these may not be terminated",
        times=None,
        where=lambda parameters: bad in parameters["InstanceIds"],
    )

    outcomes = dict(zip(found, process.instances.terminate(found), strict=True))

    assert bad in str(outcomes.pop(found[21]))
    assert set(outcomes.values()) == {STARTED}
    assert aws.calls.count("TerminateInstances") <= 13  # twice the seven halvings of 64, less one


def test_a_refused_instance_costs_later_batches_no_call_of_theirs(aws, process, node_class):
    """The next batch goes without it, and it is asked for alone: it ends once it may."""
    found = launched(process, node_class, 6)
    aws.protect(found[0])
    process.instances.terminate(found[:3])
    aws.calls.clear()

    outcomes = process.instances.terminate([found[0], *found[3:]])

    assert isinstance(outcomes[0], CloudProviderError)
    assert outcomes[1:] == [STARTED] * 3
    assert [call.outcome for call in aws.calls.of("TerminateInstances")] == [
        "ok",
        "OperationNotPermitted",
    ]
    aws.protect(found[0], protected=False)
    assert process.instances.terminate([found[0]]) == [STARTED]
    assert living(aws, found) == []


def test_a_denied_termination_takes_few_calls_and_gives_every_instance_its_error(
    aws, process, node_class
):
    found = launched(process, node_class, 120)
    for each in found:
        aws.forbid_termination(each)

    for _ in range(3):
        aws.calls.clear()
        outcomes = process.instances.terminate(found)
        assert all(isinstance(outcome, CloudProviderError) for outcome in outcomes)
        assert aws.calls.count("TerminateInstances") <= 32

    for each in found:
        aws.forbid_termination(each, forbidden=False)
    for _ in range(10):
        process.instances.terminate(found)
    assert living(aws, found) == []


def test_many_protected_instances_keep_the_others_alive_for_a_few_attempts_only(
    aws, process, node_class
):
    """Each attempt goes without those that were refused before."""
    found = launched(process, node_class, 120)
    protected = found[::3]
    for each in protected:
        aws.protect(each)

    attempts = 0
    while len(living(aws, found)) > len(protected):
        process.instances.terminate(found)
        attempts += 1
        assert attempts <= 4

    assert sorted(living(aws, found)) == sorted(protected)


def test_throttling_ends_the_attempt_without_an_error_per_instance(aws, process, node_class):
    found = launched(process, node_class, 4)
    aws.fail("TerminateInstances", code="RequestLimitExceeded", status=503, times=1)

    outcomes = process.instances.terminate(found)

    assert all(isinstance(outcome, CloudProviderError) for outcome in outcomes)
    assert aws.calls.count("TerminateInstances") == 1
    assert process.instances.terminate(found) == [STARTED] * 4
    assert aws.calls.count("TerminateInstances") == 2


def test_expired_credentials_are_no_error_of_an_instance(aws, process, node_class):
    found = launched(process, node_class, 4)
    aws.fail("TerminateInstances", code="ExpiredToken", times=1)

    outcomes = process.instances.terminate(found)

    assert all(isinstance(outcome, AuthError) for outcome in outcomes)
    assert process.instances.terminate(found) == [STARTED] * 4
    assert aws.calls.count("TerminateInstances") == 2
