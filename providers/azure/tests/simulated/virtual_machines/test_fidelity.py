"""Answers about virtual machines have only members that the models of the SDK know."""

from __future__ import annotations

import pytest
from azure.mgmt.compute import models

from karpenter_simulated_azure.vm_members import unknown_members


def departures(model, path=""):
    """List members of an answer that its model of the SDK does not know."""
    fields = {each._rest_name: name for name, each in model._attr_to_rest_field.items()}
    for name in model:
        if name not in fields:
            yield f"{path}.{name}"
            continue
        value = getattr(model, fields[name])
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, "_attr_to_rest_field"):
                yield from departures(item, f"{path}.{name}")


BILLING = {
    "properties": {
        "publisher": "Microsoft.AKS",
        "type": "Compute.AKS.Linux.Billing",
        "typeHandlerVersion": "1.0",
        "settings": {},
    }
}


def test_virtual_machines_extensions_and_disks_are_those_of_the_models(azure, cloud):
    azure.create("aks-a", spot=True, properties={"securityProfile": {"encryptionAtHost": True}})
    extension = azure.send("PUT", f"{azure.path('aks-a')}/extensions/billing", BILLING).body
    cloud.fail_late(code="AllocationFailed")
    azure.put("aks-b")
    for name in ("aks-a", "aks-b"):
        machine = azure.send("GET", azure.path(name), **{"$expand": "instanceView"}).body
        assert list(departures(models.VirtualMachine(machine))) == []
    assert list(departures(models.VirtualMachineExtension(extension))) == []
    disk = azure.send("GET", azure.path("aks-a", "Microsoft.Compute/disks")).body
    assert list(departures(models.Disk(disk))) == []


NETWORK = "properties.networkProfile"
INLINE = f"{NETWORK}.networkInterfaceConfigurations"
STORAGE = "properties.storageProfile"
MODELS = {
    "": models.VirtualMachine,
    "identity": models.VirtualMachineIdentity,
    "properties": models.VirtualMachineProperties,
    "properties.hardwareProfile": models.HardwareProfile,
    "properties.billingProfile": models.BillingProfile,
    "properties.additionalCapabilities": models.AdditionalCapabilities,
    "properties.securityProfile": models.SecurityProfile,
    "properties.securityProfile.uefiSettings": models.UefiSettings,
    STORAGE: models.StorageProfile,
    f"{STORAGE}.imageReference": models.ImageReference,
    f"{STORAGE}.osDisk": models.OSDisk,
    f"{STORAGE}.osDisk.diffDiskSettings": models.DiffDiskSettings,
    f"{STORAGE}.osDisk.managedDisk": models.ManagedDiskParameters,
    "properties.osProfile": models.OSProfile,
    "properties.osProfile.linuxConfiguration": models.LinuxConfiguration,
    NETWORK: models.NetworkProfile,
    f"{NETWORK}.networkInterfaces": models.NetworkInterfaceReference,
    INLINE: models.VirtualMachineNetworkInterfaceConfiguration,
    f"{INLINE}.properties": models.VirtualMachineNetworkInterfaceConfigurationProperties,
    f"{INLINE}.properties.ipConfigurations": models.VirtualMachineNetworkInterfaceIPConfiguration,
    f"{INLINE}.properties.ipConfigurations.properties": (
        models.VirtualMachineNetworkInterfaceIPConfigurationProperties
    ),
}


def members_of(model):
    return {each._rest_name for each in model._attr_to_rest_field.values()}


@pytest.mark.parametrize("path", MODELS)
def test_the_members_that_requests_may_have_are_those_of_the_model(path):
    # A member that the SDK has, and that is refused here, would make a correct provider fail.
    body = dict.fromkeys(members_of(MODELS[path]({})))
    for name in reversed(path.split(".") if path else []):
        body = {name: body}
    assert list(unknown_members(body, "2026-04-01")) == []


def test_every_example_body_is_accepted_by_the_table_of_members(azure):
    assert list(unknown_members(azure.body(spot=True), "2024-07-01")) == []
