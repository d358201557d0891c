"""Launches that ECS works on for minutes: their instances come late, and one by one."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import LaunchedInstance
from providers.alibabacloud.tests.launch.processes import (
    GROUP,
    ON_DEMAND,
    ONLY_LARGE,
    RUN,
    Process,
    claim_of,
)

MINUTE = 60


def claims(process, number):
    now = process.clock.now()
    return [claim_of(f"n{each}", ON_DEMAND, ONLY_LARGE, created=now) for each in range(number)]


def processes(cloud, clients, tmp_path, api):
    return [Process(cloud, clients, tmp_path, launch_api=api) for _ in range(2)]


@pytest.mark.parametrize("api", [GROUP, RUN])
def test_a_slow_launch_brings_each_claim_its_instance(cloud, clients, tmp_path, node_class, api):
    process, _ = processes(cloud, clients, tmp_path, api)
    waiting = claims(process, 4)
    cloud.behaviour.launch_seconds = 3 * MINUTE
    outcomes = []
    for _ in range(4):
        outcomes.append(process.launch(*waiting, node_class=node_class))
        process.clock.forward(MINUTE)

    assert {type(each) for call_outcomes in outcomes[:3] for each in call_outcomes} == {
        CloudProviderError
    }
    assert {type(each) for each in outcomes[3]} == {LaunchedInstance}
    assert len({each.provider_id for each in outcomes[3]}) == 4
    assert len(cloud.held().instances) == 4
    assert len({sent["ClientToken"] for sent in process.sent(api)}) == 1


@pytest.mark.parametrize("api", [GROUP, RUN])
def test_a_new_leader_does_not_repeat_a_slow_launch(cloud, clients, tmp_path, node_class, api):
    """It sees some of the instances; which claims those are for is known when all are there."""
    first, second = processes(cloud, clients, tmp_path, api)
    waiting = claims(first, 4)
    cloud.behaviour.launch_seconds = 4 * MINUTE
    first.launch(*waiting, node_class=node_class)
    for _ in range(10):
        second.clock.forward(MINUTE)
        outcomes = second.launch(*waiting, node_class=node_class)
        for claim, outcome in zip(waiting, outcomes, strict=True):
            if isinstance(outcome, LaunchedInstance):
                second.write_down(claim, outcome.provider_id)

    assert {type(each) for each in outcomes} == {LaunchedInstance}
    assert len({each.provider_id for each in outcomes}) == 4
    assert len(cloud.held().instances) == 4
