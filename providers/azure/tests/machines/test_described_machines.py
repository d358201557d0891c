"""Machines as AKS describes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_azure.images.families import (
    AZURE_LINUX_GALLERY,
    UBUNTU_GALLERY,
    community_image_id,
    node_image_version,
    shared_image_id,
)
from karpenter_provider_azure.machines.described_machines import (
    claim_of_machine,
    is_owned_machine,
    machine_name,
    read_machine,
)
from providers.azure.tests.arm.values import VMS

POOL = "aksmanagedap"
VM = f"{VMS}/aks-{POOL}-web-1-10101010-vm"
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,32}[a-z0-9])?", fullmatch=True)


def item(*, zones=("2",), name="web-1", **changes):
    """A machine as GET answers; None leaves a property out."""
    properties = {
        "resourceId": VM,
        "hardware": {"vmSize": "Standard_D4s_v5"},
        "nodeImageVersion": "AKSUbuntu-2204gen2containerd-202410.15.0",
        "provisioningState": "Succeeded",
        "tags": {
            "karpenter.azure.com_cluster": "demo",
            "karpenter.azure.com_aksmachine_nodeclaim": "web-1",
        },
        "status": {"creationTimestamp": "2026-01-02T03:04:05Z"},
        **changes,
    }
    kept = {key: value for key, value in properties.items() if value is not None}
    return {"name": name, "properties": kept, **({"zones": list(zones)} if zones else {})}


def read(**changes):
    return read_machine(item(**changes), location="westus2")


def test_an_instance_takes_its_identity_from_its_virtual_machine():
    machine = read()

    assert machine.id == "aks-aksmanagedap-web-1-10101010-vm"
    assert machine.provider_id == f"azure://{VM.replace('MC_demo', 'mc_demo')}"
    assert (machine.name, machine.instance_type) == ("web-1", "Standard_D4s_v5")
    assert (machine.zone, machine.state) == ("westus2-2", "succeeded")
    assert machine.launched_at.isoformat() == "2026-01-02T03:04:05+00:00"
    assert claim_of_machine(machine) == ClaimRef(name="web-1", uid="")


@pytest.mark.parametrize(
    ("priority", "capacity_type"),
    [(None, "on-demand"), ("Regular", "on-demand"), ("Spot", "spot"), ("spot", "spot")],
)
def test_a_machine_without_priority_is_on_demand(priority, capacity_type):
    """# case 125"""
    assert read(priority=priority).capacity_type == capacity_type


def test_a_machine_outside_zones_is_in_zone_0():
    assert read(zones=()).zone == "0"


@pytest.mark.parametrize(
    ("action", "must_be_replaced"),
    [(None, False), ("", False), ("Synced", False), ("Recreate", True), ("Reimage", True)],
)
def test_every_drift_action_except_synced_causes_a_replacement(action, must_be_replaced):
    """# case 112"""
    status = {} if action is None else {"driftAction": action}
    assert read(status=status).must_be_replaced is must_be_replaced


@pytest.mark.parametrize("state", ["Creating", "Failed", "Deleting"])
def test_a_machine_that_has_no_virtual_machine_is_no_instance(state):
    assert read(resourceId=None, provisioningState=state) is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"resourceId": None}, "AKS machine web-1 cannot be read"),
        ({"resourceId": "/subscriptions/s"}, "AKS machine web-1 cannot be read"),
        ({"hardware": None}, "AKS machine web-1 has no size"),
        ({"name": ""}, "an AKS machine has no name"),
    ],
)
def test_a_machine_that_cannot_be_read_is_refused(changes, problem):
    with pytest.raises(CloudProviderError, match=problem):
        read(**changes)


@pytest.mark.parametrize(
    ("tags", "is_owned"),
    [
        ({"karpenter.azure.com_cluster": "demo"}, False),
        ({"Karpenter.Azure.com_cluster": "demo", "karpenter.azure.com_AKSMachine_nodeclaim": "c"}, True),
        ({"karpenter.azure.com_cluster": "b", "karpenter.azure.com_aksmachine_nodeclaim": "c"}, False),
        (None, False),
    ],
)  # fmt: skip
def test_a_machine_of_a_claim_has_the_tags_of_both(tags, is_owned):
    assert is_owned_machine(item(tags=tags), "demo") is is_owned


@given(NAMES, st.from_regex(r"[0-9]{8}", fullmatch=True))
def test_the_name_of_a_virtual_machine_has_the_name_of_its_machine(name, number):
    assert machine_name(f"aks-{POOL}-{name}-{number}-vm", POOL) == name
    assert machine_name(f"AKS-{POOL.upper()}-{name}-{number}-VM", POOL) == name


@given(NAMES)
def test_the_virtual_machine_of_a_claim_is_no_machine(name):
    assert machine_name(f"aks-web-{name}", POOL) == ""
    assert machine_name(f"aks-{POOL}-{name}-bcdfg", POOL) == ""


def test_a_claim_of_a_long_name_is_named_by_its_tag():
    """# case 122: the machine is `{28 or fewer characters}{6 of a hash}-{suffix}`"""
    claim = "a-node-pool-with-a-very-long-name-x7k2p"
    tags = {"karpenter.azure.com_aksmachine_nodeclaim": claim}
    machine = read(name="a-node-pool-with-a-ver1a2b3c-x7k2p", tags=tags)
    assert claim_of_machine(machine).name == claim


@pytest.mark.parametrize(
    ("gallery", "name"), [(UBUNTU_GALLERY, "AKSUbuntu"), (AZURE_LINUX_GALLERY, "AKSAzureLinux")]
)
def test_an_image_has_the_same_node_image_version_in_both_galleries(gallery, name):
    found = {
        node_image_version(community_image_id(gallery, "2204gen2", "202410.15.0")),
        node_image_version(shared_image_id(gallery, "2204gen2", "202410.15.0", subscription_id="s")),
    }  # fmt: skip
    assert found == {f"{name}-2204gen2-202410.15.0"}
    assert node_image_version("/CommunityGalleries/mine/images/a/versions/1") == ""
    assert node_image_version("") == ""
