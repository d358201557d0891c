"""Declares the calls of Azure Resource Manager that the parts of the provider make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from karpenter_provider_azure.json_values import object_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_provider_azure.arm.sdk_sender import ArmAnswer

__all__ = ["NETWORK_API_VERSION", "ArmCalls", "ArmReads", "properties_of"]

NETWORK_API_VERSION: Final = "2024-05-01"
"""Of reads of Microsoft.Network."""


class ArmReads(Protocol):
    """The reading methods of `ArmClient`."""

    @property
    def subscription_id(self) -> str:
        """The subscription of the cluster."""
        ...

    @property
    def location(self) -> str:
        """The region of the cluster."""
        ...

    def get(
        self, path: str, *, api_version: str, action: str, query: Mapping[str, str] | None = None
    ) -> JsonObject:
        """Return one resource.

        Raises:
            ArmNotFoundError: it does not exist.
            CloudProviderError: Azure refused or did not answer.
        """
        ...

    def list_all(
        self, path: str, *, api_version: str, action: str, query: Mapping[str, str] | None = None
    ) -> list[JsonObject]:
        """Return the items of all pages.

        Raises:
            CloudProviderError: Azure refused or did not answer.
        """
        ...


class ArmCalls(ArmReads, Protocol):
    """The methods of `ArmClient` that change something, or follow what was begun."""

    def send(
        self,
        method: str,
        path: str,
        *,
        api_version: str,
        action: str,
        body: JsonMapping | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ArmAnswer:
        """Return the answer to one request."""
        ...

    def follow(self, url: str, *, action: str) -> ArmAnswer:
        """Return the answer to a GET of a URL that an answer named."""
        ...


def properties_of(resource: JsonMapping) -> JsonMapping:
    """Return the properties of a resource; none if it has none."""
    return object_of(resource.get("properties"))
