"""Tests the parsing of EventBridge messages (cases 144 and 145)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.provider.contract import InterruptionKind as Kind
from karpenter_provider_aws.interruption.messages import parse_message

SAID_AT = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
INSTANCE = "i-0123456789abcdef0"


def message(kind: str, detail: object, *, source: str = "aws.ec2", **other: object) -> str:
    return json.dumps(
        {
            "version": "0",
            "id": "1",
            "source": source,
            "detail-type": kind,
            "time": "2026-06-01T12:00:00Z",
            "region": "us-east-1",
            "resources": [],
            "detail": detail,
            **other,
        }
    )


def state_change(state: str) -> str:
    detail = {"instance-id": INSTANCE, "state": state}
    return message("EC2 Instance State-change Notification", detail)


def health(**other: object) -> str:
    detail = {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "startTime": "Mon, 8 Jun 2026 12:00:00 GMT",
        "affectedEntities": [{"entityValue": "i-2"}, {"entityValue": "i-1"}],
        **other,
    }
    return message("AWS Health Event", detail, source="aws.health")


def test_a_spot_instance_has_two_minutes_from_its_warning():
    detail = {"instance-id": INSTANCE, "instance-action": "terminate"}

    said = parse_message(message("EC2 Spot Instance Interruption Warning", detail))

    assert (said.kind, said.instance_ids) == (Kind.SPOT_RECLAIM, (INSTANCE,))
    assert (said.sent_at, said.deadline) == (SAID_AT, SAID_AT + timedelta(minutes=2))


@pytest.mark.parametrize(
    "kind",
    [
        "EC2 Capacity Reservation Instance Interruption Warning",
        "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
    ],
)
@pytest.mark.parametrize(
    ("ends", "deadline"),
    [("2026-06-01T12:02:00Z", SAID_AT + timedelta(minutes=2)), ("", None), ("soon", None)],
)
def test_the_warning_of_a_reservation_says_itself_when(kind, ends, deadline):
    detail = {"instance-id": INSTANCE, "instance-termination-time": ends}

    said = parse_message(message(kind, detail))

    assert said.kind is Kind.RESERVATION_RECLAIM
    assert said.deadline == deadline


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("stopping", Kind.INSTANCE_STOPPED),
        ("Stopped", Kind.INSTANCE_STOPPED),
        ("SHUTTING-DOWN", Kind.INSTANCE_TERMINATED),
        ("terminated", Kind.INSTANCE_TERMINATED),
        ("running", Kind.IRRELEVANT),
        ("pending", Kind.IRRELEVANT),
        ("", Kind.IRRELEVANT),
    ],
)
def test_states_in_which_an_instance_ends_are_announced(state, kind):
    said = parse_message(state_change(state))

    assert said.kind is kind
    assert said.instance_ids == (() if kind is Kind.IRRELEVANT else (INSTANCE,))
    assert said.deadline is None


def test_a_rebalance_recommendation_names_its_instance():
    said = parse_message(
        message("EC2 Instance Rebalance Recommendation", {"instance-id": INSTANCE})
    )

    assert (said.kind, said.instance_ids) == (Kind.REBALANCE, (INSTANCE,))


@pytest.mark.parametrize(
    ("other", "detail"),
    [
        ({"service": "RDS"}, "AWS Health Event AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED"),
        ({"service": "RDS", "eventTypeCode": ""}, "AWS Health Event scheduledChange"),
        ({"eventTypeCategory": "issue", "eventTypeCode": ""}, "AWS Health Event issue"),
        ({"service": "RDS", "eventTypeCode": "", "eventTypeCategory": ""}, "AWS Health Event"),
    ],
)
def test_an_event_about_something_else_says_about_what(other, detail):
    said = parse_message(health(**other))
    assert (said.kind, said.detail) == (Kind.IRRELEVANT, detail)


def test_a_scheduled_change_is_about_all_its_entities_and_has_no_deadline():
    said = parse_message(health())

    assert (said.kind, said.instance_ids) == (Kind.SCHEDULED_MAINTENANCE, ("i-1", "i-2"))
    assert said.deadline is None
    assert "RETIREMENT" in said.detail
    assert "8 Jun 2026" in said.detail


@pytest.mark.parametrize(
    "other",
    [
        {"service": "RDS"},
        {"eventTypeCategory": "accountNotification"},
        {"statusCode": "closed"},
    ],
)
def test_other_events_of_aws_health_announce_nothing(other):
    assert parse_message(health(**other)).kind is Kind.IRRELEVANT


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        ("EC2 Fleet Instance Change", {}),
        ("EC2 Spot Instance Interruption Warning", {"source": "aws.autoscaling"}),
        ("EC2 Spot Instance Interruption Warning", {"version": "1"}),
        ("", {}),
    ],
)
def test_an_unlisted_event_announces_nothing(kind, other):
    assert parse_message(message(kind, {"instance-id": INSTANCE}, **other)).kind is Kind.IRRELEVANT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "[]",
        "null",
        '"text"',
        "[" * 100_000,
        message("EC2 Spot Instance Interruption Warning", None),
        message("EC2 Spot Instance Interruption Warning", {}),
        message("EC2 Spot Instance Interruption Warning", {"instance-id": 7}),
        message("EC2 Spot Instance Interruption Warning", {"instance-id": "i-1\0"}),
        message("EC2 Spot Instance Interruption Warning", {"instance-id": "i" * 256}),
        message("EC2 Instance State-change Notification", {"state": "stopped"}),
        health(affectedEntities=[]),
        health(affectedEntities=[{"entityValue": "i-1 and i-2"}]),
        health(affectedEntities={"entityValue": "i-1"}),
        health(affectedEntities=["i-1", {"entityValue": ""}]),
    ],
)
def test_an_unreadable_message_is_unknown_and_raises_no_error(text):
    said = parse_message(text)

    assert said.kind is Kind.UNKNOWN
    assert said.detail
    assert said.instance_ids == ()


@pytest.mark.parametrize(
    "time", ["?", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"]
)
def test_a_message_without_a_readable_time_has_no_deadline(time):
    detail = {"instance-id": INSTANCE}

    said = parse_message(message("EC2 Spot Instance Interruption Warning", detail, time=time))

    assert (said.kind, said.deadline, said.sent_at) == (Kind.SPOT_RECLAIM, None, None)
