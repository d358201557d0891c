"""Classifies errors of Alibaba Cloud by their code and message.

The tables are data. Codes come from two sources, as the failure of a call and in the results of a
provisioning group, and mean the same in both. Where a code is too vague, the message decides.
Everything but `core_error` is a plain function of the answer.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    ExhaustedScope,
    ThrottledError,
)

__all__ = [
    "DRY_RUN_SUCCEEDED",
    "NO_CREDENTIALS",
    "SHORTAGES",
    "ApiError",
    "ErrorClass",
    "classify",
    "core_error",
    "exhausted_scope",
    "launch_reason",
]

DRY_RUN_SUCCEEDED: Final = "DryRunOperation"
"""Error code of a dry run that would have succeeded."""
NO_CREDENTIALS: Final = "InvalidCredentials"
"""Error code of the SDK itself when it has no credentials."""

_NOT_FOUND_STATUS: Final = 404
_TOO_MANY_STATUS: Final = 429
_SERVER_STATUS: Final = 500


class ErrorClass(StrEnum):
    """Classes of errors, by the reaction to them."""

    CAPACITY = "capacity"
    """None left of one type in one zone under one capacity type: try another offering."""
    DISK_CATEGORY = "disk-category"
    """The zone does not have this kind of disk for the type: another kind, then another zone."""
    ADDRESSES = "addresses"
    """The vSwitch has no free address: try another one."""
    QUOTA = "quota"
    """The account may have no more of the instance type in the region, or of vCPUs in a zone."""
    DISK_QUOTA = "disk-quota"
    """The account may have no more of a kind of disk in the zone."""
    OTHER_QUOTA = "other-quota"
    """A quota of something else, of tags say: no other instance type would help."""
    SPOT_PRICE = "spot-price"
    """Spot costs more than the limit that was given: spot cannot be had now."""
    THROTTLED = "throttled"
    """Too many calls; nothing was done."""
    TRANSIENT = "transient"
    """The cloud failed, or did not answer: it may have done what was asked."""
    IN_PROGRESS = "in-progress"
    """An earlier request with the same token is still being carried out: the same token, later."""
    PROTECTED = "protected"
    """The instance may not be terminated until a user lifts its protection."""
    NOT_FOUND = "not-found"
    """The requested resource does not exist."""
    AUTH = "auth"
    """Credentials are missing or wrong, or do not permit the action."""
    CONFIGURATION = "configuration"
    """The request cannot be carried out: a field of the NodeClass must be corrected."""
    STATE = "state"
    """Not in the state that the resource is in now: ask later."""
    FUNDS = "funds"
    """The account cannot pay."""
    DRY_RUN = "dry-run"
    """The dry run was a success."""
    UNKNOWN = "unknown"
    """A code that no table has."""


SHORTAGES: Final = frozenset(
    {
        ErrorClass.CAPACITY,
        ErrorClass.DISK_CATEGORY,
        ErrorClass.ADDRESSES,
        ErrorClass.QUOTA,
        ErrorClass.DISK_QUOTA,
        ErrorClass.SPOT_PRICE,
    }
)
"""Classes that end as `InsufficientCapacityError`: something else may be had."""

_EXACT: Final[dict[str, ErrorClass]] = {
    code: error_class
    for error_class, codes in {
        ErrorClass.CAPACITY: (
            "OperationDenied.NoStock",
            "NoInstanceStock",
            "InvalidResourceType.NotSupported",
            "OperationDenied.ZoneNotAllowed",
            "Zone.NotOnSale",
            "Zone.NotOpen",  # to the account
            "InvalidVpcZone.NotSupported",
            "ResourceNotAvailable",  # in the zone
            "InvalidZoneId.NotSupportShareEncryptedImage",
            "InvalidZoneId.NotSupportCreateWithShareEncryptedImage",
            "NotSupportSnapshotEncrypted.ZoneId",
            "NotSupportSnapshotEncrypted.InstanceType",
            "InstanceType.Offline",
            "ImageNotSupportInstanceType",
            "EnterpriseGroupLimited.InstanceType",
            "OperationDenied.PaygNotAvailable",
            # The account, or the type, may not have spot: on-demand may be had.
            "InvalidAccount.NotSupportSpot",
            "InvalidSpotAliUid",
            "InvalidSpotAuthorized",
            "OperationDenied.FlavorNotSupported",
            "Invalid.PrivatePoolOptions.NoStock",
            "Invalid.PrivatePoolOptions.status",  # it ended, or it has not begun
            "LackResource",  # of a capacity reservation
        ),
        ErrorClass.DISK_CATEGORY: (
            "OperationDenied.ZoneSystemCategoryNotMatch",
            "OperationDenied.CloudSSDNotSupported",
            "CategoryNotSupported",  # of the zone (API reference of RunInstances, error codes)
            "InvalidDiskCategory.NotSupported",  # of the type
            "InvalidSystemDiskCategory.ValueNotSupported",  # of the type
            "InvalidSystemDiskCategory.ValueUnauthorized",
            "InvalidPerformanceLevel.ValueNotSupported",  # of the zone or the type
        ),
        ErrorClass.ADDRESSES: (
            "InvalidVSwitchId.IpNotEnough",
            # "Don't have enough private IPs in this switch" (API reference of RunInstances).
            "QuotaExceeded.PrivateIpAddress",
        ),
        ErrorClass.QUOTA: ("QuotaExceed.ElasticQuota", "InstanceQuotaExceed"),
        ErrorClass.DISK_QUOTA: ("QuotaExceed.DiskCapacity",),
        ErrorClass.OTHER_QUOTA: (
            "SecurityGroupInstanceLimitExceed",
            "OperationDenied.QuotaExceed",  # of tags
        ),
        ErrorClass.THROTTLED: ("Throttling", "RequestThrottled"),
        ErrorClass.TRANSIENT: (
            "ServiceUnavailable",
            "InternalError",
            "UnknownError",
            "InternalServerError",
            # A signature is good for one request; sent again it is made anew.
            "SignatureNonceUsed",
        ),
        ErrorClass.IN_PROGRESS: ("IdempotentProcessing", "LastTokenProcessing"),
        ErrorClass.PROTECTED: ("InvalidOperation.DeletionProtection",),
        ErrorClass.AUTH: (
            NO_CREDENTIALS,
            "InvalidAccessKeyId.NotFound",
            "InvalidAccessKeyId",
            "InvalidAccessKeyId.Inactive",
            "SignatureDoesNotMatch",
            "IncompleteSignature",
            "InvalidTimeStamp.Expired",  # the instance's clock is wrong
            "Forbidden",
            "Forbbiden",  # as the API spells it
            "InvalidUser.PassRoleForbidden",
            "NoPermission",
            "StatusForbidden",  # ACK's word for it
            "ForbiddenCheckPermission",
        ),
        # Not found too, but what is not found is a field of the NodeClass.
        ErrorClass.CONFIGURATION: (
            "InvalidAction.NotFound",
            "InvalidImageId.NotFound",
            "InvalidVSwitchId.NotFound",
            "InvalidSecurityGroupId.NotFound",
            "InvalidKeyPairName.NotFound",
            "InvalidKeyPair.NotFound",
            "InvalidResourceGroup.NotFound",
            "InvalidRamRole.NotFound",
            "InvalidDeploymentSetId.NotFound",
            "IdempotentParameterMismatch",
            "MissingParameter",
        ),
        ErrorClass.STATE: ("IncorrectInstanceStatus", "OperationConflict"),
        ErrorClass.FUNDS: (
            "InvalidAccountStatus.NotEnoughBalance",
            "InsufficientBalance",
            "InsufficientBalance.AgentCredit",
            "Account.Arrearage",
        ),
        ErrorClass.DRY_RUN: (DRY_RUN_SUCCEEDED,),
    }.items()
    for code in codes
}
# Looked at after the exact codes, first match wins.
_PREFIXES: Final[tuple[tuple[str, ErrorClass], ...]] = (
    # The type cannot have what is asked for, or may not be had: another one may.
    ("InvalidInstanceType.", ErrorClass.CAPACITY),
    ("Throttling.", ErrorClass.THROTTLED),
    ("InvalidSpotPriceLimit.", ErrorClass.SPOT_PRICE),
    ("QuotaExceed", ErrorClass.OTHER_QUOTA),
    ("Forbidden.", ErrorClass.AUTH),
    ("NoPermission.", ErrorClass.AUTH),
    ("InvalidSecurityToken", ErrorClass.AUTH),
    ("InvalidSecurityGroupId.", ErrorClass.CONFIGURATION),
    ("InvalidSystemDiskSize.", ErrorClass.CONFIGURATION),
    ("InvalidUserData.", ErrorClass.CONFIGURATION),
    ("InvalidParameter", ErrorClass.CONFIGURATION),
    ("MissingParameter.", ErrorClass.CONFIGURATION),
    ("IncorrectInstanceStatus.", ErrorClass.STATE),
    ("InternalError.", ErrorClass.TRANSIENT),
    ("ServiceUnavailable.", ErrorClass.TRANSIENT),
    ("IdempotentProcessing.", ErrorClass.IN_PROGRESS),
    ("LastTokenProcessing.", ErrorClass.IN_PROGRESS),
)
# Messages that make a shortage of a type in a zone of a code that says nothing of them.
_SHORTAGE_MESSAGES: Final = (
    ("OperationDenied", "not available or not authorized"),
    ("OperationDenied", "out of usage"),
    ("InvalidParameter.Conflict", "does not support the specified instance type"),
)


_CREDENTIALS: Final = (
    NO_CREDENTIALS, "InvalidAccessKeyId", "InvalidSecurityToken", "SignatureDoesNotMatch",
)  # fmt: skip
"""Beginnings of the codes for keys and tokens that are missing, wrong, deleted or expired."""


class ApiError(Exception):
    """A call of Alibaba Cloud that failed: it was refused, or nothing answered.

    Nothing answered when `status` is 0; `code` is empty then, and the call may have been carried out.
    Callers turn it into an error of the core by `core_error`, once they have looked at its class.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        request_id: str = "",
        status: int = 0,
        retry_after: timedelta | None = None,
        *,
        action: str = "",
    ) -> None:
        self.code: Final = code
        self.message: Final = message
        self.request_id: Final = request_id
        self.status: Final = status
        """Of HTTP; 0 when there was no answer."""
        self.retry_after: Final = retry_after
        """The time that the cloud asks to wait, where it names one."""
        self.action: Final = action
        """As RAM policies name it: `ecs:DescribeInstances`."""
        self.may_be_done = False
        """Whether this try, or one before it of the same call, may have been carried out.

        `sdk` sets it for the last error of a call: a refusal of a later try does not say what came of an
        earlier one.
        """
        super().__init__(code, message, request_id, status, retry_after)

    @property
    def error_class(self) -> ErrorClass:
        """The class of the error."""
        return classify(self.code, status=self.status, message=self.message)

    @property
    def needs_other_credentials(self) -> bool:
        """Whether there were no credentials, or the cloud takes them for wrong or expired."""
        return self.code.startswith(_CREDENTIALS)

    def __str__(self) -> str:
        error_text = ": ".join(part for part in (self.action, self.code, self.message) if part)
        return f"{error_text} (request {self.request_id})" if self.request_id else error_text


def classify(code: str, *, status: int, message: str) -> ErrorClass:
    """Return what an error means.

    `status` is that of HTTP, 0 for a code found in the results of a provisioning group. No code and no
    status is a call without an answer.
    """
    code_class = _EXACT.get(code)
    if code_class is not None:
        return code_class
    if any(code == each and part in message.lower() for each, part in _SHORTAGE_MESSAGES):
        return ErrorClass.CAPACITY
    if code.startswith("InvalidParameter") and "quota" in f"{code} {message}".lower():
        return ErrorClass.QUOTA
    for prefix, error_class in _PREFIXES:
        if code.startswith(prefix):
            return error_class
    if status == _TOO_MANY_STATUS:
        return ErrorClass.THROTTLED
    if status >= _SERVER_STATUS or (not code and not status):
        return ErrorClass.TRANSIENT
    if status == _NOT_FOUND_STATUS or code.endswith(".NotFound"):
        return ErrorClass.NOT_FOUND
    return ErrorClass.UNKNOWN


def exhausted_scope(error_class: ErrorClass) -> ExhaustedScope:
    """Return how far a shortage of this class reaches."""
    if error_class is ErrorClass.QUOTA:
        return ExhaustedScope.FAMILY_QUOTA
    if error_class is ErrorClass.ADDRESSES:
        return ExhaustedScope.NODE_CLASS
    return ExhaustedScope.OFFERING


_LAUNCH_REASONS: Final = {
    ErrorClass.AUTH: "Unauthorized",
    ErrorClass.CONFIGURATION: "InvalidLaunch",
    ErrorClass.FUNDS: "AccountInArrears",
    ErrorClass.QUOTA: "QuotaExceeded",
    ErrorClass.DISK_QUOTA: "QuotaExceeded",
    ErrorClass.OTHER_QUOTA: "QuotaExceeded",
    ErrorClass.ADDRESSES: "IpNotEnough",
    ErrorClass.THROTTLED: "Throttling",
    ErrorClass.TRANSIENT: "ServiceUnavailable",
    ErrorClass.IN_PROGRESS: "ServiceUnavailable",
}
_LAUNCH_REASONS_BY_CODE: Final = {
    "InvalidImageId.NotFound": "ImageNotFound",
    "InvalidUserData.SizeExceeded": "UserDataTooLarge",
}


def launch_reason(code: str, message: str, *, status: int) -> str:
    """Return the reason (CamelCase) that the condition `Launched` has for a launch that failed so."""
    reason = _LAUNCH_REASONS_BY_CODE.get(code)
    if reason is not None:
        return reason
    return _LAUNCH_REASONS.get(classify(code, status=status, message=message), "LaunchFailed")


def core_error(error: ApiError) -> CloudProviderError:
    """Return the core's error for a failed call, to be raised from it.

    It is `ThrottledError`, `AuthError` or, for the rest, `CloudProviderError`: shortages and what is
    not found mean different things to different callers, who look before they come here.
    """
    match error.error_class:
        case ErrorClass.THROTTLED:
            return ThrottledError(str(error), retry_after=error.retry_after)
        case ErrorClass.AUTH:
            return AuthError(str(error), action=error.action)
        case _:
            return CloudProviderError(str(error))
