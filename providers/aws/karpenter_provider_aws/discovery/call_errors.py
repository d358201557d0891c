"""Distinguishes refused calls from unanswered ones.

A refusal by AWS (credentials, permissions, a parameter it does not take) is a finding about the
NodeClass. A call that AWS does not answer (no connection, its own fault, too many calls) is not.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_core.provider.kit.calls.pages import EndlessListingError
from karpenter_provider_aws.codes import ApiFailure, api_failure, core_error, is_server_fault

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["core_errors_of", "is_refusal", "refusal_behind"]


@contextmanager
def core_errors_of(action: str) -> Generator[None]:
    """Turn what botocore raises into the core's errors; `action` as in a policy, `ec2:DescribeSubnets`.

    Raises:
        AuthError: credentials are missing, wrong, or do not permit it.
        ThrottledError: there were too many calls.
        CloudProviderError: anything else; `refusal_behind` has the code, if AWS gave one. Also for a
            listing whose pages go in a circle.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    # A proxy's page instead of an answer is a ResponseParserError, which is no BotoCoreError.
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        raise core_error(error, action=action) from error
    except EndlessListingError as error:
        raise CloudProviderError(f"{action}: {error}") from error


def refusal_behind(error: BaseException) -> ApiFailure | None:
    """Return code and message with which AWS refused; None when it did not answer."""
    return None if error.__cause__ is None else api_failure(error.__cause__)


def is_refusal(error: CloudProviderError) -> bool:
    """Whether AWS answered, and asking again as before would be answered alike.

    The SDK refuses itself what AWS could never accept (a role's name that is too long).
    """
    from botocore.exceptions import ParamValidationError

    if isinstance(error, AuthError) or isinstance(error.__cause__, ParamValidationError):
        return True
    if isinstance(error, ThrottledError):
        return False
    failure = refusal_behind(error)
    return failure is not None and not is_server_fault(failure)
