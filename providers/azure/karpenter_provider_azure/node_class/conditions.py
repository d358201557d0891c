"""Names an AKSNodeClass's conditions, and reads Azure errors for them."""

from __future__ import annotations

import re
from typing import Final

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.node_class.call_errors import CallErrors
from karpenter_provider_azure.arm.errors import ArmError

__all__ = [
    "AZURE_ERRORS",
    "IMAGES_READY",
    "KUBERNETES_VERSION_READY",
    "LOCAL_DNS_READY",
    "SUBNETS_READY",
    "error_code",
    "is_refusal",
]

KUBERNETES_VERSION_READY: Final = "KubernetesVersionReady"
IMAGES_READY: Final = "ImagesReady"
SUBNETS_READY: Final = "SubnetsReady"
LOCAL_DNS_READY: Final = "LocalDNSReady"

_CLIENT_ERRORS: Final = range(400, 500)
_PASSING: Final = frozenset({409, 412})
"""Statuses of refusals that say nothing about the next attempt: a conflict, a changed resource."""
_ID: Final = r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}"
_QUOTES: Final = r"[ :=\"']*"
_VARYING: Final = re.compile(
    rf"\s*\b(?:trace|correlation|request|tracking|operation|activity)[ _-]?id{_QUOTES}{_ID}[\"']?\.?"
    rf"|\s*\btimestamp{_QUOTES}\d{{4}}-\d\d-\d\d[ T][\d:.]+(?:Z| UTC)?[\"']?\.?",
    re.IGNORECASE,
)
"""Parts of messages that differ each time."""


def is_refusal(error: CloudProviderError) -> bool:
    """Whether Azure answered, and would answer the same call alike."""
    if isinstance(error, AuthError):
        return True
    return (
        isinstance(error, ArmError)
        and error.status in _CLIENT_ERRORS
        and error.status not in _PASSING
    )


def error_code(error: CloudProviderError) -> str:
    """Return Azure's code; empty if it has none."""
    failure = error if isinstance(error, ArmError) else error.__cause__
    return failure.code if isinstance(failure, ArmError) else ""


AZURE_ERRORS: Final = CallErrors(is_refusal=is_refusal, code=error_code, varying_text=_VARYING)
