"""Builds the boot data of nodes from the settings, the cluster and what launches choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration, ClusterBoot
from karpenter_provider_azure.bootstrap.custom_data import custom_data
from karpenter_provider_azure.launch.boot_data import BootData
from karpenter_provider_azure.network.cluster_addresses import dns_service_ip

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.provider.contract import ClusterFacts
    from karpenter_provider_azure.launch.boot_data import BootTarget
    from karpenter_provider_azure.network.security_groups import ManagedSecurityGroup
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["BootstrappingService", "NodeBoot"]


class BootstrappingService(Protocol):
    """The service that writes custom data and scripts of nodes (`NODEBOOTSTRAPPING_SERVER_URL`)."""

    def boot_data(self, boot: BootConfiguration, image_id: str, /) -> BootData:
        """Ask the service for the boot data of a node.

        Raises:
            CloudProviderError: it refused, did not answer, or its answer lacks a part.
        """
        ...


@final
class NodeBoot:
    """Builds boot data (`BootDataBuilder`); callable from any thread."""

    def __init__(
        self,
        settings: AzureSettings,
        cluster: ClusterFacts,
        *,
        vnet_guid: Callable[[], str],
        security_group: Callable[[], ManagedSecurityGroup | None],
        service: BootstrappingService | None = None,
    ) -> None:
        """`vnet_guid` and `security_group` return them as they are now, and may raise.

        `service` is None if the provider writes the custom data itself.
        """
        self._settings: Final = settings
        self._cluster: Final = cluster
        self._vnet_guid: Final = vnet_guid
        self._security_group: Final = security_group
        self._service: Final = service

    def boot_data(self, target: BootTarget) -> BootData:
        """Return the boot data of a node.

        Raises:
            CloudProviderError: what it needs is not known yet, or a service refused or did not answer.
        """
        boot = BootConfiguration(
            cluster=self._cluster_boot(),
            node_class=target.node_class,
            node_claim=target.node_claim,
            size=target.size,
            requirements=target.instance_type.requirements,
            capacity_type=target.offering.capacity_type,
            zone=target.offering.zone,
            uses_ultra_ssd=target.uses_ultra_ssd,
        )
        if self._service is not None:
            return self._service.boot_data(boot, target.image_id)
        return BootData(custom_data=custom_data(boot))

    def _cluster_boot(self) -> ClusterBoot:
        ca_pem = self._cluster.ca_bundle
        if not ca_pem:
            raise CloudProviderError("the certificates of the API server are not known yet")
        return ClusterBoot(
            settings=self._settings,
            ca_pem=ca_pem,
            bootstrap_token=self._settings.kubelet_bootstrap_token,
            dns_service_ip=dns_service_ip(self._settings, self._cluster),
            vnet_guid=self._vnet_guid(),
            security_group=self._security_group(),
        )
