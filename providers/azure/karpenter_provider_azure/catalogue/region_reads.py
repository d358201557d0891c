"""Lists the VM sizes and the quotas of the region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_provider_azure.arm.reads import ArmReads

__all__ = ["list_skus", "list_usages"]

SKUS_API_VERSION: Final = "2021-07-01"
USAGES_API_VERSION: Final = "2024-07-01"


def list_skus(arm: ArmReads) -> list[JsonObject]:
    """Return the items of Microsoft.Compute/skus for the region.

    Raises:
        CloudProviderError: Azure refused or did not answer.
    """
    return arm.list_all(
        f"/subscriptions/{arm.subscription_id}/providers/Microsoft.Compute/skus",
        api_version=SKUS_API_VERSION,
        action="skus:list",
        query={"$filter": f"location eq '{arm.location}'"},
    )


def list_usages(arm: ArmReads) -> list[JsonObject]:
    """Return the items of Microsoft.Compute/locations/usages for the region.

    Raises:
        CloudProviderError: Azure refused or did not answer.
    """
    return arm.list_all(
        f"/subscriptions/{arm.subscription_id}/providers/Microsoft.Compute/locations"
        f"/{arm.location}/usages",
        api_version=USAGES_API_VERSION,
        action="usages:list",
    )
