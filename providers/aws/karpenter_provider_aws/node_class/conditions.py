"""Names an EC2NodeClass's conditions, and reads AWS errors for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import AuthError
from karpenter_core.provider.kit.node_class.call_errors import CallErrors
from karpenter_provider_aws.discovery.call_errors import is_refusal, refusal_behind

if TYPE_CHECKING:
    from karpenter_core.errors import CloudProviderError

__all__ = [
    "AMIS_READY",
    "AWS_ERRORS",
    "CAPACITY_RESERVATIONS_READY",
    "INSTANCE_PROFILE_READY",
    "PLACEMENT_GROUP_READY",
    "SECURITY_GROUPS_READY",
    "SUBNETS_READY",
    "stable_text",
]

AMIS_READY: Final = "AMIsReady"
SUBNETS_READY: Final = "SubnetsReady"
SECURITY_GROUPS_READY: Final = "SecurityGroupsReady"
INSTANCE_PROFILE_READY: Final = "InstanceProfileReady"
PLACEMENT_GROUP_READY: Final = "PlacementGroupReady"
CAPACITY_RESERVATIONS_READY: Final = "CapacityReservationsReady"

# EC2 adds the whole decision in a form that only it can read, another text each time.
_ENCODED_DECISION: Final = re.compile(r"\s*Encoded authorization failure message:\s*\S+")


def _code(error: CloudProviderError) -> str:
    """Return the code; none for a lack of permission, which has many codes and one reason."""
    failure = None if isinstance(error, AuthError) else refusal_behind(error)
    return "" if failure is None else failure.code


AWS_ERRORS: Final = CallErrors(is_refusal=is_refusal, code=_code, varying_text=_ENCODED_DECISION)
stable_text: Final = AWS_ERRORS.stable_text
