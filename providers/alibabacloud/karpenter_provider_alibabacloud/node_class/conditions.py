"""Names an ECSNodeClass's conditions; reads the cloud's errors for them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.node_class.call_errors import CallErrors
from karpenter_core.provider.kit.node_class.parts import RETRY_SOON, RETRY_USUAL
from karpenter_provider_alibabacloud.codes import ErrorClass
from karpenter_provider_alibabacloud.discovery.call_errors import is_refusal, refusal_behind

if TYPE_CHECKING:
    from karpenter_core.errors import CloudProviderError

__all__ = [
    "ALIBABA_CLOUD_ERRORS",
    "CAPACITY_RESERVATIONS_READY",
    "IMAGES_READY",
    "NOTHING_FOUND",
    "SECURITY_GROUPS_READY",
    "VSWITCHES_READY",
    "stable_text",
]

VSWITCHES_READY: Final = "VSwitchesReady"
SECURITY_GROUPS_READY: Final = "SecurityGroupsReady"
IMAGES_READY: Final = "ImagesReady"
CAPACITY_RESERVATIONS_READY: Final = "CapacityReservationsReady"

NOTHING_FOUND: Final = timedelta(seconds=15)
"""Time until the next look for what terms do not find: it may be made at the same time."""

_REQUEST_ID: Final = re.compile(r"\s*\(request [^)]*\)|\s*[Rr]equest ?[Ii][Dd]:? *[0-9A-F-]{36}")


def _code(error: CloudProviderError) -> str:
    failure = refusal_behind(error)
    return "" if failure is None else failure.code


def _retry_after(error: CloudProviderError) -> timedelta:
    failure = refusal_behind(error)
    lacks_funds = failure is not None and failure.error_class is ErrorClass.FUNDS
    return RETRY_USUAL if lacks_funds else RETRY_SOON


ALIBABA_CLOUD_ERRORS: Final = CallErrors(
    is_refusal=is_refusal,
    code=_code,
    varying_text=_REQUEST_ID,
    retry_refused_after=_retry_after,
)
stable_text: Final = ALIBABA_CLOUD_ERRORS.stable_text
