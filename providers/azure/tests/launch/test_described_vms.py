"""Virtual machines are read as Azure describes them, in every spelling."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.described_vms import read_vm

ID = (
    "/subscriptions/sub/resourceGroups/MC_Foo/providers/Microsoft.Compute/virtualMachines/aks-Web-1"
)


def vm(**changes):
    item = {
        "id": ID,
        "name": "aks-Web-1",
        "location": "westus2",
        "zones": ["2"],
        "tags": {"team": "sea"},
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {"/sub/Identity": {}}},
        "properties": {
            "provisioningState": "Succeeded",
            "vmId": "guid",
            "timeCreated": "2026-01-02T03:04:05.1234567+00:00",
            "priority": "Spot",
            "hardwareProfile": {"vmSize": "Standard_D4s_v5"},
            "storageProfile": {
                "imageReference": {"communityGalleryImageId": "/CommunityGalleries/i"}
            },
        },
        "resources": [{"id": f"{ID}/extensions/computeAksLinuxBilling"}],
    }
    properties = {**item["properties"], **changes.pop("properties", {})}
    return {**item, **changes, "properties": properties}


def test_a_virtual_machine_is_read():
    read = read_vm(vm())
    assert read.provider_id == f"azure://{ID.replace('MC_Foo', 'mc_foo')}"  # case 90
    assert (read.id, read.name) == ("aks-web-1", "aks-Web-1")
    assert (read.zone, read.capacity_type) == ("westus2-2", SPOT)
    assert (read.instance_type, read.image_id) == ("Standard_D4s_v5", "/CommunityGalleries/i")
    assert read.launched_at == datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)
    assert read.extensions == {"computeakslinuxbilling"}
    assert read.identities == {"/sub/identity"}
    assert read.has_succeeded
    assert not read.is_leaving
    assert not read.has_failed


def test_a_virtual_machine_without_a_zone_is_regional():
    assert read_vm(vm(zones=None)).zone == "0"


def test_a_virtual_machine_without_a_priority_is_on_demand():
    assert read_vm(vm(properties={"priority": None})).capacity_type == ON_DEMAND


@pytest.mark.parametrize(
    ("state", "flag"),
    [("Deleting", "is_leaving"), ("Failed", "has_failed"), ("Canceled", "has_failed")],
)
def test_the_state_is_compared_without_case(state, flag):
    assert getattr(read_vm(vm(properties={"provisioningState": state})), flag)


def test_an_unreadable_time_is_none():
    assert read_vm(vm(properties={"timeCreated": "soon"})).launched_at is None


def test_a_virtual_machine_without_a_size_has_an_empty_one():
    assert not read_vm(vm(properties={"hardwareProfile": None})).instance_type


@pytest.mark.parametrize("broken", [{"id": "/subscriptions/sub"}, {"id": ""}])
def test_an_unreadable_answer_is_refused(broken):
    with pytest.raises(CloudProviderError):
        read_vm(vm(**broken))
