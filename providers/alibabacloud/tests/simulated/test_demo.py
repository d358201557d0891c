"""Tests the demo's cloud: launches, instances and terminations."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import OfferingKey
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_simulated_alibabacloud.demo import AlibabaCloudDemo, simulated_cloud


@pytest.fixture
def demo(cloud):
    return AlibabaCloudDemo(cloud)


def offering(instance_type, zone, capacity_type):
    return OfferingKey(
        instance_type=instance_type, zone=f"cn-hangzhou-{zone}", capacity_type=capacity_type
    )


def test_the_node_class_moves_from_an_image_that_there_is_to_another(cloud, demo):
    older = ECSNodeClass.model_validate({"spec": demo.node_class_spec})
    newer = ECSNodeClass.model_validate({"spec": {**demo.node_class_spec, **demo.newer_image}})

    versions = [each.spec.image_selector_terms[0].parsed_alias.version for each in (older, newer)]

    assert versions == sorted(set(versions))
    names = " ".join(image.name for image in cloud.images.all)
    assert all(version in names for version in versions)


def test_a_launch_record_lists_sold_out_and_launched_types(cloud, demo, launch):
    cloud.prices.set_spot("ecs.c7.large", "cn-hangzhou-b", 0.01)
    demo.sell_out(offering("ecs.c7.large", "b", "spot"))

    launch.group("ecs.c7.large", "ecs.g7.large", spot=True, count=2, zones="b")

    (purchase,) = demo.launch_calls()
    assert purchase.action == "CreateAutoProvisioningGroup"
    assert purchase.sold_out == [offering("ecs.c7.large", "b", "spot")]
    assert purchase.bought == {offering("ecs.g7.large", "b", "spot"): 2}
    instances = demo.instances()
    assert [it.offering for it in instances.values()] == [*purchase.bought] * 2
    assert len(demo.list_resources()) == 3


def test_an_interrupted_instance_ends_at_its_announced_time(cloud, demo, launch):
    launch.group("ecs.g7.large", spot=True, zones="b")
    (name,) = demo.instances()

    end = demo.interrupt(name)

    assert end - cloud.time() > timedelta(minutes=4)
    cloud.time.advance((end - cloud.time()).total_seconds() + 1)
    assert demo.instances() == {}
    assert not demo.list_resources()


def test_the_environment_leads_a_provider_to_it():
    with simulated_cloud() as demo:
        environment = demo.environment

    assert environment["ALIBABA_ENDPOINT_ECS"].startswith("127.0.0.1:")
    assert environment["CLUSTER_ID"]
    assert demo.currency == "CNY"
