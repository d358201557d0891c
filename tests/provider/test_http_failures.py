"""HTTP statuses and Retry-After headers say what became of a request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from karpenter_core.provider.kit.calls.failures import AttemptFailureKind
from karpenter_core.provider.kit.calls.http_failures import http_failure, parse_retry_after
from tests.properties import with_examples

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (0, AttemptFailureKind.UNANSWERED),
        (400, AttemptFailureKind.REFUSED),
        (401, AttemptFailureKind.DENIED),
        (403, AttemptFailureKind.DENIED),
        (404, AttemptFailureKind.REFUSED),
        (408, AttemptFailureKind.UNANSWERED),
        (409, AttemptFailureKind.REFUSED),
        (429, AttemptFailureKind.THROTTLED),
        (500, AttemptFailureKind.UNANSWERED),
        (504, AttemptFailureKind.UNANSWERED),
    ],
)
def test_a_status_decides_the_kind_of_a_failure(status, kind):
    assert http_failure(status).kind is kind


def test_a_throttled_request_with_the_code_of_a_quota_is_throttled():
    """Clouds answer both with one code; the status decides."""
    failure = http_failure(429, code="OperationNotAllowed", retry_after="3")

    assert failure.kind is AttemptFailureKind.THROTTLED
    assert (failure.code, failure.retry_after) == ("OperationNotAllowed", timedelta(seconds=3))


def test_the_status_is_the_code_of_an_answer_without_one():
    assert (http_failure(418).code, http_failure(0).code) == ("418", "")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("0", 0),
        ("1.5", 1.5),
        ("-3", 0),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("Sun, 01 Mar 2026 12:00:30 -0000", 30),
        ("inf", 24 * 3600),
        ("1e300", 24 * 3600),
    ],
)
def test_retry_after_is_seconds_or_a_date(header, seconds):
    assert parse_retry_after(header, now=lambda: NOON) == timedelta(seconds=seconds)


@pytest.mark.parametrize("header", [None, "", "soon", "nan", "Sun, 99 Mar 2026 12:00:30 GMT"])
def test_a_retry_after_that_cannot_be_read_is_none(header):
    assert parse_retry_after(header, now=lambda: NOON) is None


@given(st.text(max_size=40))
@example("Fri, 31 Dec 9999 23:59:59 -9999")
@with_examples(200)
def test_no_header_breaks_the_classification(header):
    wait = http_failure(429, retry_after=header, now=lambda: NOON).retry_after

    assert wait is None or timedelta() <= wait <= timedelta(days=1)
