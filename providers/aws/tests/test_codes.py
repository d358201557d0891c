"""Tests the meaning of AWS's error codes: shortages, reasons, core errors."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from karpenter_core.errors import AuthError, CloudProviderError, ExhaustedScope, ThrottledError
from karpenter_provider_aws import codes


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "", "SpotSLRCreationFailed"),
        ("UnauthorizedOperation", "You are not authorized", "Unauthorized"),
        ("AccessDenied", "", "Unauthorized"),
        ("AuthFailure", "Not authorized for images: [ami-1]", "AMIAuthorizationFailure"),
        (
            "InvalidParameter",
            "Security group sg-1 and subnet subnet-1 belong to different networks.",
            "SecurityGroupSubnetVPCMismatch",
        ),
        (
            "InvalidParameterValue",
            "Value (x) for parameter iamInstanceProfile.name is invalid",
            "InstanceProfileNameInvalid",
        ),
        ("InvalidLaunchTemplateId.NotFound", "", "LaunchTemplateNotFound"),
        (
            "InvalidUserData.Malformed",
            "User data is limited to 16384 bytes",
            "UserDataSizeLimitExceeded",
        ),
        ("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data", "LaunchFailed"),
        ("InvalidAMIID.Malformed", "", "InvalidAMIID"),
        ("InvalidAMIID.NotFound", "", "AMINotFound"),
        ("RequestLimitExceeded", "", "RequestLimitExceeded"),
        ("InternalError", "", "InternalError"),
        (
            "InvalidParameterCombination",
            "The specified instance type is not eligible for Free Tier.",
            "FreeTierIneligible",
        ),
        ("MaxFleetCountExceeded", "", "FleetQuotaExceeded"),
        ("PendingVerification", "", "AccountPendingVerification"),
        ("MaxSpotInstanceCountExceeded", "", "SpotQuotaExceeded"),
        ("VcpuLimitExceeded", "", "VCPULimitExceeded"),
        ("InsufficientFreeAddressesInSubnet", "", "InsufficientFreeAddressesInSubnet"),
        ("InsufficientInstanceCapacity", "", "LaunchFailed"),
        ("RequestExpired", "Request has expired.", "Unauthorized"),
        ("SignatureDoesNotMatch", "", "Unauthorized"),
        ("SomethingNew", "", "LaunchFailed"),
    ],
)
def test_a_failed_launch_has_the_reason_of_its_code(code, message, reason):
    assert codes.launch_failure(code, message).reason == reason
    assert code in codes.launch_failure(code, message).message


@pytest.mark.parametrize(
    ("code", "message", "is_named"),
    [
        ("RequestExpired", "Request has expired.", True),
        ("RequestTimeTooSkewed", "The difference is too large.", True),
        ("SignatureDoesNotMatch", "Signature expired: 2026 is now earlier than 2027", True),
        ("InvalidSignatureException", "Signature not yet current: 2027", True),
        ("SignatureDoesNotMatch", "The signature does not match.", False),
        ("InvalidParameterValue", "no", False),
    ],
)
def test_a_refusal_because_of_a_wrong_clock_says_so(code, message, is_named):
    """The answer of EC2 alone names neither clock nor credentials."""
    assert ("clock of this machine" in codes.error_text(code, message)) is is_named


def test_credentials_that_cannot_be_validated_are_no_missing_policy():
    """EC2 answers so where the clock is wrong, too."""
    message = "AWS was not able to validate the provided access credentials"
    failure = codes.launch_failure("AuthFailure", message)
    assert failure.reason == "Unauthorized"
    assert "clock" in failure.message
    assert "policy" not in failure.message


def test_denials_by_boundary_and_by_organisation_policy_are_distinguished():
    by = {
        text: codes.launch_failure(
            "UnauthorizedOperation", f"no, with an explicit deny in a {text}"
        )
        for text in ("permissions boundary", "service control policy")
    }

    assert {failure.reason for failure in by.values()} == {"Unauthorized"}
    assert all(f"because of a {text}" in failure.message for text, failure in by.items())


@pytest.mark.parametrize(
    "code",
    [
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        "InsufficientFreeAddressesInSubnet",
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
    ],
)
def test_a_shortage_is_exactly_an_unfulfillable_error(code):
    assert codes.is_unfulfillable(code, "")
    assert not codes.is_throttled(code)
    assert not codes.is_unauthorized(code)


def test_a_fleet_that_may_not_launch_a_type_in_a_zone_has_a_shortage_and_no_mistake():
    code = "InvalidFleetConfiguration"
    not_sold_there = (
        "Your requested instance type (r5d.4xlarge) is not supported in your requested "
        "Availability Zone (us-east-1-dfw-1a)."
    )

    assert codes.is_unfulfillable(code, not_sold_there)
    assert not codes.is_unfulfillable(code, "The fleet configuration contains duplicate overrides.")


def test_throttling_and_a_denied_service_linked_role_are_not_shortages():
    assert not codes.is_unfulfillable("RequestLimitExceeded", "")
    assert not codes.is_unfulfillable(codes.SERVICE_LINKED_ROLE_DENIED, "")
    assert codes.is_unauthorized(codes.SERVICE_LINKED_ROLE_DENIED)


def test_quotas_reach_further_than_one_offering():
    assert codes.exhausted_scope("VcpuLimitExceeded", "") is ExhaustedScope.FAMILY_QUOTA
    assert codes.exhausted_scope("MaxSpotInstanceCountExceeded", "") is ExhaustedScope.FAMILY_QUOTA
    assert codes.exhausted_scope("InsufficientInstanceCapacity", "") is ExhaustedScope.OFFERING


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("InsufficientFreeAddressesInSubnet", ""),
        ("InsufficientCidrBlocks", ""),
        ("InvalidParameterValue", "There aren't sufficient free Ipv4 addresses or prefixes"),
    ],
)
def test_a_full_subnet_is_a_shortage_of_its_node_class(code, message):
    """With prefixes EC2 has other codes for it (its guide, amazon-vpc-cni-k8s 1836 and 3105)."""
    assert codes.is_unfulfillable(code, message)
    assert codes.is_out_of_addresses(code, message)
    assert codes.exhausted_scope(code, message) is ExhaustedScope.NODE_CLASS
    assert codes.launch_failure(code, message).reason == "InsufficientFreeAddressesInSubnet"


def test_any_other_invalid_parameter_is_no_full_subnet():
    assert not codes.is_out_of_addresses("InvalidParameterValue", "Invalid value for InstanceType.")
    assert not codes.is_out_of_addresses("InsufficientInstanceCapacity", "")


def test_a_missing_queue_is_not_found_under_both_of_its_codes():
    assert codes.is_not_found("QueueDoesNotExist")
    assert codes.is_not_found("AWS.SimpleQueueService.NonExistentQueue")


def _refusal(code, status=400):
    answer = {
        "Error": {"Code": code, "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "CreateFleet")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (_refusal("RequestLimitExceeded", 503), ThrottledError),
        (_refusal("ThrottlingException"), ThrottledError),
        (_refusal("UnauthorizedOperation", 403), AuthError),
        (NoCredentialsError(), AuthError),
        (_refusal("InvalidParameterValue"), CloudProviderError),
        (EndpointConnectionError(endpoint_url="http://x"), CloudProviderError),
    ],
)
def test_client_errors_become_core_errors_that_name_the_action(raised, kind):
    error = codes.core_error(raised, action="ec2:CreateFleet")

    assert type(error) is kind
    assert str(error).startswith("ec2:CreateFleet: ")


def test_throttling_is_not_a_fault_of_the_server_though_its_status_says_so():
    assert not codes.is_server_fault(
        codes.ApiFailure(code="RequestLimitExceeded", message="", status=503, retry_after="")
    )
    assert codes.is_server_fault(
        codes.ApiFailure(code="Strange", message="", status=500, retry_after="")
    )
    assert not codes.is_server_fault(
        codes.ApiFailure(code="InvalidParameterValue", message="", status=400, retry_after="")
    )


@pytest.mark.parametrize(
    "code", ["InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable"]
)
@pytest.mark.parametrize("status", [0, 500, 503])
def test_a_fault_code_is_a_fault_with_any_http_status(code, status):
    assert codes.is_server_fault(
        codes.ApiFailure(code=code, message="", status=status, retry_after="")
    )


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "UnfulfillableCapacity"])
def test_a_lack_of_stock_is_no_fault_of_the_server_though_its_status_says_so(code):
    assert not codes.is_server_fault(
        codes.ApiFailure(code=code, message="", status=500, retry_after="")
    )


def test_a_token_that_was_used_is_neither_a_shortage_nor_a_fault():
    code = "IdempotentParameterMismatch"
    assert codes.is_token_used(code)
    assert not codes.is_unfulfillable(code, "")
    assert not codes.is_server_fault(
        codes.ApiFailure(code=code, message="", status=400, retry_after="")
    )
    assert not codes.is_token_used("InvalidParameterValue")
    assert not codes.is_token_used("IncorrectState")


@pytest.mark.parametrize(
    ("code", "message", "is_too_large"),
    [
        ("InvalidUserData.Malformed", "User data is limited to 16384 bytes", True),
        ("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data", False),
        ("InvalidParameterValue", "User data is limited to 16384 bytes", False),
    ],
)
def test_user_data_is_too_large_by_code_and_text(code, message, is_too_large):
    """The same code is for data of another encoding, which a shorter text would not mend."""
    assert codes.is_user_data_too_large(code, message) is is_too_large
