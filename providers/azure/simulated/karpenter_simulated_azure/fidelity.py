"""Says how well each error code of the simulated Azure is known to be Azure's.

A code is confirmed if Karpenter's provider for Azure handles it, or if a published answer of Azure has
it with the status that is served here. The others are general knowledge: a provider must not depend on
their spelling.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CODES", "Evidence"]


class Evidence(StrEnum):
    """Evidence for a code."""

    CONFIRMED = "confirmed"
    UNVERIFIED = "unverified"


_CONFIRMED: Final = (
    "AllocationFailed",
    "AuthorizationFailed",
    "InvalidResourceReference",
    "InvalidResourceType",
    "LinkedAuthorizationFailed",
    "MissingApiVersionParameter",
    "NicReservedForAnotherVm",
    "NoRegisteredProviderFound",
    "OperationNotAllowed",
    "OverconstrainedAllocationRequest",
    "OverconstrainedZonalAllocationRequest",
    "PropertyChangeNotAllowed",
    "ResourceNotFound",
    "SkuNotAvailable",
    "SubnetIsFull",
    "SubscriptionRequestsThrottled",
    "TooManyRequests",
    "ZonalAllocationFailed",
)
_UNVERIFIED: Final = (
    "AuthenticationFailed",
    "AuthenticationFailedInvalidHeader",
    "BadRequest",
    "Conflict",
    "ExpiredAuthenticationToken",
    "FailedIdentityOperation",
    "GalleryImageNotFound",
    "HttpMethodNotSupported",
    "ImageNotFound",
    "InvalidAuthenticationToken",
    "InvalidAuthenticationTokenAudience",
    "InvalidAuthenticationTokenTenant",
    "InvalidAvailabilityZone",
    "InvalidParameter",
    "InvalidQuery",
    "InvalidRequestContent",
    "InvalidRequestFormat",
    "InvalidRequestUri",
    "InvalidTagNameCharacters",
    "InvalidTags",
    "LocationNotAvailableForResourceType",
    "LocationRequired",
    "NicInUse",
    "NotFound",
    "NotSupported",
    "OperationPreempted",
    "ParentResourceNotFound",
    "PreconditionFailed",
    "RateLimiting",
    "ResourceGroupNotFound",
    "SubscriptionNotFound",
    "VMSizeIsNotPermittedToEnableAcceleratedNetworking",
)
CODES: Final[Mapping[str, Evidence]] = {
    **dict.fromkeys(_CONFIRMED, Evidence.CONFIRMED),
    **dict.fromkeys(_UNVERIFIED, Evidence.UNVERIFIED),
}
"""Every code that the simulated Azure answers with.

Times of operations and the numbers of rate limits are unverified, too.
"""
