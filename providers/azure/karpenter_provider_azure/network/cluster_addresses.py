"""Finds the GUID of the cluster's virtual network, and the address of its DNS."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.shared_answer import SharedAnswer
from karpenter_provider_azure.arm.reads import NETWORK_API_VERSION, properties_of
from karpenter_provider_azure.network.subnets import parse_subnet_id

if TYPE_CHECKING:
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import ClusterFacts
    from karpenter_provider_azure.arm.reads import ArmReads
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["VnetGuidReader", "dns_service_ip"]

TTL: Final = timedelta(days=1)
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

    def __init__(self, arm: ArmReads, clock: Clock, settings: AzureSettings) -> None:
        self._arm: Final = arm
        self._settings: Final = settings
        self._guid: Final = SharedAnswer(clock, TTL, self._fetched)

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
