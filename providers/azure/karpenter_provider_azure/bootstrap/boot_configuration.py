"""Holds everything that the first boot of a node depends on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_provider_azure.api.nodeclass import LocalDNSState
from karpenter_provider_azure.catalogue.class_traits import max_pods_of
from karpenter_provider_azure.catalogue.gpu_sizes import gpu_size
from karpenter_provider_azure.images.families import ImageVariant, effective_family
from karpenter_provider_azure.kubernetes_versions import parse_version
from karpenter_provider_azure.labels import NVIDIA
from karpenter_provider_azure.network.subnets import parse_subnet_id

if TYPE_CHECKING:
    from karpenter_provider_azure.images.families import EffectiveFamily
    from karpenter_provider_azure.kubernetes_versions import KubernetesVersion
    from karpenter_provider_azure.launch.boot_data import BootTarget
    from karpenter_provider_azure.network.cluster_network import ManagedSecurityGroup
    from karpenter_provider_azure.resource_ids import ResourceId
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["BootConfiguration", "ClusterBoot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBoot:
    """The part of a boot configuration that all nodes of the cluster share."""

    settings: AzureSettings
    ca_pem: str = field(repr=False)
    """Certificates of the API server (PEM)."""
    bootstrap_token: str = field(repr=False)
    """`ID.SECRET`"""
    dns_service_ip: str
    vnet_guid: str
    """Of the cluster's virtual network; only for overlay networks."""
    security_group: ManagedSecurityGroup | None
    """None for a cluster without a security group of AKS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootConfiguration:
    """The boot configuration of one node."""

    cluster: ClusterBoot
    target: BootTarget

    @property
    def kubernetes_version(self) -> KubernetesVersion:
        """The Kubernetes version of the node.

        Raises:
            NodeClassNotReadyError: the status of the NodeClass has none, or one that is unreadable.
        """
        return self._read_version()[1]

    @property
    def kubernetes_release(self) -> str:
        """The version with all that its binaries are named by: `1.30.101-akslts`.

        Raises:
            NodeClassNotReadyError: the status of the NodeClass has none, or one that is unreadable.
        """
        return self._read_version()[0].removeprefix("v")

    def _read_version(self) -> tuple[str, KubernetesVersion]:
        text = self.target.node_class.status.kubernetes_version
        version = parse_version(text)
        if version is None:
            raise NodeClassNotReadyError(
                f'AKSNodeClass "{self.target.node_class.name}": status.kubernetesVersion "{text}" is not a '
                "version"
            )
        return text, version

    @property
    def family(self) -> EffectiveFamily:
        """The release of the operating system.

        Raises:
            NodeClassNotReadyError: `spec.imageFamily` is unknown.
        """
        spec = self.target.node_class.spec
        variant = ImageVariant(fips=spec.uses_fips, trusted_launch=spec.uses_trusted_launch)
        family = effective_family(
            spec.image_family, self.target.node_class.status.kubernetes_version, variant
        )
        if family is None:
            raise NodeClassNotReadyError(
                f'AKSNodeClass "{self.target.node_class.name}": spec.imageFamily "{spec.image_family}" is '
                "unknown"
            )
        return family

    @property
    def subnet(self) -> ResourceId:
        """The id of the node's subnet.

        Raises:
            NodeClassNotReadyError: it is not the id of a subnet.
        """
        own = self.target.node_class.spec.vnet_subnet_id
        try:
            return parse_subnet_id(own or self.cluster.settings.vnet_subnet_id)
        except ValueError as error:
            field_name = (
                f'AKSNodeClass "{self.target.node_class.name}": spec.vnetSubnetID'
                if own
                else "--vnet-subnet-id"
            )
            raise NodeClassNotReadyError(f"{field_name}: {error}") from error

    @property
    def max_pods(self) -> int:
        """The kubelet's limit of pods."""
        return max_pods_of(self.target.node_class, self.cluster.settings)

    @property
    def has_local_dns(self) -> bool:
        """Whether the status of the NodeClass says that nodes have LocalDNS."""
        return self.target.node_class.status.local_dns_state == LocalDNSState.ENABLED

    @property
    def streams_artifacts(self) -> bool:
        """Whether container images are streamed; never on arm64."""
        return (
            self.target.node_class.spec.uses_artifact_streaming and self.target.size.arch != "arm64"
        )

    @property
    def installs_gpu_driver(self) -> bool:
        """Whether the node has NVIDIA GPUs for which the first boot installs drivers."""
        support = gpu_size(self.target.size.name) if self.target.size.gpus else None
        is_nvidia = support is not None and support.manufacturer == NVIDIA
        return is_nvidia and self.target.node_class.spec.installs_gpu_drivers
