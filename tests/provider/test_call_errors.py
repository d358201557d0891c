"""Tests how errors of calls become texts that do not vary."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    NodeClassNotReadyError,
    ThrottledError,
)
from karpenter_core.provider.kit.node_class.call_errors import CallErrors

ERRORS = CallErrors(
    is_refusal=lambda _: True, code=lambda _: "", varying_text=re.compile(r" \(request [0-9]+\)")
)


class OwnError(CloudProviderError):
    """An error class of a cloud."""


@pytest.mark.parametrize("kind", [CloudProviderError, OwnError])
def test_varying_parts_of_a_message_are_left_out(kind: type[CloudProviderError]) -> None:
    stable = ERRORS.with_stable_text(kind("sizes:list: no answer (request 17)"))

    assert type(stable) is CloudProviderError
    assert str(stable) == "sizes:list: no answer"


def test_errors_that_the_core_distinguishes_stay_such() -> None:
    throttled = ERRORS.with_stable_text(
        ThrottledError("too many (request 17)", retry_after=timedelta(seconds=3))
    )
    denied = ERRORS.with_stable_text(AuthError("not permitted (request 17)", action="sizes:list"))

    assert isinstance(throttled, ThrottledError)
    assert throttled.retry_after == timedelta(seconds=3)
    assert isinstance(denied, AuthError)
    assert denied.action == "sizes:list"
    assert "request" not in str(denied) + str(throttled)


def test_an_error_without_varying_parts_is_returned_as_it_is() -> None:
    error = NodeClassNotReadyError("no images")

    assert ERRORS.with_stable_text(error) is error
