"""Announcements that polling found are repeated until they are acknowledged or their cause is gone."""

from __future__ import annotations

from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.provider.contract import Interruption
from karpenter_provider_aws.interruption.pending_announcements import PendingAnnouncements


def said(id_):
    return Interruption(
        id=id_, kind=InterruptionKind.SCHEDULED_MAINTENANCE, provider_id="aws:///a/i-1"
    )


def ids(pending):
    return [each.id for each in pending.waiting()]


def test_the_first_announcement_of_a_cause_stays_until_it_is_acknowledged():
    pending = PendingAnnouncements()

    assert pending.replace({("b",): said("1"), ("a",): said("2")}) == [("b",), ("a",)]
    assert pending.replace({("b",): said("3"), ("a",): said("4")}) == []
    assert ids(pending) == ["2", "1"]
    pending.acknowledge(["1", "of another source"])
    assert ids(pending) == ["2"]


def test_a_cause_that_comes_back_is_announced_anew_under_whatever_id():
    pending = PendingAnnouncements()
    pending.replace({("a",): said("1")})
    pending.acknowledge(["1"])
    pending.replace({})

    assert pending.replace({("a",): said("1")}) == [("a",)]
    assert ids(pending) == ["1"]
