"""Writes request bodies of VMs that the simulated Azure accepts.

Tests and other clusters send them.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["SSH_PUBLIC_KEY", "vm_body"]

ADMIN: Final = "azureuser"
SSH_PUBLIC_KEY: Final = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC4mYg0vVq5bM9T0bT1b7m0c3p3m6Xv0p0oN0H1y7Q2x simulated"
)
_SCRIPT: Final = """#!/bin/bash
KUBELET_FLAGS="--max-pods=110" KUBELET_NODE_LABELS="" TLS_BOOTSTRAP_TOKEN="abcdef.0123456789abcdef" \\
/bin/bash /opt/azure/containers/provision_start.sh
"""


def vm_body(
    world: AzureWorld,
    name: str,
    *,
    image_id: str,
    size: str = "Standard_D4s_v5",
    zone: str = "1",
    spot: bool = False,
    tags: Mapping[str, str] | None = None,
    custom_data: str = "",
    properties: Mapping[str, object] | None = None,
) -> JsonObject:
    """Return the body of a virtual machine with an inline network interface; an empty zone is none.

    `custom_data` is a script, by default one that starts a kubelet; `properties` replace others.
    """
    script = custom_data or _SCRIPT
    interface: JsonObject = {
        "name": name,
        "properties": {
            "primary": True,
            "deleteOption": "Delete",
            "ipConfigurations": [
                {
                    "name": name,
                    "properties": {"primary": True, "subnet": {"id": world.subnet_id}},
                }
            ],
        },
    }
    reference = (
        {"id": image_id}
        if image_id.startswith("/subscriptions/")
        else {"communityGalleryImageId": image_id}
    )
    keys = [{"path": f"/home/{ADMIN}/.ssh/authorized_keys", "keyData": SSH_PUBLIC_KEY}]
    written: JsonObject = {
        "hardwareProfile": {"vmSize": size},
        "storageProfile": {
            "imageReference": reference,
            "osDisk": {
                "name": name,
                "createOption": "FromImage",
                "deleteOption": "Delete",
                "diskSizeGB": 128,
            },
        },
        "osProfile": {
            "computerName": name,
            "adminUsername": ADMIN,
            "customData": b64encode(script.encode()).decode(),
            "linuxConfiguration": {
                "disablePasswordAuthentication": True,
                "ssh": {"publicKeys": keys},
            },
        },
        "networkProfile": {
            "networkApiVersion": "2022-11-01",
            "networkInterfaceConfigurations": [interface],
        },
        "priority": "Spot" if spot else "Regular",
    }
    if spot:
        written |= {"evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1}}
    body: JsonObject = {
        "location": world.location,
        "tags": dict(tags or {}),
        "properties": {**written, **(properties or {})},
    }
    return body | ({"zones": [zone]} if zone else {})
