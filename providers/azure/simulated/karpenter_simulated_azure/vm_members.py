"""Members of VM bodies that Azure knows, where a provider writes some.

Azure refuses a body with another member. From the reference of `virtualMachines`, version 2026-04-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["unknown_members"]

_INTERFACE: Final = (
    "primary deleteOption enableAcceleratedNetworking disableTcpStateTracking enableFpga"
    " enableIPForwarding networkSecurityGroup dnsSettings ipConfigurations dscpConfiguration"
    " auxiliaryMode auxiliarySku"
)
_IP_CONFIGURATION: Final = (
    "subnet primary privateIPAddressPrefixLength privateIPAddressVersion"
    " publicIPAddressConfiguration applicationSecurityGroups"
    " applicationGatewayBackendAddressPools loadBalancerBackendAddressPools"
)
_MEMBERS: Final[Mapping[str, str]] = {
    "": "id name type etag managedBy resources properties location tags plan identity zones"
    " extendedLocation placement systemData",
    "identity": "type userAssignedIdentities principalId tenantId",
    "properties": "hardwareProfile scheduledEventsPolicy storageProfile additionalCapabilities"
    " osProfile networkProfile securityProfile diagnosticsProfile availabilitySet"
    " virtualMachineScaleSet proximityPlacementGroup priority evictionPolicy billingProfile host"
    " hostGroup provisioningState instanceView licenseType vmId extensionsTimeBudget"
    " flexProfile interconnectBlockProfile resiliencyProfile scheduledEventsProfile"
    " platformFaultDomain userData capacityReservation applicationProfile timeCreated",
    "properties.hardwareProfile": "vmSize vmSizeProperties processorMode",
    "properties.billingProfile": "maxPrice",
    "properties.additionalCapabilities": "ultraSSDEnabled hibernationEnabled"
    " enableFips1403Encryption",
    "properties.securityProfile": "uefiSettings encryptionAtHost securityType encryptionIdentity"
    " proxyAgentSettings",
    "properties.securityProfile.uefiSettings": "secureBootEnabled vTpmEnabled",
    "properties.storageProfile": "imageReference osDisk dataDisks diskApiVersion diskControllerType"
    " alignRegionalDisksToVMZone",
    "properties.storageProfile.imageReference": "id publisher offer sku version exactVersion"
    " sharedGalleryImageId communityGalleryImageId",
    "properties.storageProfile.osDisk": "osType encryptionSettings name vhd image caching"
    " writeAcceleratorEnabled diffDiskSettings createOption diskSizeGB managedDisk deleteOption"
    " storageFaultDomainAlignment",
    "properties.storageProfile.osDisk.diffDiskSettings": "option placement enableFullCaching",
    "properties.storageProfile.osDisk.managedDisk": "id additionalDiskProperties storageAccountType diskEncryptionSet"
    " securityProfile",
    "properties.osProfile": "computerName adminUsername adminPassword customData"
    " windowsConfiguration linuxConfiguration secrets allowExtensionOperations"
    " requireGuestProvisionSignal",
    "properties.osProfile.linuxConfiguration": "disablePasswordAuthentication ssh"
    " provisionVMAgent patchSettings enableVMAgentPlatformUpdates",
    "properties.osProfile.linuxConfiguration.ssh": "publicKeys",
    "properties.osProfile.linuxConfiguration.ssh.publicKeys": "path keyData",
    "properties.networkProfile": "networkInterfaces networkApiVersion"
    " networkInterfaceConfigurations interconnectGroupProfile",
    "properties.networkProfile.networkInterfaces": "id properties",
    "properties.networkProfile.networkInterfaces.properties": "primary deleteOption",
    "properties.networkProfile.networkInterfaceConfigurations": "name properties tags",
    "properties.networkProfile.networkInterfaceConfigurations.properties": _INTERFACE,
    "properties.networkProfile.networkInterfaceConfigurations.properties.ipConfigurations": (
        "name properties"
    ),
    "properties.networkProfile.networkInterfaceConfigurations.properties.ipConfigurations"
    ".properties": _IP_CONFIGURATION,
}
_SINCE: Final = {
    "properties.networkProfile.networkInterfaceConfigurations.tags": "2025-04-01",
}
"""The first api-version of members that are younger than the versions that are accepted."""
_KNOWN: Final = {path: frozenset(names.split()) for path, names in _MEMBERS.items()}


def unknown_members(body: object, api_version: str) -> Iterator[str]:
    """Return the paths of the members that Azure does not know, `properties.zone`."""
    yield from _unknown(body, api_version, path="", table="")


def _unknown(body: object, api_version: str, *, path: str, table: str) -> Iterator[str]:
    if isinstance(body, list):
        for number, item in enumerate(cast("list[object]", body)):
            yield from _unknown(item, api_version, path=f"{path}[{number}]", table=table)
    elif isinstance(body, dict) and table in _KNOWN:
        for name, value in cast("dict[str, object]", body).items():
            inner = f"{table}.{name}" if table else name
            here = f"{path}.{name}" if path else name
            if name not in _KNOWN[table] or api_version < _SINCE.get(inner, ""):
                yield here
            else:
                yield from _unknown(value, api_version, path=here, table=inner)
