"""Builds the boot data of nodes: by this provider (`aksscriptless`), or by AKS's service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration, ClusterBoot
from karpenter_provider_azure.bootstrap.custom_data import custom_data
from karpenter_provider_azure.bootstrap_tokens import BootstrapTokenReader
from karpenter_provider_azure.launch.boot_data import BootData
from karpenter_provider_azure.network.cluster_addresses import dns_service_ip

if TYPE_CHECKING:
    from karpenter_core.provider.contract import ClusterFacts
    from karpenter_provider_azure.bootstrap.bootstrapping_service import BootstrappingService
    from karpenter_provider_azure.launch.boot_data import BootTarget
    from karpenter_provider_azure.network.cluster_addresses import VnetGuidReader
    from karpenter_provider_azure.network.security_groups import SecurityGroupReader
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["ClusterBootReader", "ScriptlessBoot", "ServiceBoot"]


@final
class ClusterBootReader:
    """Reads the part of boot configurations that all nodes share; callable from any thread."""

    def __init__(
        self,
        settings: AzureSettings,
        facts: ClusterFacts,
        *,
        guid: VnetGuidReader,
        security_groups: SecurityGroupReader,
    ) -> None:
        self._settings: Final = settings
        self._facts: Final = facts
        self._tokens: Final = BootstrapTokenReader(
            token=settings.kubelet_bootstrap_token, path=settings.kubelet_bootstrap_token_file
        )
        self._guid: Final = guid
        self._security_groups: Final = security_groups

    def current(self) -> ClusterBoot:
        """Return the part as it is now.

        Raises:
            NodeClassNotReadyError: the certificates of the API server, its DNS, or the bootstrap token
                are not known.
            CloudProviderError: Azure refused or did not answer.
        """
        # An API server without TLS has none, as that of the demo.
        if not self._facts.ca_bundle and self._facts.endpoint.startswith("https://"):
            raise NodeClassNotReadyError(
                "the certificates of the API server are not known: the kubeconfig or service account "
                "of the controller has none, and nodes need them to join"
            )
        return ClusterBoot(
            settings=self._settings,
            ca_pem=self._facts.ca_bundle,
            bootstrap_token=self._tokens.current(),
            dns_service_ip=dns_service_ip(self._settings, self._facts),
            vnet_guid=self._guid.current(),
            security_group=self._security_groups.current(),
        )


@final
class ScriptlessBoot:
    """Builds boot data of nodes that join by their custom data alone; callable from any thread."""

    def __init__(self, cluster: ClusterBootReader) -> None:
        self._cluster: Final = cluster

    def boot_data(self, target: BootTarget) -> BootData:
        """Return the custom data of a node.

        Raises:
            CloudProviderError: what it needs is not known yet, or Azure did not answer.
        """
        return BootData(
            custom_data=custom_data(boot_configuration(self._cluster.current(), target))
        )


@final
class ServiceBoot:
    """Gets boot data from the bootstrapping service (`bootstrappingclient`); callable from any thread."""

    def __init__(self, cluster: ClusterBootReader, service: BootstrappingService) -> None:
        self._cluster: Final = cluster
        self._service: Final = service

    def boot_data(self, target: BootTarget) -> BootData:
        """Return the custom data of a node, and the command of its extension.

        Raises:
            CloudProviderError: what it needs is not known yet, or Azure or the service did not answer.
        """
        boot = boot_configuration(self._cluster.current(), target)
        return self._service.boot_data(boot, target.image_id)


def boot_configuration(cluster: ClusterBoot, target: BootTarget) -> BootConfiguration:
    """Return the boot configuration of a node."""
    return BootConfiguration(
        cluster=cluster,
        node_class=target.node_class,
        node_claim=target.node_claim,
        size=target.size,
        requirements=target.instance_type.requirements,
        capacity_type=target.offering.capacity_type,
        zone=target.offering.zone,
        uses_ultra_ssd=target.uses_ultra_ssd,
    )
