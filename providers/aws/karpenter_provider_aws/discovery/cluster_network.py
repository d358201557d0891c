"""Reads the cluster's service network, which AL2023 nodes need."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_provider_aws.discovery.call_errors import core_errors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["ServiceNetwork"]


@final
class ServiceNetwork:
    """Knows the CIDR of services, or asks EKS for it once; callable from any thread.

    It never changes in the life of a cluster.
    """

    def __init__(
        self,
        clients: CloudClients,
        *,
        cluster: str,
        known: Callable[[], Sequence[str]] = tuple[str, ...],
    ) -> None:
        """`known` returns the CIDRs that are known without asking; they may become known later."""
        self._clients: Final = clients
        self._cluster: Final = cluster
        self._lock: Final = Lock()
        self._known_cidrs: Final = known
        self._cidr = ""

    @property
    def cidr(self) -> str:
        """The CIDR if it is known without a call, else empty."""
        known_cidrs = self._known_cidrs()
        with self._lock:
            self._cidr = self._cidr or (known_cidrs[0] if known_cidrs else "")
            return self._cidr

    def resolve(self) -> str:
        """Return the CIDR, IPv4 or else IPv6; empty when the cluster names none.

        Raises:
            CloudProviderError: EKS refused or did not answer (`discovery.call_errors`).
        """
        known_cidr = self.cidr
        if known_cidr:
            return known_cidr
        with core_errors_of("eks:DescribeCluster"):
            answer = self._clients.eks.describe_cluster(name=self._cluster)
        network = answer["cluster"].get("kubernetesNetworkConfig", {})
        cidr = network.get("serviceIpv4Cidr") or network.get("serviceIpv6Cidr") or ""
        with self._lock:
            self._cidr = self._cidr or cidr
        return cidr
