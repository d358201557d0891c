"""Reads the parameters of a ProvisioningRequest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.provisioning_request import (
    ATOMIC_SCALE_UP,
    CHECK_CAPACITY,
    SUPPORTED_CLASSES,
)

if TYPE_CHECKING:
    from karpenter_core.api.provisioning_request import ProvisioningRequest

__all__ = [
    "DEFAULT_VALIDITY",
    "MOST_PODS",
    "Parameters",
    "PartialCheck",
    "is_ours",
    "parse_parameters",
]

DEFAULT_VALIDITY: Final = timedelta(days=7)
"""Time after its creation at which a request fails that is not provisioned (upstream default)."""

MOST_PODS: Final = 100_000
"""The most pods of one request: every attempt plans all of them at once."""

VALID_UNTIL_SECONDS: Final = "ValidUntilSeconds"
NO_RETRY: Final = "noRetry"
PARTIAL_CHECK: Final = "partialCapacityCheck"
PROCESSOR_INSTANCE: Final = "processorInstance"
_BOOLEANS: Final = {"true": True, "false": False}
_LONGEST_SECONDS: Final = 10 * 365 * 24 * 3600


class PartialCheck(StrEnum):
    """The ways to check the capacity of each pod set, where that of all of them is not there."""

    BOOK = "bookPartial"
    """The capacity of the pod sets that fit is booked."""
    CHECK_ONLY = "checkOnly"
    """The status names the pod sets that fit, and nothing is booked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The parameters that a class reads; others are ignored."""

    validity: timedelta
    is_retried: bool = True
    partial_check: PartialCheck | None = None


def is_ours(request: ProvisioningRequest) -> bool:
    """Tell whether this controller serves a request.

    Other classes belong to other controllers, and so do requests for capacity checks that name an
    instance of Cluster Autoscaler.
    """
    if request.spec.provisioning_class_name not in SUPPORTED_CLASSES:
        return False
    return not (
        request.spec.provisioning_class_name == CHECK_CAPACITY
        and request.spec.parameters.get(PROCESSOR_INSTANCE)
    )


def parse_parameters(request: ProvisioningRequest) -> Parameters | str:
    """Return the parameters of a request, or what is wrong with it and why."""
    if request.pod_count > MOST_PODS:
        return f"podSets ask for {request.pod_count} pods, more than {MOST_PODS}"
    parameters = request.spec.parameters
    validity, is_retried = DEFAULT_VALIDITY, True
    if request.spec.provisioning_class_name == ATOMIC_SCALE_UP:
        text = parameters.get(VALID_UNTIL_SECONDS, "")
        if text:
            if not (text.isdecimal() and 0 < int(text) <= _LONGEST_SECONDS):
                return f'parameter {VALID_UNTIL_SECONDS} is "{text}", not a number of seconds'
            validity = timedelta(seconds=int(text))
        return Parameters(validity=validity)
    text = parameters.get(NO_RETRY, "")
    if text:
        if text.lower() not in _BOOLEANS:
            return f'parameter {NO_RETRY} is "{text}", not true or false'
        is_retried = not _BOOLEANS[text.lower()]
    text = parameters.get(PARTIAL_CHECK, "")
    if text and text not in set(PartialCheck):
        supported = " or ".join(PartialCheck)
        return f'parameter {PARTIAL_CHECK} is "{text}", not {supported}'
    return Parameters(
        validity=validity,
        is_retried=is_retried,
        partial_check=PartialCheck(text) if text else None,
    )
