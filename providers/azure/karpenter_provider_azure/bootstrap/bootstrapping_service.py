"""Gets custom data and the command of the first boot from AKS's bootstrapping service.

The answer has a place for the bootstrap token instead of the token.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote

import msgspec

from karpenter_core.errors import LaunchFailedError
from karpenter_core.provider.kit.calls.rest import RestClient, RestRefusedError
from karpenter_provider_azure.bootstrap.provision_profile import provision_values

if TYPE_CHECKING:
    from karpenter_core.provider.kit.calls.caller import AttemptObserver
    from karpenter_provider_azure.arm.credentials import TokenCredential
    from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["BootstrapData", "BootstrappingService"]

TIMEOUT: Final = timedelta(seconds=30)
ACTION: Final = "nodeBootstrapping:post"
FAILED_REASON: Final = "BootstrappingFailed"
"""Reason of a launch for which the service gives nothing usable."""

_TOKEN_PLACE: Final = "{{.TokenID}}.{{.TokenSecret}}"  # noqa: S105 - the place of one


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapData:
    """The first boot of a node, as the service describes it."""

    custom_data: str = field(repr=False)
    """In base64."""
    command: str = field(repr=False)
    """Of the custom script extension, which completes the boot."""


class _Answer(msgspec.Struct):
    custom_data: str | None = msgspec.field(name="customData", default=None)
    cse: str | None = None


@final
class BootstrappingService:
    """A client of the service; callable from any thread."""

    def __init__(
        self,
        settings: AzureSettings,
        credential: TokenCredential,
        *,
        timeout: timedelta = TIMEOUT,
        observe: AttemptObserver | None = None,
    ) -> None:
        """`timeout` is for each attempt."""
        scope = settings.cloud.scope

        def headers() -> dict[str, str]:
            return {"Authorization": f"Bearer {credential.get_token(scope).token}"}

        self._client: Final = RestClient(
            settings.nodebootstrapping_server_url,
            headers=headers,
            timeout=timeout,
            observe=observe,
        )
        self._path: Final = (
            f"/subscriptions/{quote(settings.azure_subscription_id)}"
            f"/resourceGroups/{quote(settings.arm_resource_group)}"
            f"/providers/Microsoft.ContainerService/managedclusters/{quote(settings.cluster_name)}"
            "/nodeBootstrapping"
        )

    def bootstrap_data(self, boot: BootConfiguration, *, image_id: str) -> BootstrapData:
        """Return the first boot of a node.

        Raises:
            NodeClassNotReadyError: a field of the NodeClass is unusable; names object, field and value.
            LaunchFailedError: the service refused the profile, or its answer is unusable.
            CloudProviderError: it did not answer, throttled the call or denied access.
        """
        body = provision_values(boot, image_id=image_id)
        try:
            # Nothing is created: a call without an answer can be made again.
            answer = self._client.call(
                ACTION, "POST", self._path, _Answer, body=body, repeatable=True
            )
        except RestRefusedError as error:
            raise LaunchFailedError(str(error), reason=FAILED_REASON) from error
        token = boot.cluster.bootstrap_token
        return BootstrapData(
            custom_data=_custom_data(_present("customData", answer.custom_data), token),
            command=_present("cse", answer.cse).replace(_TOKEN_PLACE, token),
        )


def _present(name: str, value: str | None) -> str:
    if not value:
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
