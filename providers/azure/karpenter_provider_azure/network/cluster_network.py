"""Reads the cluster's security group, backend pools, virtual network GUID."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.shared_answer import AnswerRevision, SharedAnswer
from karpenter_provider_azure.arm.client import NETWORK_API_VERSION
from karpenter_provider_azure.json_values import objects_of, properties_of
from karpenter_provider_azure.network.subnets import parse_subnet_id
from karpenter_provider_azure.resource_ids import resource_group_path

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.clock import Clock
    from karpenter_provider_azure.arm.client import ArmClient

    BackendPools: TypeAlias = AnswerRevision[tuple[str, ...]]
    from karpenter_core.provider.contract import ClusterFacts
    from karpenter_provider_azure.settings import AzureSettings

__all__ = [
    "ManagedSecurityGroup",
    "SecurityGroupReader",
    "SeveralSecurityGroupsError",
    "VnetGuidReader",
    "backend_pool_ids",
    "backend_pools",
    "dns_service_ip",
    "managed_security_group",
    "refers_to_missing_pool",
]

_GROUP_TTL: Final = timedelta(hours=1)
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

    def __init__(self, arm: ArmClient, clock: Clock, *, node_resource_group: str) -> None:
        self._arm: Final = arm
        self._resource_group: Final = node_resource_group
        self._groups: Final = SharedAnswer(clock, _GROUP_TTL, self._listed)

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


_POOL_TTL: Final = timedelta(hours=2)
_LOAD_BALANCERS: Final = frozenset({"kubernetes", "kubernetes-internal"})
_IPV6_POOLS: Final = frozenset({"aksoutboundbackendpool-ipv6", "kubernetes-ipv6"})
_MISSING_REFERENCE: Final = "InvalidResourceReference"


def backend_pool_ids(load_balancers: Iterable[JsonMapping]) -> tuple[str, ...]:
    """Return the ids of the pools that interfaces of nodes belong to, sorted.

    Only the load balancers of AKS count. Pools for IPv6, and pools whose members are addresses and
    not interfaces, are left out.
    """
    return tuple(
        sorted(
            str(pool["id"])
            for balancer in load_balancers
            if str(balancer.get("name") or "").lower() in _LOAD_BALANCERS
            for pool in objects_of(properties_of(balancer).get("backendAddressPools"))
            if str(pool.get("name") or "").lower() not in _IPV6_POOLS
            and not any(
                properties_of(address).get("ipAddress")
                for address in objects_of(properties_of(pool).get("loadBalancerBackendAddresses"))
            )
        )
    )


def refers_to_missing_pool(codes: Iterable[str], text: str, pools: Iterable[str]) -> bool:
    """Whether Azure refused an interface because one of its pools does not exist any more.

    `codes` and `text` are those of the error (`ArmError.codes`, `ArmError.text`), `pools` the ids in
    the request. The pools are then read again, and the interface is requested once more.
    """
    said = text.lower()
    return _MISSING_REFERENCE in codes and any(pool.lower() in said for pool in pools)


def backend_pools(
    arm: ArmClient, clock: Clock, *, node_resource_group: str
) -> SharedAnswer[tuple[str, ...]]:
    """Return the ids of the backend pools, which are read when needed, and again after two hours."""
    group = resource_group_path(arm.subscription_id, node_resource_group)

    def listed() -> tuple[str, ...]:
        return backend_pool_ids(
            arm.list_all(
                f"{group}/providers/Microsoft.Network/loadBalancers",
                api_version=NETWORK_API_VERSION,
                action="loadBalancers:list",
            )
        )

    return SharedAnswer(clock, _POOL_TTL, listed)


_GUID_TTL: Final = timedelta(days=1)
_USUAL_DNS_IP: Final = "10.0.0.10"
"""AKS's default for `dnsServiceIP`."""


def dns_service_ip(settings: AzureSettings, facts: ClusterFacts) -> str:
    """Return the address of the cluster's DNS: of the setting, of the Service kube-dns, or AKS's default.

    Raises:
        NodeClassNotReadyError: whether there is a Service kube-dns is not known yet.
    """
    if settings.dns_service_ip:
        return settings.dns_service_ip
    facts.require_known("dns_ip", remedy="or set --dns-service-ip")
    return facts.dns_ip or _USUAL_DNS_IP


@final
class VnetGuidReader:
    """Finds the GUID of the cluster's virtual network; callable from any thread."""

    def __init__(self, arm: ArmClient, clock: Clock, settings: AzureSettings) -> None:
        self._arm: Final = arm
        self._settings: Final = settings
        self._guid: Final = SharedAnswer(clock, _GUID_TTL, self._fetched)

    def current(self) -> str:
        """Return the GUID; empty for clusters without an overlay network, whose nodes do not need it.

        Raises:
            CloudProviderError: it cannot be read, and was never read.
        """
        if self._settings.vnet_guid or not self._settings.is_overlay:
            return self._settings.vnet_guid
        return self._guid.current().value

    def _fetched(self) -> str:
        try:
            network_id = str(parse_subnet_id(self._settings.vnet_subnet_id).parent())
        except ValueError as error:
            raise CloudProviderError(f"--vnet-subnet-id: {error}") from error
        network = self._arm.get(
            network_id, api_version=NETWORK_API_VERSION, action="virtualNetworks:get"
        )
        guid = properties_of(network).get("resourceGuid")
        if not guid:
            raise CloudProviderError(
                f"virtual network {network_id} has no resourceGuid; set --vnet-guid"
            )
        return str(guid)
