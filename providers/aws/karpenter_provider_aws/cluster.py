"""Describes the cluster to its instances, from settings, core and EKS.

An answer of EKS stays valid while EKS does not answer: an endpoint does not change, and an outage
of EKS must not keep instances from being launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import CloudProviderError, NodeClassNotReadyError
from karpenter_core.provider.kit.node_class.last_answer import LastAnswer
from karpenter_provider_aws.codes import is_not_found
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.discovery.images import minor_version
from karpenter_provider_aws.families.bootstrap import is_ipv6
from karpenter_provider_aws.launch.template_groups import ClusterDetails

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger
    from types_boto3_eks.type_defs import ClusterTypeDef

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import ClusterFacts
    from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_provider_aws.settings import AwsSettings

__all__ = ["NEWEST_VERSION", "OLDEST_VERSION", "ClusterReader", "version_problem"]

_DESCRIBED_FOR: Final = timedelta(minutes=5)
"""A control plane of EKS may be upgraded at any time."""
_ASKED_AGAIN_AFTER: Final = timedelta(minutes=1)
"""After a call that failed: each takes up to its time limit, and launches wait for it."""
OLDEST_VERSION: Final = "1.26"
NEWEST_VERSION: Final = "1.36"
"""The versions of Kubernetes for which images, user data and kubelet fields are known to be right."""
_IPV4: Final = "IPv4"
_IPV6: Final = "IPv6"


def version_problem(version: str) -> str:
    """Return what is wrong with a version of Kubernetes that this provider does not know; or nothing."""
    minor = minor_version(version)
    if minor and _number(OLDEST_VERSION) <= _number(minor) <= _number(NEWEST_VERSION):
        return ""
    return (
        f'Kubernetes "{version}" is not supported by this provider '
        f"({OLDEST_VERSION} to {NEWEST_VERSION}): images and user data may be wrong"
    )


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@dataclass(frozen=True, slots=True, kw_only=True)
class _EksCluster:
    """EKS's description of the cluster."""

    endpoint: str
    ca_bundle: str
    version: str
    ip_family: str
    """`IPv4` or `IPv6`; empty when EKS does not say."""


@final
class ClusterReader:
    """Describes the cluster, and asks EKS where it must; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        settings: AwsSettings,
        facts: ClusterFacts,
        network: ServiceNetwork,
    ) -> None:
        self._clients: Final = clients
        self._settings: Final = settings
        self._facts: Final = facts
        self._network: Final = network
        self._eks: Final = LastAnswer(
            clock,
            _DESCRIBED_FOR,
            self._described,
            retry_after=_ASKED_AGAIN_AFTER,
            note_failure=self._note_silence,
        )
        self._warned_of = ""
        """The version that was last warned of."""
        self._log: FilteringBoundLogger = structlog.get_logger("aws.cluster")

    def details(self) -> ClusterDetails:
        """Return what launch templates say of the cluster.

        Raises:
            NodeClassNotReadyError: the URL of the API server, or the IP family, is not known.
            CloudProviderError: EKS had to be asked, and never answered.
        """
        endpoint, ca_bundle = self.address()
        return ClusterDetails(
            name=self._settings.cluster_name,
            endpoint=endpoint,
            region=self._clients.region,
            ca_bundle=ca_bundle,
            dns_ip=self._facts.dns_ip,
            service_cidr=self._network.cidr,
            ip_family=self._ip_family(),
            uses_reservations=self._settings.reserved_capacity,
        )

    def address(self) -> tuple[str, str]:
        """Return the URL under which nodes reach the API server, and its CA bundle.

        Raises:
            NodeClassNotReadyError: the URL is not known.
            CloudProviderError: EKS had to be asked, and never answered.
        """
        settings = self._settings
        endpoint, ca_bundle = settings.cluster_endpoint, settings.cluster_ca_bundle
        if not endpoint or not ca_bundle:
            described = self._eks.get()
            endpoint, ca_bundle = endpoint or described.endpoint, ca_bundle or described.ca_bundle
        if not endpoint:
            raise NodeClassNotReadyError(
                f'EKS returns no endpoint for cluster "{settings.cluster_name}": set --cluster-endpoint'
            )
        return endpoint, ca_bundle

    def version(self) -> str:
        """Return the version of Kubernetes, by which images are chosen (`1.34`, with or without more).

        Raises:
            CloudProviderError: EKS had to be asked, and never answered.
        """
        if self._settings.eks_control_plane or not self._facts.version:
            version = self._eks.get().version or self._facts.version
        else:
            version = self._facts.version
        problem = version_problem(version)
        if problem and version != self._warned_of:
            self._warned_of = version
            self._log.warning(problem, cluster=self._settings.cluster_name, version=version)
        return version

    def _ip_family(self) -> str:
        """Return `IPv4` or `IPv6`: what the core says, else what addresses of services are, else EKS."""
        facts = self._facts
        if facts.ip_family:
            return facts.ip_family
        address = facts.dns_ip or self._network.cidr.partition("/")[0]
        if address:
            return _IPV6 if is_ipv6(address) else _IPV4
        name = self._settings.cluster_name
        try:
            ip_family = self._eks.get().ip_family
        except CloudProviderError as error:
            facts.require_known("ip_family", remedy=f"EKS does not return it either: {error}")
            failure = refusal_behind(error)
            if failure is None or not is_not_found(failure.code):
                raise
            ip_family = ""
        if not ip_family:
            facts.require_known("ip_family", remedy="EKS does not return it either")
            raise NodeClassNotReadyError(
                f'the IP family of cluster "{name}" is not known: neither the API server (service '
                "kube-system/kube-dns, ServiceCIDRs) nor eks:DescribeCluster returns it"
            )
        return ip_family

    def _described(self) -> _EksCluster:
        with core_errors_of("eks:DescribeCluster"):
            answer = self._clients.eks.describe_cluster(name=self._settings.cluster_name)
        return _read(answer["cluster"])

    def _note_silence(self, error: CloudProviderError) -> None:
        self._log.warning(
            "EKS does not answer: its last description of the cluster is used",
            cluster=self._settings.cluster_name,
            error=str(error),
        )


def _read(cluster: ClusterTypeDef) -> _EksCluster:
    family = cluster.get("kubernetesNetworkConfig", {}).get("ipFamily", "")
    return _EksCluster(
        endpoint=cluster.get("endpoint", ""),
        ca_bundle=cluster.get("certificateAuthority", {}).get("data", ""),
        version=cluster.get("version", ""),
        ip_family={"ipv4": _IPV4, "ipv6": _IPV6}.get(family, ""),
    )
