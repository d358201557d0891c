"""Builds the boot data of nodes, itself (`aksscriptless`) or by AKS's service.

The answer of the service has a place for the bootstrap token instead of the token.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote

from karpenter_core.errors import LaunchFailedError, NodeClassNotReadyError
from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration, ClusterBoot
from karpenter_provider_azure.bootstrap.custom_data import custom_data
from karpenter_provider_azure.bootstrap.provision_profile import provision_values
from karpenter_provider_azure.bootstrap_tokens import BootstrapTokenReader
from karpenter_provider_azure.launch.boot_data import BootData
from karpenter_provider_azure.network.cluster_network import dns_service_ip

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.provider.contract import ClusterFacts
    from karpenter_provider_azure.json_service import JsonService
    from karpenter_provider_azure.launch.boot_data import BootTarget
    from karpenter_provider_azure.network.cluster_network import SecurityGroupReader, VnetGuidReader
    from karpenter_provider_azure.settings import AzureSettings

__all__ = [
    "TIMEOUT_SECONDS",
    "BootstrappingService",
    "ClusterBootReader",
    "NodeBoot",
]

TIMEOUT_SECONDS: Final = 30
ACTION: Final = "nodeBootstrapping:post"
FAILED_REASON: Final = "BootstrappingFailed"
"""Reason of a launch for which the service's answer is unusable."""

_TOKEN_PLACE: Final = "{{.TokenID}}.{{.TokenSecret}}"  # noqa: S105 - the place of one


@final
class BootstrappingService:
    """A client of the service; callable from any thread."""

    def __init__(
        self, settings: AzureSettings, poster: JsonService, *, bearer_token: Callable[[], str]
    ) -> None:
        """`bearer_token` returns the controller's token for Azure Resource Manager."""
        self._poster: Final = poster
        self._bearer_token: Final = bearer_token
        self._url: Final = (
            f"{settings.nodebootstrapping_server_url}"
            f"/subscriptions/{quote(settings.azure_subscription_id)}"
            f"/resourceGroups/{quote(settings.arm_resource_group)}"
            f"/providers/Microsoft.ContainerService/managedclusters/{quote(settings.cluster_name)}"
            "/nodeBootstrapping"
        )

    def boot_data(self, boot: BootConfiguration, image_id: str) -> BootData:
        """Return the first boot of a node.

        Raises:
            NodeClassNotReadyError: a field of the NodeClass is unusable; names object, field and value.
            LaunchFailedError: the answer is unusable.
            CloudProviderError: the service refused the profile, or did not answer.
        """
        answer = self._poster.post(
            self._url,
            provision_values(boot, image_id=image_id),
            action=ACTION,
            headers={"Authorization": f"Bearer {self._bearer_token()}"},
        )
        token = boot.cluster.bootstrap_token
        return BootData(
            custom_data=_custom_data(_text(answer, "customData"), token),
            custom_script=_text(answer, "cse").replace(_TOKEN_PLACE, token),
        )


def _text(answer: JsonMapping, name: str) -> str:
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise LaunchFailedError(
            f"{ACTION}: the answer of the bootstrapping service has no {name}",
            reason=FAILED_REASON,
        )
    return value


def _custom_data(text: str, token: str) -> str:
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise LaunchFailedError(
            f"{ACTION}: customData of the bootstrapping service is not base64: {error}",
            reason=FAILED_REASON,
        ) from error
    return base64.b64encode(content.replace(_TOKEN_PLACE.encode(), token.encode())).decode("ascii")


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
class NodeBoot:
    """Builds boot data of nodes; callable from any thread."""

    def __init__(self, cluster: ClusterBootReader, service: BootstrappingService | None) -> None:
        """`service` is None for nodes that join by the custom data of this provider alone."""
        self._cluster: Final = cluster
        self._service: Final = service

    def boot_data(self, target: BootTarget) -> BootData:
        """Return the custom data of a node, and the command of its extension if the service gives one.

        Raises:
            CloudProviderError: what it needs is not known yet, or Azure or the service did not answer.
        """
        boot = BootConfiguration(cluster=self._cluster.current(), target=target)
        if self._service is None:
            return BootData(custom_data=custom_data(boot))
        return self._service.boot_data(boot, target.image_id)
