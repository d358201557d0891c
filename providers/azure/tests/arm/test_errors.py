"""Tests what is read from bodies of errors."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.calls.failures import AttemptFailureKind
from karpenter_provider_azure.arm.errors import (
    ArmNotFoundError,
    arm_failure,
    error_of_answer,
    error_of_body,
)


def test_codes_of_details_and_inner_errors_follow_the_outer_code():
    body = {
        "error": {
            "code": "DeploymentFailed",
            "message": "outer",
            "details": [
                {
                    "code": "Conflict",
                    "message": "first",
                    "innererror": {"code": "ZonalAllocationFailed"},
                }
            ],
            "innererror": {"code": "Last", "message": "inner"},
        }
    }
    error = error_of_body(body)
    assert error.codes == ("DeploymentFailed", "Conflict", "ZonalAllocationFailed", "Last")
    assert error.text == "outer first inner"
    assert error.status == 200  # case 101


def test_an_inner_error_is_read_in_the_spelling_of_either_generation():
    """Compute writes `innererror`; newer services follow the guidelines with `innerError`."""
    for name in ("innererror", "innerError"):
        error = error_of_body({"error": {"code": "Outer", name: {"code": "Inner"}}})
        assert error.codes == ("Outer", "Inner")


def test_an_error_that_is_flat_is_read():
    error = error_of_body({"code": "VMSizeNotSupported", "message": "no", "details": None})
    assert (error.code, error.message) == ("VMSizeNotSupported", "no")


def test_an_error_within_the_text_of_a_message_is_read():
    inner = json.dumps({"error": {"code": "SkuNotAvailable", "message": "not in westus2"}})
    error = error_of_body({"error": {"code": "BadRequest", "message": inner}})
    assert error.codes == ("BadRequest", "SkuNotAvailable")
    assert "not in westus2" in error.text


def test_an_error_without_a_code_shows_its_status():
    error = error_of_answer(418, {"message": "short and stout"})
    assert (error.code, error.codes) == ("", ())
    assert "418" in str(error)


def test_retry_after_is_read():
    error = error_of_answer(429, {}, {"retry-after": "7"})
    assert error.retry_after == timedelta(seconds=7)
    assert arm_failure(error).kind is AttemptFailureKind.THROTTLED


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ms-retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "600000"}, 600),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3),
        ({"x-ms-retry-after-ms": ""}, None),
    ],
)
def test_retry_after_in_milliseconds_is_read(headers, seconds):
    """Services of Azure send it, and its SDKs read it first."""
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert error_of_answer(429, {}, headers).retry_after == expected


def test_status_404_is_not_found():
    assert isinstance(error_of_answer(404, {}), ArmNotFoundError)


def test_other_exceptions_are_no_failed_calls():
    assert arm_failure(ValueError("x")) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "code", "message", "details", "innererror", "x"]),
            children,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["error", "code", "message", "details"]), json_values))
def test_no_body_breaks_the_reader(body):
    error = error_of_body(body)
    assert isinstance(error.code, str)
    assert all(isinstance(code, str) for code in error.codes)
    assert str(error)


def test_errors_within_errors_end():
    body = {"code": "A", "message": "m"}
    for _ in range(50):
        body = {"code": "A", "message": "m", "innererror": body}
    assert error_of_body(body).codes == ("A",)
