"""Finds the network security group that AKS made for the nodes of a cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.shared_answer import SharedAnswer
from karpenter_provider_azure.arm.reads import NETWORK_API_VERSION
from karpenter_provider_azure.resource_ids import resource_group_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.clock import Clock
    from karpenter_provider_azure.arm.reads import ArmReads

__all__ = [
    "ManagedSecurityGroup",
    "SecurityGroupReader",
    "SeveralSecurityGroupsError",
    "managed_security_group",
]

TTL: Final = timedelta(hours=1)
_MANAGED: Final = re.compile(r"aks-agentpool-(\d{8})-nsg", re.IGNORECASE)


class SeveralSecurityGroupsError(CloudProviderError):
    """The node resource group has several security groups of AKS; names them."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedSecurityGroup:
    """The security group of the nodes."""

    id: str
    name: str
    cluster_id: str
    """Eight digits, which names of the cluster's resources end in."""


def managed_security_group(
    groups: Iterable[JsonMapping], *, resource_group: str
) -> ManagedSecurityGroup | None:
    """Return the security group of the nodes; None for a cluster without one.

    `groups` are those of the node resource group.

    Raises:
        SeveralSecurityGroupsError: there are several.
    """
    found = sorted(
        (
            ManagedSecurityGroup(id=str(group["id"]), name=name, cluster_id=match[1])
            for group in groups
            if (match := _MANAGED.fullmatch(name := str(group.get("name") or "")))
        ),
        key=lambda group: group.name,
    )
    if len(found) > 1:
        names = ", ".join(group.name for group in found)
        raise SeveralSecurityGroupsError(
            f'resource group "{resource_group}" has several network security groups of AKS, and '
            f"nodes need one: {names}"
        )
    return found[0] if found else None


@final
class SecurityGroupReader:
    """Finds the security group of the nodes; callable from any thread."""

    def __init__(self, arm: ArmReads, clock: Clock, *, node_resource_group: str) -> None:
        self._arm: Final = arm
        self._resource_group: Final = node_resource_group
        self._groups: Final = SharedAnswer(clock, TTL, self._listed)

    def current(self) -> ManagedSecurityGroup | None:
        """Return the security group; None for a cluster without one.

        The list is read again each hour, and at once as long as there are several. While Azure does
        not answer, the last one is used.

        Raises:
            SeveralSecurityGroupsError: there are several.
            CloudProviderError: the list was never read.
        """
        groups = self._groups.current()
        try:
            return managed_security_group(groups.value, resource_group=self._resource_group)
        except SeveralSecurityGroupsError:
            groups = self._groups.newer_than(groups)  # they may have been removed
        return managed_security_group(groups.value, resource_group=self._resource_group)

    def _listed(self) -> tuple[JsonMapping, ...]:
        group = resource_group_path(self._arm.subscription_id, self._resource_group)
        path = f"{group}/providers/Microsoft.Network/networkSecurityGroups"
        return tuple(
            self._arm.list_all(
                path, api_version=NETWORK_API_VERSION, action="networkSecurityGroups:list"
            )
        )
