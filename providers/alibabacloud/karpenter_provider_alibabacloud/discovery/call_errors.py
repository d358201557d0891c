"""Distinguishes refused calls from unanswered ones.

A refusal by the cloud (credentials, permissions, a parameter it does not take) is a finding about
the NodeClass. A call that it does not answer (no connection, its own fault, too many calls) is not.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_core.provider.kit.calls.pages import EndlessListingError
from karpenter_provider_alibabacloud.codes import ApiError, ErrorClass, core_error

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["core_errors_of", "is_refusal", "refusal_behind"]


@contextmanager
def core_errors_of() -> Generator[None]:
    """Turn what a service raises into the core's errors.

    Raises:
        AuthError: credentials are missing, wrong, or do not permit it.
        ThrottledError: there were too many calls.
        CloudProviderError: anything else; `refusal_behind` has the code, if there was an answer. Also
            for a listing whose pages go in a circle.
    """
    try:
        yield
    except ApiError as error:
        raise core_error(error) from error
    except EndlessListingError as error:
        raise CloudProviderError(str(error)) from error


def refusal_behind(error: BaseException) -> ApiError | None:
    """Return with what the cloud refused; None when it was not that, or there was no answer."""
    cause = error.__cause__
    return cause if isinstance(cause, ApiError) and cause.code else None


def is_refusal(error: CloudProviderError) -> bool:
    """Whether the cloud answered, and asking again as before would be answered alike."""
    if isinstance(error, AuthError):
        return True
    if isinstance(error, ThrottledError):
        return False
    failure = refusal_behind(error)
    return failure is not None and failure.error_class is not ErrorClass.TRANSIENT
