"""Instants that are moved stay within the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.state.instants import shift_time
from karpenter_core.testing.builders import EPOCH

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("at", "by", "moved"),
    [
        (EPOCH, timedelta(hours=2), EPOCH + timedelta(hours=2)),
        (LAST, timedelta(seconds=1), LAST),
        (FIRST, -timedelta(seconds=1), FIRST),
    ],
)
def test_an_instant_that_would_leave_the_calendar_stays(at, by, moved):
    assert shift_time(at, by) == moved
