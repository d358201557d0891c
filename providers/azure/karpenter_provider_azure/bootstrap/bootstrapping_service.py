"""Gets custom data and the command of the first boot from AKS's bootstrapping service.

The answer has a place for the bootstrap token instead of the token.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final, Protocol, final
from urllib.parse import quote

from karpenter_core.errors import LaunchFailedError
from karpenter_provider_azure.bootstrap.provision_profile import provision_values
from karpenter_provider_azure.launch.boot_data import BootData

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["TIMEOUT_SECONDS", "BootstrappingService", "JsonPoster"]

TIMEOUT_SECONDS: Final = 30
ACTION: Final = "nodeBootstrapping:post"
FAILED_REASON: Final = "BootstrappingFailed"
"""Reason of a launch for which the service's answer is unusable."""

_TOKEN_PLACE: Final = "{{.TokenID}}.{{.TokenSecret}}"  # noqa: S105 - the place of one


class JsonPoster(Protocol):
    """The method of `JsonService` that the client calls."""

    def post(
        self,
        url: str,
        body: JsonMapping,
        *,
        action: str,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Return the answer to a POST, which the service may receive more than once.

        Raises:
            CloudProviderError: it refused, or did not answer.
        """
        ...


@final
class BootstrappingService:
    """A client of the service; callable from any thread."""

    def __init__(
        self, settings: AzureSettings, poster: JsonPoster, *, bearer_token: Callable[[], str]
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
