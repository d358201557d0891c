"""What machines must be told of their cluster: from settings, from the core, and for the rest from EKS."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError, NodeClassNotReadyError
from karpenter_core.provider.ttl_cache import TtlCache
from karpenter_provider_aws.discovery.calls import calling
from karpenter_provider_aws.launch.template_groups import ClusterDetails

if TYPE_CHECKING:
    from types_boto3_eks.type_defs import ClusterTypeDef

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import ClusterFacts
    from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
    from karpenter_provider_aws.sdk import Clients
    from karpenter_provider_aws.settings import AwsSettings

__all__ = ["ClusterSource"]

_DESCRIBED_FOR: Final = timedelta(minutes=5)
"""A control plane of EKS may be upgraded at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """What EKS says of the cluster."""

    endpoint: str
    ca_bundle: str
    version: str


@final
class ClusterSource:
    """Knows the cluster, or asks EKS for it; callable from any thread."""

    def __init__(
        self,
        clients: Clients,
        clock: Clock,
        settings: AwsSettings,
        facts: ClusterFacts,
        network: ServiceNetwork,
    ) -> None:
        self._clients: Final = clients
        self._settings: Final = settings
        self._facts: Final = facts
        self._network: Final = network
        self._described: Final[TtlCache[str, _Described]] = TtlCache(clock, _DESCRIBED_FOR)

    def details(self) -> ClusterDetails:
        """Return what launch templates say of the cluster.

        Raises:
            NodeClassNotReadyError: nobody tells under which URL nodes reach the API server, or
                whether the cluster uses IPv4 or IPv6.
            CloudProviderError: EKS had to be asked, and refused or did not answer.
        """
        settings = self._settings
        endpoint, ca_bundle = settings.cluster_endpoint, settings.cluster_ca_bundle
        if not endpoint or not ca_bundle:
            described = self._describe()
            endpoint, ca_bundle = endpoint or described.endpoint, ca_bundle or described.ca_bundle
        if not endpoint:
            raise NodeClassNotReadyError(
                f'EKS tells no endpoint of cluster "{settings.cluster_name}": set --cluster-endpoint'
            )
        self._check_family()
        return ClusterDetails(
            name=settings.cluster_name,
            endpoint=endpoint,
            region=self._clients.region,
            ca_bundle=ca_bundle,
            dns_ip=self._facts.dns_ip,
            service_cidr=self._network.cidr,
            uses_reservations=settings.reserved_capacity,
        )

    def _check_family(self) -> None:
        """Return if the API server or EKS says which family addresses have: never guess IPv4."""
        if "ip_family" not in self._facts.unknown or self._network.cidr:
            return
        try:
            if self._network.resolve():
                return
        except CloudProviderError as error:
            self._facts.check_known("ip_family", remedy=f"EKS does not tell it either: {error}")
            return
        self._facts.check_known("ip_family", remedy="EKS does not tell it either")

    def version(self) -> str:
        """Return the version of Kubernetes, by which images are chosen (`1.34`, with or without more).

        Raises:
            CloudProviderError: EKS had to be asked, and refused or did not answer.
        """
        if self._settings.eks_control_plane or not self._facts.version:
            return self._describe().version or self._facts.version
        return self._facts.version

    def _describe(self) -> _Described:
        name = self._settings.cluster_name
        known = self._described.get(name)
        if known is None:
            with calling("eks:DescribeCluster"):
                answer = self._clients.eks.describe_cluster(name=name)
            known = _read(answer["cluster"])
            self._described.put(name, known)
        return known


def _read(cluster: ClusterTypeDef) -> _Described:
    return _Described(
        endpoint=cluster.get("endpoint", ""),
        ca_bundle=cluster.get("certificateAuthority", {}).get("data", ""),
        version=cluster.get("version", ""),
    )
