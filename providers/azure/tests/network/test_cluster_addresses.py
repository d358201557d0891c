"""The GUID of the virtual network and the address of the DNS are found where they are not set."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError, NodeClassNotReadyError
from karpenter_core.provider.contract import ClusterFacts
from karpenter_provider_azure.network.cluster_network import VnetGuidReader, dns_service_ip
from providers.azure.tests.arm.values import SUBNET, settings_for
from providers.azure.tests.fake_arm import FakeArm, HandClock, unanswered

VNET = SUBNET.rpartition("/subnets/")[0]
GUID = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def arm():
    arm = FakeArm()
    arm.put(VNET, {"properties": {"resourceGuid": GUID}})
    return arm


def guid(arm, **settings):
    return VnetGuidReader(arm, HandClock(), settings_for(**settings))


def test_the_guid_is_read_once_for_an_overlay_network(arm):
    reader = guid(arm)

    assert reader.current() == reader.current() == GUID
    assert arm.calls == ["virtualNetworks:get"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"vnet_guid": "set"}, "set"),
        ({"network_plugin_mode": ""}, ""),
        ({"network_plugin": "none", "network_plugin_mode": ""}, ""),
    ],
)
def test_the_guid_is_not_read_where_it_is_set_or_not_needed(arm, settings, expected):
    assert guid(arm, **settings).current() == expected
    assert arm.calls == []


@pytest.mark.parametrize(
    ("answer", "settings", "message"),
    [
        ({"properties": {}}, {}, "has no resourceGuid; set --vnet-guid"),
        ({}, {}, "has no resourceGuid"),
        (unanswered(), {}, "500"),
        ({}, {"vnet_subnet_id": "nodes"}, "--vnet-subnet-id"),
    ],
)
def test_a_guid_that_cannot_be_had_is_an_error(arm, answer, settings, message):
    arm.put(VNET, answer)

    with pytest.raises(CloudProviderError, match=message):
        guid(arm, **settings).current()


@pytest.mark.parametrize(
    ("setting", "fact", "expected"),
    [
        ("10.9.0.10", "10.8.0.10", "10.9.0.10"),
        ("", "10.8.0.10", "10.8.0.10"),
        ("", "", "10.0.0.10"),
    ],
)
def test_the_dns_address_is_of_the_setting_the_service_or_the_default(setting, fact, expected):
    settings = settings_for(dns_service_ip=setting)

    assert dns_service_ip(settings, ClusterFacts(dns_ip=fact)) == expected


def test_an_unknown_dns_address_is_not_the_default():
    facts = ClusterFacts(unknown={"dns_ip": "forbidden"})

    with pytest.raises(NodeClassNotReadyError, match="forbidden; or set --dns-service-ip"):
        dns_service_ip(settings_for(), facts)
    assert dns_service_ip(settings_for(dns_service_ip="10.9.0.10"), facts) == "10.9.0.10"
