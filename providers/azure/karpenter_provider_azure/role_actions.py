"""Names Azure actions that the controller's identity needs; finds gaps.

Azure answers with what an identity may do at a scope (Microsoft.Authorization, "Permissions - List"): the
actions of each role assignment, without the actions that the role leaves out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_provider_azure.resource_ids import agent_pool_id, resource_group_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["ScopedActions", "missing_actions", "needed_actions"]

_VM_CONTRIBUTOR: Final = "Virtual Machine Contributor"
_NETWORK_CONTRIBUTOR: Final = "Network Contributor"
_IDENTITY_OPERATOR: Final = "Managed Identity Operator"
_AKS_CONTRIBUTOR: Final = "Azure Kubernetes Service Contributor Role"
_COMPUTE_ACTIONS: Final = (
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/virtualMachines/extensions/write",
    "Microsoft.Compute/disks/write",
    "Microsoft.Compute/disks/delete",
)
_NETWORK_ACTIONS: Final = (
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
)
_SUBNET_ACTIONS: Final = ("Microsoft.Network/virtualNetworks/subnets/join/action",)
_MACHINE_ACTIONS: Final = (
    "Microsoft.ContainerService/managedClusters/agentPools/deleteMachines/action",
)
_IDENTITY_ACTIONS: Final = ("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedActions:
    """Actions at a scope, and the built-in role that has them."""

    scope: str
    """Id of a resource group or resource."""
    actions: tuple[str, ...]
    role: str


def needed_actions(settings: AzureSettings) -> tuple[ScopedActions, ...]:
    """Return the actions that change something; those that read are tried out instead."""
    group = resource_group_path(settings.azure_subscription_id, settings.node_resource_group)
    return (
        ScopedActions(scope=group, actions=_COMPUTE_ACTIONS, role=_VM_CONTRIBUTOR),
        ScopedActions(scope=group, actions=_NETWORK_ACTIONS, role=_NETWORK_CONTRIBUTOR),
        ScopedActions(
            scope=settings.vnet_subnet_id, actions=_SUBNET_ACTIONS, role=_NETWORK_CONTRIBUTOR
        ),
        *(
            ScopedActions(scope=identity, actions=_IDENTITY_ACTIONS, role=_IDENTITY_OPERATOR)
            for identity in settings.node_identities
        ),
        *_machine_actions(settings),
    )


def _machine_actions(settings: AzureSettings) -> tuple[ScopedActions, ...]:
    if not settings.manage_existing_aks_machines:
        return ()
    pool = agent_pool_id(
        settings.azure_subscription_id,
        settings.arm_resource_group,
        settings.cluster_name,
        settings.aks_machines_pool_name,
    )
    return (ScopedActions(scope=pool, actions=_MACHINE_ACTIONS, role=_AKS_CONTRIBUTOR),)


def missing_actions(needed: Iterable[str], permissions: Iterable[JsonMapping]) -> tuple[str, ...]:
    """Return the needed actions that no permission grants; each permission is one role assignment."""
    granted = tuple(permissions)
    return tuple(action for action in needed if not any(_grants(it, action) for it in granted))


def _grants(permission: JsonMapping, action: str) -> bool:
    def is_in(name: str) -> bool:
        patterns = cast("Iterable[str]", permission.get(name) or ())
        return any(_pattern(text).fullmatch(action) for text in patterns)

    return is_in("actions") and not is_in("notActions")


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.IGNORECASE)
