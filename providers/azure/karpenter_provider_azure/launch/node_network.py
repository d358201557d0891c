"""Puts together the network interface of a new node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.errors import BadInputError
from karpenter_provider_azure.catalogue.class_traits import max_pods_of
from karpenter_provider_azure.launch.network_interfaces import NetworkInterface, address_count
from karpenter_provider_azure.network.backend_pools import refers_to_missing_pool
from karpenter_provider_azure.network.subnets import ClusterNetwork

if TYPE_CHECKING:
    from karpenter_core.provider.kit.shared_answer import AnswerRevision
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.arm.errors import ArmError
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize
    from karpenter_provider_azure.network.security_groups import ManagedSecurityGroup
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["NodeNetwork"]


class _PoolReader(Protocol):
    """The methods of `BackendPoolReader`."""

    def current(self) -> AnswerRevision[tuple[str, ...]]: ...

    def newer_than(
        self, seen: AnswerRevision[tuple[str, ...]]
    ) -> AnswerRevision[tuple[str, ...]]: ...


class _SecurityGroupReader(Protocol):
    """The method of `SecurityGroupReader`."""

    def current(self) -> ManagedSecurityGroup | None: ...


@final
class NodeNetwork:
    """Subnet, security group and backend pools of new nodes; callable from any thread."""

    def __init__(
        self, settings: AzureSettings, *, pools: _PoolReader, security_groups: _SecurityGroupReader
    ) -> None:
        self._settings: Final = settings
        self._pools: Final = pools
        self._security_groups: Final = security_groups
        self._cluster: Final = ClusterNetwork(
            vnet_subnet_id=settings.vnet_subnet_id,
            node_resource_group=settings.node_resource_group,
        )

    def interface(self, name: str, node_class: AKSNodeClass, size: VmSize) -> NetworkInterface:
        """Return the interface of a node.

        Raises:
            CloudProviderError: pools or security groups could not be read, or there are several groups.
            BadInputError: the id of the subnet is malformed.
        """
        subnet_id = self.subnet_id(node_class)
        try:
            needs_group = self._cluster.needs_security_group(subnet_id)
        except ValueError as error:
            raise BadInputError(f'AKSNodeClass "{node_class.name}": {error}') from error
        group = self._security_groups.current() if needs_group else None
        max_pods = max_pods_of(
            node_class,
            network_plugin=self._settings.network_plugin,
            network_plugin_mode=self._settings.network_plugin_mode,
        )
        return NetworkInterface(
            name=name,
            subnet_id=subnet_id,
            backend_pool_ids=self._pools.current().value,
            security_group_id=group.id if group is not None else "",
            is_accelerated=size.accelerated_networking,
            addresses=address_count(self._settings, max_pods=max_pods),
        )

    def subnet_id(self, node_class: AKSNodeClass) -> str:
        """Return the subnet of a NodeClass: its own or that of the cluster."""
        return node_class.spec.vnet_subnet_id or self._settings.vnet_subnet_id

    def with_current_pools(
        self, interface: NetworkInterface, error: ArmError
    ) -> NetworkInterface | None:
        """Return the interface with pools as they are now; None if the error is not about its pools.

        Parallel launches that met the same error share one read.

        Raises:
            CloudProviderError: Azure refused or did not answer.
        """
        used = interface.backend_pool_ids
        if not refers_to_missing_pool(error.codes, error.text, used):
            return None
        seen = self._pools.current()
        newer = self._pools.newer_than(seen) if seen.value == used else seen
        return replace(interface, backend_pool_ids=newer.value)
