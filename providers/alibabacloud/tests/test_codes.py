"""Tests the classes of Alibaba Cloud's error codes (section 7)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import AuthError, CloudProviderError, ExhaustedScope, ThrottledError
from karpenter_provider_alibabacloud.codes import (
    SHORTAGES,
    ApiError,
    ErrorClass,
    classify,
    core_error,
    exhausted_scope,
    launch_reason,
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("OperationDenied.NoStock", ErrorClass.CAPACITY),
        ("NoInstanceStock", ErrorClass.CAPACITY),
        ("Zone.NotOnSale", ErrorClass.CAPACITY),
        ("Invalid.PrivatePoolOptions.NoStock", ErrorClass.CAPACITY),
        ("Zone.NotOpen", ErrorClass.CAPACITY),
        ("InvalidVpcZone.NotSupported", ErrorClass.CAPACITY),
        ("ResourceNotAvailable", ErrorClass.CAPACITY),
        ("InvalidZoneId.NotSupportShareEncryptedImage", ErrorClass.CAPACITY),
        ("InstanceType.Offline", ErrorClass.CAPACITY),
        ("InvalidInstanceType.ValueNotSupported", ErrorClass.CAPACITY),
        ("InvalidInstanceType.ValueUnauthorized", ErrorClass.CAPACITY),
        ("InvalidInstanceType.NotSupported", ErrorClass.CAPACITY),
        ("ImageNotSupportInstanceType", ErrorClass.CAPACITY),
        ("EnterpriseGroupLimited.InstanceType", ErrorClass.CAPACITY),
        ("OperationDenied.PaygNotAvailable", ErrorClass.CAPACITY),
        ("InvalidAccount.NotSupportSpot", ErrorClass.CAPACITY),
        ("InvalidSpotAuthorized", ErrorClass.CAPACITY),
        ("Invalid.PrivatePoolOptions.status", ErrorClass.CAPACITY),
        ("OperationDenied.CloudSSDNotSupported", ErrorClass.DISK_CATEGORY),
        ("InvalidSystemDiskCategory.ValueNotSupported", ErrorClass.DISK_CATEGORY),
        ("InvalidSystemDiskCategory.ValueUnauthorized", ErrorClass.DISK_CATEGORY),
        ("InvalidDiskCategory.NotSupported", ErrorClass.DISK_CATEGORY),
        ("InvalidPerformanceLevel.ValueNotSupported", ErrorClass.DISK_CATEGORY),
        ("InvalidVSwitchId.IpNotEnough", ErrorClass.ADDRESSES),
        ("QuotaExceeded.PrivateIpAddress", ErrorClass.ADDRESSES),
        ("CategoryNotSupported", ErrorClass.DISK_CATEGORY),
        ("QuotaExceed.ElasticQuota", ErrorClass.QUOTA),
        ("InstanceQuotaExceed", ErrorClass.QUOTA),
        ("QuotaExceed.DiskCapacity", ErrorClass.DISK_QUOTA),
        ("QuotaExceed.Tags", ErrorClass.OTHER_QUOTA),
        ("QuotaExceeded.Whatever", ErrorClass.OTHER_QUOTA),
        ("SecurityGroupInstanceLimitExceed", ErrorClass.OTHER_QUOTA),
        ("OperationDenied.QuotaExceed", ErrorClass.OTHER_QUOTA),
        ("InvalidSpotPriceLimit.LowerThanPublicPrice", ErrorClass.SPOT_PRICE),
        ("Throttling", ErrorClass.THROTTLED),
        ("Throttling.User", ErrorClass.THROTTLED),
        ("ServiceUnavailable", ErrorClass.TRANSIENT),
        ("ServiceUnavailable.Busy", ErrorClass.TRANSIENT),
        ("InternalError.Store", ErrorClass.TRANSIENT),
        ("InvalidInstanceId.NotFound", ErrorClass.NOT_FOUND),
        ("Forbidden.RAM", ErrorClass.AUTH),
        ("Forbbiden", ErrorClass.AUTH),  # as the API spells it
        ("InvalidUser.PassRoleForbidden", ErrorClass.AUTH),
        ("InvalidAccessKeyId.NotFound", ErrorClass.AUTH),
        ("InvalidSecurityToken.Expired", ErrorClass.AUTH),
        ("InvalidImageId.NotFound", ErrorClass.CONFIGURATION),
        ("InvalidSecurityGroupId.NotFound", ErrorClass.CONFIGURATION),
        ("InvalidParameter.Conflict", ErrorClass.CONFIGURATION),
        ("InvalidUserData.Base64FormatInvalid", ErrorClass.CONFIGURATION),
        ("MissingParameter.RegionId", ErrorClass.CONFIGURATION),
        ("IdempotentParameterMismatch", ErrorClass.CONFIGURATION),
        ("IdempotentProcessing", ErrorClass.IN_PROGRESS),
        ("LastTokenProcessing", ErrorClass.IN_PROGRESS),
        ("InvalidOperation.DeletionProtection", ErrorClass.PROTECTED),
        ("IncorrectInstanceStatus.Initializing", ErrorClass.STATE),
        ("OperationConflict", ErrorClass.STATE),
        ("InvalidAccountStatus.NotEnoughBalance", ErrorClass.FUNDS),
        ("InsufficientBalance", ErrorClass.FUNDS),
        ("InsufficientBalance.AgentCredit", ErrorClass.FUNDS),
        ("DryRunOperation", ErrorClass.DRY_RUN),
        ("SomethingNew", ErrorClass.UNKNOWN),
    ],
)
def test_an_error_code_alone_decides_the_class(code, expected):
    """As in the results of a provisioning group, which have no status."""
    assert classify(code, message="", status=0) is expected


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("SomethingNew", 429, ErrorClass.THROTTLED),
        ("SomethingNew", 503, ErrorClass.TRANSIENT),
        ("SomethingNew", 404, ErrorClass.NOT_FOUND),
        ("SomethingNew", 400, ErrorClass.UNKNOWN),
        ("", 0, ErrorClass.TRANSIENT),
        ("InvalidImageId.NotFound", 404, ErrorClass.CONFIGURATION),
        ("InvalidSystemDiskSize.LessThanImageSize", 404, ErrorClass.CONFIGURATION),
        ("Throttling.User", 503, ErrorClass.THROTTLED),
    ],
)
def test_the_status_decides_where_the_code_does_not(code, status, expected):
    assert classify(code, status=status, message="") is expected


def test_a_quota_may_hide_in_a_message():
    message = "The specified instance exceeds your vCPU quota."

    assert classify("InvalidParameter.NotMatch", message=message, status=0) is ErrorClass.QUOTA
    assert classify("InvalidParameter.NotMatch", message="no", status=0) is ErrorClass.CONFIGURATION


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("OperationDenied",
         "The specified instanceType or zone is not available or not authorized."),
        ("OperationDenied", "The resource is out of usage."),
        ("InvalidParameter.Conflict",
         "The specified image does not support the specified instance type."),
    ],
)  # fmt: skip
def test_a_shortage_may_hide_in_a_message(code, message):
    """Of a type or a zone; with another message the code says nothing of them."""
    assert classify(code, message=message, status=403) is ErrorClass.CAPACITY
    assert classify(code, message="The user may not.", status=403) is not ErrorClass.CAPACITY


def test_a_quota_reaches_further_than_stock():
    """Case 65: the type is closed in all zones, and other types are not."""
    assert exhausted_scope(ErrorClass.QUOTA) is ExhaustedScope.FAMILY_QUOTA
    assert exhausted_scope(ErrorClass.CAPACITY) is ExhaustedScope.OFFERING
    assert ErrorClass.THROTTLED not in SHORTAGES  # case 66: throttling is no shortage


def test_errors_become_those_of_the_core():
    """Each says its action, its code, and the request that Alibaba Cloud's support asks for."""
    throttled = ApiError("Throttling", "slow", "R-1", 400, timedelta(seconds=3), action="ecs:X")
    denied = ApiError("Forbidden.RAM", "no", "R-2", 403, action="ecs:RunInstances")
    silent = ApiError("", "no answer", action="vpc:DescribeVSwitches")

    answer = core_error(throttled)
    assert isinstance(answer, ThrottledError)
    assert answer.retry_after == timedelta(seconds=3)
    hasty = core_error(ApiError("Throttling", "slow", "R-1", 400, action="ecs:X"))
    assert isinstance(hasty, ThrottledError)
    assert hasty.retry_after is None, "no time was named"
    refused = core_error(denied)
    assert isinstance(refused, AuthError)
    assert refused.action == "ecs:RunInstances"
    assert str(refused) == "ecs:RunInstances: Forbidden.RAM: no (request R-2)"
    assert type(core_error(silent)) is CloudProviderError
    assert str(core_error(silent)) == "vpc:DescribeVSwitches: no answer"


def test_a_failed_launch_has_a_reason_in_camel_case():
    failures = {
        code: launch_reason(code, "m", status=0)
        for code in (
            "InvalidImageId.NotFound",
            "InvalidUserData.SizeExceeded",
            "Forbidden.RAM",
            "MissingParameter",
            "Account.Arrearage",
            "QuotaExceed.ElasticQuota",
            "QuotaExceed.DiskCapacity",
            "QuotaExceed.Tags",
            "InvalidVSwitchId.IpNotEnough",
            "Throttling",
            "InternalError.Store",
            "IdempotentProcessing",
            "Odd",
        )
    }

    assert failures == {
        "InvalidImageId.NotFound": "ImageNotFound",
        "InvalidUserData.SizeExceeded": "UserDataTooLarge",
        "Forbidden.RAM": "Unauthorized",
        "MissingParameter": "InvalidLaunch",
        "Account.Arrearage": "AccountInArrears",
        "QuotaExceed.ElasticQuota": "QuotaExceeded",
        "QuotaExceed.DiskCapacity": "QuotaExceeded",
        "QuotaExceed.Tags": "QuotaExceeded",
        "InvalidVSwitchId.IpNotEnough": "IpNotEnough",
        "Throttling": "Throttling",
        "InternalError.Store": "ServiceUnavailable",
        "IdempotentProcessing": "ServiceUnavailable",
        "Odd": "LaunchFailed",
    }
