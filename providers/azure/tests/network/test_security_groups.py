"""The security group of the nodes is the only one that AKS made."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.network.cluster_network import (
    SecurityGroupReader,
    SeveralSecurityGroupsError,
)
from providers.azure.tests.arm.values import GROUP, SUBSCRIPTION
from providers.azure.tests.fake_arm import FakeArm, HandClock, unanswered

PATH = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Network"
    "/networkSecurityGroups"
)
LISTING = "networkSecurityGroups:list"


def group(name):
    return {"id": f"{PATH}/{name}", "name": name}


@pytest.fixture
def arm():
    arm = FakeArm()
    arm.put(PATH, [group("web"), group("AKS-AgentPool-12345678-NSG")])
    return arm


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def reader(arm, clock):
    return SecurityGroupReader(arm, clock, node_resource_group=GROUP)


def test_the_name_has_the_id_of_the_cluster(reader):
    found = reader.current()

    assert found.id == f"{PATH}/AKS-AgentPool-12345678-NSG"
    assert found.cluster_id == "12345678"


def test_a_cluster_may_have_none(arm, reader):
    arm.put(PATH, [group("aks-agentpool-1234-nsg"), group("my-aks-agentpool-12345678-nsg")])

    assert reader.current() is None


def test_two_are_an_error_that_names_both(arm, reader):  # case 78
    arm.put(PATH, [group("aks-agentpool-87654321-nsg"), group("aks-agentpool-12345678-nsg")])

    with pytest.raises(
        CloudProviderError,
        match=rf'"{GROUP}".*: aks-agentpool-12345678-nsg, aks-agentpool-87654321-nsg$',
    ):
        reader.current()


def test_one_that_is_removed_is_noticed_at_once(arm, reader):
    arm.put(PATH, [group("aks-agentpool-87654321-nsg"), group("aks-agentpool-12345678-nsg")])
    with pytest.raises(SeveralSecurityGroupsError):
        reader.current()
    arm.put(PATH, [group("aks-agentpool-12345678-nsg")])

    assert reader.current().cluster_id == "12345678"


def test_the_list_is_read_each_hour_and_kept_through_an_outage(arm, clock, reader):
    first = reader.current()
    clock.forward(minutes=59)
    reader.current()
    assert arm.count(LISTING) == 1
    arm.put(PATH, unanswered())
    clock.forward(minutes=2)
    assert reader.current() == first
    arm.put(PATH, [group("aks-agentpool-00000000-nsg")])
    assert reader.current().cluster_id == "00000000"
    assert arm.count(LISTING) == 3


def test_a_list_that_was_never_read_is_not_empty(arm, reader):
    arm.put(PATH, unanswered())

    with pytest.raises(CloudProviderError, match="500"):
        reader.current()
