"""Records in a ProvisioningRequest that a plan found no capacity for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.lifecycle.provisioning_request.parameters import parse_parameters
from karpenter_core.lifecycle.provisioning_request.status import with_attempt_ended, with_failure

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.provisioning_request import ProvisioningRequest

__all__ = ["with_no_capacity"]


def with_no_capacity(
    request: ProvisioningRequest, why: str, *, now: datetime
) -> ProvisioningRequest:
    """Return the request with a back-off, or failed if it is not to be tried again (`noRetry`)."""
    parameters = parse_parameters(request)
    if not isinstance(parameters, str) and not parameters.is_retried:
        return with_failure(request, why, reason="CapacityIsNotFound", now=now)
    return with_attempt_ended(request, why, now=now)
