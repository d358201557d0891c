"""Subnets of NodeClasses are checked against the network of the cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import AuthError
from karpenter_provider_azure.arm.errors import ArmNotFoundError
from karpenter_provider_azure.network.subnets import (
    ClusterNetwork,
    SubnetReader,
    subnet_problem,
)
from providers.azure.tests.fake_arm import FakeArm, HandClock, forbidden

VNETS = "providers/Microsoft.Network/virtualNetworks"
OWN = f"/subscriptions/s1/resourceGroups/net/{VNETS}/vnet/subnets/nodes"
MANAGED = f"/subscriptions/s1/resourceGroups/MC_demo/{VNETS}/aks-vnet-12345678/subnets/aks-subnet"


def cluster(subnet=OWN):
    return ClusterNetwork(vnet_subnet_id=subnet, node_resource_group="MC_demo")


@pytest.mark.parametrize(
    "subnet",
    [
        OWN,
        OWN.lower(),
        OWN.replace("/nodes", "/more"),
        OWN.replace("/nodes", "/more").replace("/net/", "/NET/"),
    ],
)
def test_a_subnet_of_the_clusters_virtual_network_is_valid_in_any_case(subnet):
    assert subnet_problem(subnet, cluster()) == ""


@pytest.mark.parametrize(
    ("subnet", "part"),
    [
        (OWN.removesuffix("/nodes"), "is no resource id"),  # case 68
        (OWN.replace("subnets/nodes", "taps/nodes"), "of a Microsoft.Network/virtualNetworks/taps"),
        ("nodes", "is no resource id"),
        ("", "is no resource id"),
        (OWN + "/x/y", "subnets/x"),
        (OWN.replace("/vnet/", "/other/"), "not in the virtual network of the cluster"),  # case 69
        (OWN.replace("s1", "s2"), "not in the virtual network of the cluster"),
        (OWN.replace("/net/", "/web/"), "not in the virtual network of the cluster"),
    ],
)
def test_a_malformed_or_foreign_subnet_is_named_with_the_cause(subnet, part):
    problem = subnet_problem(subnet, cluster())

    assert part in problem
    assert f'"{subnet}"' in problem


@pytest.mark.parametrize(  # case 69
    "custom",
    [
        MANAGED.replace("aks-subnet", "mine"),
        MANAGED.replace("aks-subnet", "mine").replace("aks-vnet", "AKS-VNet"),
    ],
)
def test_a_virtual_network_that_aks_manages_takes_no_other_subnet(custom):
    assert "which AKS manages" in subnet_problem(custom, cluster(MANAGED))
    assert subnet_problem(MANAGED.upper().replace("SUBSCRIPTIONS", "x"), cluster(MANAGED))
    assert subnet_problem(MANAGED, cluster(MANAGED)) == ""


@pytest.mark.parametrize(
    ("subnet", "is_needed"),
    [
        (MANAGED, False),
        (MANAGED.replace("MC_demo", "mc_DEMO").replace("aks-vnet", "AKS-vnet"), False),
        (MANAGED.replace("MC_demo", "net"), True),
        (MANAGED.replace("12345678", "1234567"), True),
        (MANAGED.replace("aks-subnet", "mine"), True),
        (OWN, True),
    ],
)
def test_the_security_group_is_needed_outside_the_managed_subnet(subnet, is_needed):  # case 78
    assert cluster().needs_security_group(subnet) is is_needed


def test_an_id_of_another_kind_has_no_security_group():
    with pytest.raises(ValueError, match="is no resource id"):
        cluster().needs_security_group("nodes")


@given(st.text(max_size=60))
def test_every_text_has_an_answer(text):
    assert subnet_problem(text, cluster())
    assert subnet_problem(f"{OWN.removesuffix('nodes')}{text}", cluster("broken"))


def test_an_existing_subnet_is_read_once_a_minute():
    arm, clock = FakeArm(), HandClock()
    arm.put(OWN, {"name": "nodes"})
    reader = SubnetReader(arm, clock)

    reader.require(OWN)
    reader.require(OWN.upper())
    assert arm.count("virtualNetworks/subnets:get") == 1
    clock.forward(seconds=61)
    reader.require(OWN)
    assert arm.count("virtualNetworks/subnets:get") == 2


def test_a_missing_or_forbidden_subnet_is_read_again_at_once():
    arm = FakeArm()
    reader = SubnetReader(arm, HandClock())

    with pytest.raises(ArmNotFoundError):
        reader.require(OWN)
    arm.put(OWN, forbidden())
    with pytest.raises(AuthError):
        reader.require(OWN)
    arm.put(OWN, {})
    reader.require(OWN)
