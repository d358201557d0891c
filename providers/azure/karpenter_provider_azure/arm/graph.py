"""Queries Azure Resource Graph, which answers seconds to a minute late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.calls.pages import token_pages
from karpenter_provider_azure.json_values import listed_items

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_provider_azure.arm.client import ArmClient

__all__ = ["query"]

ACTION: Final = "resources:query"
_PATH: Final = "/providers/Microsoft.ResourceGraph/resources"
_API_VERSION: Final = "2021-03-01"
_SKIP_TOKEN: Final = "$skipToken"  # noqa: S105 - the name of a field


def query(client: ArmClient, text: str) -> list[JsonObject]:
    """Return the rows of all pages of a query in the client's subscription.

    Raises:
        CloudProviderError: a page is missing or cannot be read; a part of the rows is never returned.
    """

    def fetch(token: str | None) -> JsonObject:
        options = {"resultFormat": "objectArray"} | ({_SKIP_TOKEN: token} if token else {})
        page = client.send(
            "POST",
            _PATH,
            api_version=_API_VERSION,
            action=ACTION,
            body={"subscriptions": [client.subscription_id], "query": text, "options": options},
        ).body
        if page.get("resultTruncated") in {True, "true"} and not page.get(_SKIP_TOKEN):
            raise CloudProviderError(f"{ACTION}: the answer is truncated and has no {_SKIP_TOKEN}")
        return page

    pages = token_pages(
        fetch,
        lambda page: cast("str | None", page.get(_SKIP_TOKEN)),
        listing=ACTION,
        token_name=_SKIP_TOKEN,
    )
    return listed_items(pages, "data", action=ACTION)
