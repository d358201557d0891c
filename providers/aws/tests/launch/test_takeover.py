"""Fleets that EC2 shows instance by instance, while another process takes over their claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_provider_aws.described_instances import InstanceReader
from providers.aws.tests.launch.processes import ON_DEMAND, Process, claim_of

MINUTE = 60


class CloudClock:
    """The clock of a process that goes with the time of the simulated AWS."""

    def __init__(self, aws):
        self.now = aws.time

    def monotonic(self):
        return self.now().timestamp()


@pytest.fixture
def start(aws, clients):
    """Start a process; each knows nothing of the others."""
    return lambda: Process(aws, clients, CloudClock(aws))


def wave(count, *more):
    return [claim_of(f"web-{number}", ON_DEMAND, *more) for number in range(count)]


def written_down(process, claims, outcomes):
    for claim, outcome in zip(claims, outcomes, strict=True):
        if isinstance(outcome, LaunchedInstance):
            process.write_down(claim, outcome.provider_id)


def test_a_new_leader_does_not_repeat_a_slow_launch(aws, start, node_class):
    """It sees some of the instances; which claims those are for is known when all are there."""
    first, second = start(), start()
    aws.behaviour.slow_share, aws.behaviour.slow_seconds = 0.5, 4 * MINUTE
    claims = wave(4)
    with aws.lose_replies("CreateFleet", times=None):
        first.launch(*claims, node_class=node_class)
    error_counts = []
    for _ in range(5):
        outcomes = second.launch(*claims, node_class=node_class)
        written_down(second, claims, outcomes)
        error_counts.append([type(outcome) for outcome in outcomes].count(CloudProviderError))
        aws.time.advance(MINUTE)

    assert error_counts == [2, 2, 2, 2, 0]
    assert len({outcome.provider_id for outcome in outcomes}) == 4
    assert len(aws.living()) == 4


def test_a_claim_that_a_fleet_served_not_is_launched_for_after_five_minutes(aws, start, node_class):
    """The process with the fleet's answer is gone; nothing else shows that no more will come."""
    claims = wave(3, ("node.kubernetes.io/instance-type", "m5.large"))
    aws.capacity.limit_vcpus(4)
    start().launch(*claims, node_class=node_class)
    aws.capacity.limit_vcpus(64)
    assert len(aws.living()) == 2
    restarted = start()

    waiting = restarted.launch(*claims, node_class=node_class)
    aws.time.advance(5 * MINUTE)
    outcomes = restarted.launch(*claims, node_class=node_class)

    assert sorted(type(outcome).__name__ for outcome in waiting) == [
        "CloudProviderError",
        "LaunchedInstance",
        "LaunchedInstance",
    ]
    assert {type(outcome) for outcome in outcomes} == {LaunchedInstance}
    assert len(aws.living()) == 3


def test_a_process_with_the_answer_of_a_fleet_launches_the_rest_at_once(aws, start, node_class):
    claims = wave(3, ("node.kubernetes.io/instance-type", "m5.large"))
    aws.capacity.limit_vcpus(4)
    process = start()
    process.launch(*claims, node_class=node_class)
    aws.capacity.limit_vcpus(64)
    process.unavailable_offerings.flush()

    outcomes = process.launch(*claims, node_class=node_class)

    assert {type(outcome) for outcome in outcomes} == {LaunchedInstance}
    assert len(aws.living()) == 3


def test_a_fleet_that_is_shown_whole_keeps_no_claim_waiting(aws, start, node_class):
    first, second = claims = wave(2)
    outcomes = start().launch(*claims, node_class=node_class)
    restarted = start()
    restarted.write_down(first, outcomes[0].provider_id)
    restarted.write_down(second, "aws:///us-east-1a/i-0")  # so neither is its own

    again = restarted.launch_one(second, node_class)

    assert isinstance(again, LaunchedInstance)
    assert len(aws.living()) == 3


def test_an_unknown_launch_time_counts_as_old(aws, start, node_class, monkeypatch):
    claims = wave(4)
    aws.behaviour.slow_share, aws.behaviour.slow_seconds = 0.5, 4 * MINUTE
    start().launch(*claims, node_class=node_class)
    restarted = start()
    of_claims = restarted.reader.of_claims

    def undated(_reader, uids):
        return tuple(replace(each, launched_at=None) for each in of_claims(uids))

    monkeypatch.setattr(InstanceReader, "of_claims", undated)

    outcomes = restarted.launch(*claims, node_class=node_class)

    assert {type(outcome) for outcome in outcomes} == {LaunchedInstance}
