"""How calls to AWS fail, as far as discovery must tell: refused, or not answered at all.

What AWS refuses (credentials, permissions, a parameter it does not take) is a finding about the
NodeClass. What it does not answer (no connection, its own fault, too many calls) is none.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_provider_aws.codes import Failure, core_error, failure_of, is_server_fault

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["calling", "failure_behind", "is_refusal"]


@contextmanager
def calling(action: str) -> Generator[None]:
    """Turn what boto3 raises into the core's errors; `action` as in a policy, `ec2:DescribeSubnets`.

    Raises:
        AuthError: credentials are missing, wrong, or do not permit it.
        ThrottledError: there were too many calls.
        CloudProviderError: anything else; `failure_behind` has the code, if AWS gave one.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    # A proxy's page instead of an answer is a ResponseParserError, which is no BotoCoreError.
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        raise core_error(error, action=action) from error


def failure_behind(error: BaseException) -> Failure | None:
    """Return code and message with which AWS refused; None when it did not answer."""
    return None if error.__cause__ is None else failure_of(error.__cause__)


def is_refusal(error: CloudProviderError) -> bool:
    """Whether AWS answered, and asking again as before would be answered alike.

    The SDK refuses itself what AWS could never accept (a role's name that is too long).
    """
    from botocore.exceptions import ParamValidationError

    if isinstance(error, AuthError) or isinstance(error.__cause__, ParamValidationError):
        return True
    if isinstance(error, ThrottledError):
        return False
    failure = failure_behind(error)
    return failure is not None and not is_server_fault(failure)
