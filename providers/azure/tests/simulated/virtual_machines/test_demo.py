"""The demo's cloud: launches, instances, interruptions and what is left."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import OfferingKey
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_simulated_azure.demo import AzureDemo, simulated_cloud


@pytest.fixture
def demo(cloud):
    return AzureDemo(cloud)


def offering(zone, capacity_type="spot", instance_type="Standard_D16s_v5"):
    return OfferingKey(instance_type=instance_type, zone=zone, capacity_type=capacity_type)


def test_the_node_class_moves_from_one_image_family_to_another(demo):
    older = AKSNodeClass.model_validate({"spec": demo.node_class_spec})
    newer = AKSNodeClass.model_validate({"spec": {**demo.node_class_spec, **demo.newer_image}})
    assert older.spec.image_family != newer.spec.image_family


def test_a_launch_record_lists_sold_out_and_launched_offerings(azure, demo):
    demo.sell_out(offering("westus2-1"))
    azure.put("aks-a", size="Standard_D16s_v5", zone="1", spot=True)
    azure.put("aks-b", size="Standard_D16s_v5", zone="2", spot=True)
    refused, bought = demo.launch_calls()
    assert refused.sold_out == [offering("westus2-1")]
    assert bought.bought == {offering("westus2-2"): 1}
    (instance,) = demo.instances().values()
    assert instance.offering == offering("westus2-2")
    assert instance.price_per_hour > 0
    assert len(demo.list_resources()) == 3


def test_an_interrupted_instance_ends_at_its_announced_time(azure, cloud, demo):
    azure.put(spot=True)
    (provider_id,) = demo.instances()
    ends_at = demo.interrupt(provider_id)
    assert timedelta(seconds=25) < ends_at - cloud.time() <= timedelta(seconds=30)
    cloud.time.advance(30)
    assert not demo.instances()
    assert not demo.list_resources()


def test_the_environment_leads_a_provider_to_it():
    with simulated_cloud() as demo:
        environment = demo.environment
    assert environment["AZURE_PRICING_URL"].startswith("https://127.0.0.1:")
    assert "CLUSTER_NAME" not in environment
    assert demo.currency == "USD"
