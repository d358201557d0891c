"""Classifies errors of AWS by their code and message.

Where a code is too vague, the message decides. Everything but `core_error` is a plain function of
the code and message of an answer, whether it came as the failure of a call or among the `Errors` of
a fleet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    ExhaustedScope,
    ThrottledError,
)
from karpenter_core.provider.kit.calls.http_failures import parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DRY_RUN_SUCCEEDED",
    "RESERVATION_EXCEEDED",
    "SERVICE_LINKED_ROLE_DENIED",
    "ApiFailure",
    "LaunchFailure",
    "api_failure",
    "core_error",
    "error_text",
    "exhausted_scope",
    "is_already_there",
    "is_dry_run_success",
    "is_instance_profile_missing",
    "is_launch_template_missing",
    "is_not_found",
    "is_out_of_addresses",
    "is_permission_missing",
    "is_server_fault",
    "is_spread_limit",
    "is_throttled",
    "is_timeout",
    "is_token_used",
    "is_unauthorized",
    "is_unfulfillable",
    "is_user_data_too_large",
    "launch_failure",
    "needs_other_credentials",
]

DRY_RUN_SUCCEEDED: Final = "DryRunOperation"
_INSUFFICIENT_ADDRESSES: Final = "InsufficientFreeAddressesInSubnet"
_INSUFFICIENT_PREFIXES: Final = "InsufficientCidrBlocks"
_NO_ADDRESS_OR_PREFIX: Final = "sufficient free Ipv4 addresses or prefixes"
"""The text with which a new interface finds no prefix in its subnet; its code is that of any bad parameter."""
RESERVATION_EXCEEDED: Final = "ReservationCapacityExceeded"
SERVICE_LINKED_ROLE_DENIED: Final = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"

# The tables are upstream's; what is added to them says so.
_UNFULFILLABLE: Final = frozenset(
    {
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        _INSUFFICIENT_ADDRESSES,
        _INSUFFICIENT_PREFIXES,
        "MaxFleetCountExceeded",
        RESERVATION_EXCEEDED,
    }
)
_INVALID_FLEET: Final = "InvalidFleetConfiguration"
_NOT_SOLD_IN_ZONE: Final = "is not supported in your requested Availability Zone"
"""The text with which a fleet refuses a type in a zone, whose only code is that of any invalid fleet; other
launches have the code `Unsupported` for it (aws/karpenter-provider-aws#6483)."""
_NOT_FOUND: Final = frozenset(
    {
        "InvalidCapacityReservationId.NotFound",
        "InvalidInstanceID.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.NotFound",
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",  # what boto3 shows for the code above
        "NoSuchEntity",
        "ParameterNotFound",
        "ResourceNotFoundException",  # EKS and zonal shifts
        "InvalidPlacementGroup.Unknown",
    }
)
# The lists of botocore's standard retry mode.
_THROTTLED: Final = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "BandwidthLimitExceeded",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "SlowDown",
        "EC2ThrottledException",
        "TransactionInProgressException",
    }
)
_TIMEOUTS: Final = frozenset({"RequestTimeout", "RequestTimeoutException"})
_CREDENTIALS_REFUSED: Final = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""The credentials are wrong or have expired."""
_CLOCK_WRONG: Final = frozenset({"RequestExpired", "RequestTimeTooSkewed"})
"""A request is signed with a time that is more than some minutes from that of AWS."""
_CLOCK_TEXTS: Final = ("Signature expired", "Signature not yet current")
_CLOCK_HINT: Final = "the clock of this machine differs from that of AWS: correct it"
_PERMISSION_MISSING: Final = frozenset(
    {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}
)
"""The credentials are good, and no policy permits the call."""
_UNAUTHORIZED: Final = (
    _CREDENTIALS_REFUSED
    | _CLOCK_WRONG
    | _PERMISSION_MISSING
    | {"AuthorizationError", "NotAuthorized", "OptInRequired"}
)
_SERVER_FAULTS: Final = frozenset(
    {"InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "InternalServerError"}
)
_SERVER_STATUS: Final = 500
_ENCODED: Final = " Encoded authorization failure message"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFailure:
    """A refusal by AWS."""

    code: str
    message: str
    status: int
    """Of HTTP; 0 when it did not come as the failure of a call."""
    retry_after: str
    """The header `Retry-After`, which EC2 does not send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFailure:
    """Reason and message of a failed launch in the condition `Launched`."""

    reason: str
    message: str


def is_not_found(code: str) -> bool:
    """Whether what was asked for does not exist."""
    return code in _NOT_FOUND


def is_already_there(code: str) -> bool:
    """Whether what was to be made exists."""
    return code == "EntityAlreadyExists"


def is_dry_run_success(code: str) -> bool:
    """Whether a dry run would have succeeded."""
    return code == DRY_RUN_SUCCEEDED


def is_unfulfillable(code: str, message: str) -> bool:
    """Whether there is no capacity now, be it stock, a quota or addresses."""
    return (
        code in _UNFULFILLABLE
        or (code == _INVALID_FLEET and _NOT_SOLD_IN_ZONE in message)
        or is_out_of_addresses(code, message)
    )


def is_out_of_addresses(code: str, message: str) -> bool:
    """Whether a subnet has too few free addresses, or none that are next to each other for a prefix."""
    return code in {_INSUFFICIENT_ADDRESSES, _INSUFFICIENT_PREFIXES} or (
        code == "InvalidParameterValue" and _NO_ADDRESS_OR_PREFIX in message
    )


def is_throttled(code: str) -> bool:
    """Whether there were too many calls; nothing was done."""
    return code in _THROTTLED


def is_timeout(code: str) -> bool:
    """Whether AWS gave up before it had read or carried out a call; it may be carried out."""
    return code in _TIMEOUTS


def is_unauthorized(code: str) -> bool:
    """Whether credentials are missing, wrong, or do not permit the call."""
    return code in _UNAUTHORIZED or code.startswith(("AuthFailure.", "InvalidSignature"))


def is_permission_missing(code: str) -> bool:
    """Whether a policy is what refuses the call, rather than the credentials."""
    return code in _PERMISSION_MISSING


def needs_other_credentials(error: Exception) -> bool:
    """Whether a call failed because there are no credentials, or AWS takes them for wrong or expired."""
    failure = api_failure(error)
    if failure is None:
        return _has_no_credentials(error)
    return failure.code in _CREDENTIALS_REFUSED


def _has_no_credentials(error: Exception) -> bool:
    from botocore.exceptions import NoAuthTokenError, NoCredentialsError, TokenRetrievalError

    return isinstance(error, NoCredentialsError | NoAuthTokenError | TokenRetrievalError)


def is_server_fault(failure: ApiFailure) -> bool:
    """Whether AWS itself failed; a call may succeed when repeated.

    EC2 has throttling and a lack of stock among its server errors, and both say what came of a call.
    """
    if is_throttled(failure.code) or is_unfulfillable(failure.code, failure.message):
        return False
    return failure.code in _SERVER_FAULTS or failure.status >= _SERVER_STATUS


def is_token_used(code: str) -> bool:
    """Whether a launch is refused because an earlier call with its token is known."""
    return code == "IdempotentParameterMismatch"


def is_launch_template_missing(code: str) -> bool:
    """Whether a launch template that was to be used does not exist."""
    return code in {
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.NotFound",
    }


def is_instance_profile_missing(code: str, message: str) -> bool:
    """Whether the instance profile named by a launch does not exist (EC2 has no code for it)."""
    return code == "InvalidParameterValue" and "Invalid IAM Instance Profile name" in message


def is_user_data_too_large(code: str, message: str) -> bool:
    """Whether user data has more than 16,384 bytes."""
    return code == "InvalidUserData.Malformed" and "User data is limited to" in message


def is_spread_limit(message: str) -> bool:
    """Whether a spread placement group has its seven instances in the zone.

    It comes with the code of a stock-out, yet only the group is full.
    """
    return "limit of instances in this spread placement group" in message


def exhausted_scope(code: str, message: str) -> ExhaustedScope:
    """Return how far a shortage with this code reaches."""
    if is_out_of_addresses(code, message):
        return ExhaustedScope.NODE_CLASS
    match code:
        case "MaxFleetCountExceeded":
            return ExhaustedScope.REGION
        case "VcpuLimitExceeded" | "MaxSpotInstanceCountExceeded":
            return ExhaustedScope.FAMILY_QUOTA
        case _:
            return ExhaustedScope.OFFERING


def launch_failure(code: str, message: str) -> LaunchFailure:
    """Return the condition reason and text for a launch refused with this code; first match wins.

    Shortages come last: a launch with none but shortages is not a failure but a lack of capacity.
    """
    if is_out_of_addresses(code, message):
        text = "the subnet has too few free addresses"
        return LaunchFailure(
            reason="InsufficientFreeAddressesInSubnet",
            message=f"{text}: {error_text(code, message)}",
        )
    for codes, fragment, reason, text in _LAUNCH_FAILURES:
        if (not codes or any(code == c or code.startswith(f"{c}.") for c in codes)) and (
            fragment in message
        ):
            return LaunchFailure(reason=reason, message=f"{text}: {error_text(code, message)}")
    return LaunchFailure(
        reason="LaunchFailed", message=f"the launch failed: {error_text(code, message)}"
    )


_DENIED: Final = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure")
# (codes, any if empty; text in the message; reason; what it means)
_LAUNCH_FAILURES: Final[tuple[tuple[tuple[str, ...], str, str, str], ...]] = (
    (
        (SERVICE_LINKED_ROLE_DENIED,),
        "",
        "SpotSLRCreationFailed",
        "the service-linked role for spot instances may not be created",
    ),
    (
        _DENIED,
        "with an explicit deny in a permissions boundary",
        "Unauthorized",
        "not authorized, because of a permissions boundary",
    ),
    (
        _DENIED,
        "with an explicit deny in a service control policy",
        "Unauthorized",
        "not authorized, because of a service control policy",
    ),
    (
        _DENIED,
        "Not authorized for images",
        "AMIAuthorizationFailure",
        "not authorized to use the image",
    ),
    (
        tuple(sorted(_CREDENTIALS_REFUSED - {"AuthFailure"} | _CLOCK_WRONG)),
        "",
        "Unauthorized",
        "AWS does not accept the signature of the call",
    ),
    (
        ("AuthFailure",),
        "not able to validate the provided access credentials",
        "Unauthorized",
        "the credentials are wrong, or the clock of this machine is",
    ),
    (_DENIED, "", "Unauthorized", "not authorized, because no identity-based policy allows it"),
    (
        ("InvalidParameter", "InvalidParameterValue", "InvalidParameterCombination"),
        "belong to different networks",
        "SecurityGroupSubnetVPCMismatch",
        "security groups and subnets must be in one VPC",
    ),
    (
        (),
        "iamInstanceProfile.name is invalid",
        "InstanceProfileNameInvalid",
        "the instance profile of the EC2NodeClass does not exist",
    ),
    (
        (),
        "Invalid IAM Instance Profile name",
        "InstanceProfileNameInvalid",
        "the instance profile of the EC2NodeClass does not exist",
    ),
    (
        ("InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"),
        "",
        "LaunchTemplateNotFound",
        "the launch template does not exist",
    ),
    (
        ("InvalidUserData.Malformed",),
        "User data is limited to",
        "UserDataSizeLimitExceeded",
        "the user data has more than 16,384 bytes",
    ),
    (("InvalidAMIID.Malformed",), "", "InvalidAMIID", "the image id is malformed"),
    (
        ("InvalidAMIID.NotFound",),
        "",
        "AMINotFound",
        "the image does not exist, or may not be used",
    ),
    (("RequestLimitExceeded",), "", "RequestLimitExceeded", "too many requests"),
    (("InternalError",), "", "InternalError", "EC2 failed"),
    (
        (),
        "not eligible for Free Tier",
        "FreeTierIneligible",
        "the account may only use types of the free tier",
    ),
    (("MaxFleetCountExceeded",), "", "FleetQuotaExceeded", "the quota of fleets is used up"),
    (
        ("PendingVerification",),
        "",
        "AccountPendingVerification",
        "the account is not yet verified for this region",
    ),
    (
        ("MaxSpotInstanceCountExceeded",),
        "",
        "SpotQuotaExceeded",
        "the quota of spot instances is used up",
    ),
    (("VcpuLimitExceeded",), "", "VCPULimitExceeded", "the quota of vCPUs is used up"),
)


def error_text(code: str, message: str) -> str:
    """Return code and message as one text.

    An encoded authorization message is left out: it differs in every answer, so equal refusals would
    look like news, and it takes a call of STS to read it.
    """
    message = message.partition(_ENCODED)[0].rstrip()
    text = f"{code}: {message}" if message else code
    if code in _CLOCK_WRONG or any(each in message for each in _CLOCK_TEXTS):
        return f"{text} ({_CLOCK_HINT})"
    return text


def api_failure(error: BaseException) -> ApiFailure | None:
    """Read the refusal out of botocore's `ClientError`; None for any other exception."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return None
    answer = cast("Mapping[str, Mapping[str, object]]", response)
    said = answer.get("Error", {})
    metadata = answer.get("ResponseMetadata", {})
    status, headers = metadata.get("HTTPStatusCode", 0), metadata.get("HTTPHeaders", {})
    return ApiFailure(
        code=str(said.get("Code", "")),
        message=str(said.get("Message", "")),
        status=status if isinstance(status, int) else 0,
        retry_after=cast("Mapping[str, str]", headers).get("retry-after", ""),
    )


def core_error(error: Exception, *, action: str) -> CloudProviderError:
    """Return the core's error for what a client of boto3 raised in `action` (`ec2:CreateFleet`).

    Chain it: `raise core_error(error, action="ec2:CreateFleet") from error`. It is `ThrottledError`,
    `AuthError` (also when there are no credentials at all) or, for the rest, `CloudProviderError`;
    what is not found means different things to different callers, who look before they come here.
    """
    failure = api_failure(error)
    if failure is None:
        if _has_no_credentials(error):
            return AuthError(f"{action}: {error}", action=action)
        return CloudProviderError(f"{action}: {error}")
    said = f"{action}: {error_text(failure.code, failure.message)}"
    if is_throttled(failure.code):
        return ThrottledError(said, retry_after=parse_retry_after(failure.retry_after))
    if is_unauthorized(failure.code):
        return AuthError(said, action=action)
    return CloudProviderError(said)
