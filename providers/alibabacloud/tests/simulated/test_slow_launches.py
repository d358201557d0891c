"""Launches of the simulated Alibaba Cloud that take longer than their callers wait."""

from __future__ import annotations

import pytest

TOKEN = {"ClientToken": "token-1"}
MINUTES = 60


@pytest.fixture(params=["group", "run"])
def launched(request, launch):
    """Launch two instances; return their ids, or raise."""
    if request.param == "group":
        return lambda **more: launch.group("ecs.g7.large", count=2, zones="b", **more).ids
    return lambda **more: launch.run(Amount=2, **more)


def test_a_slow_launch_is_answered_when_it_is_done(cloud, launched, code):
    cloud.behaviour.launch_seconds = 3 * MINUTES

    assert code(launched, **TOKEN) == "IdempotentProcessing"
    cloud.time.advance(2 * MINUTES)
    assert code(launched, **TOKEN) == "IdempotentProcessing"
    cloud.time.advance(MINUTES)

    assert sorted(launched(**TOKEN)) == sorted(each.id for each in cloud.living())


def test_a_slow_launch_without_a_token_is_never_answered(cloud, launched, code):
    cloud.behaviour.launch_seconds = MINUTES

    assert code(launched) == ""
    assert len(cloud.living()) == 2


def test_instances_of_a_slow_launch_are_described_one_after_the_other(
    cloud, launched, launch, code
):
    cloud.behaviour.launch_seconds = 2 * MINUTES
    code(launched, **TOKEN)

    seen = [len(launch.described())]
    for _ in range(2):
        cloud.time.advance(MINUTES)
        seen.append(len(launch.described()))

    assert seen == [0, 1, 2]


def test_deletions_and_shortages_are_answered_at_once(cloud, launched, launch, clients, code):
    (instance_id,) = launch.run()
    cloud.behaviour.launch_seconds = MINUTES

    clients.ecs.call(
        "DeleteInstances",
        {"RegionId": "cn-hangzhou", "InstanceId": [instance_id], "Force": True, **TOKEN},
    )
    cloud.capacity.limit_vcpus(0)

    assert cloud.living() == []
    assert code(launch.run, **TOKEN) == "QuotaExceed.ElasticQuota"


def test_a_quota_of_one_zone_leaves_the_others_open(cloud, launch, code):
    cloud.capacity.limit_vcpus(2, zone="cn-hangzhou-b")

    assert launch.run(zone="cn-hangzhou-b")
    assert code(launch.run, zone="cn-hangzhou-b") == "QuotaExceed.ElasticQuota"
    assert launch.run(zone="cn-hangzhou-g")
    assert launch.group("ecs.g7.large", count=2, zones="bg").places == {("ecs.g7.large", "g"): 2}


def test_tags_can_be_changed_by_other_callers(cloud, launch):
    cloud.behaviour.tags_added = (("acs:tag:createdby", "sub:1:web"),)
    (instance_id,) = launch.run()

    cloud.tag(instance_id, {"ack.aliyun.com": "c1", launch.owned["Key"]: None})

    (described,) = launch.described()
    assert {tag["TagKey"]: tag["TagValue"] for tag in described["Tags"]["Tag"]} == {
        "acs:tag:createdby": "sub:1:web",
        "ack.aliyun.com": "c1",
    }
