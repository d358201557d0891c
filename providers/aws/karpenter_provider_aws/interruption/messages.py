"""Parses EventBridge messages about instances.

The rules are those of Karpenter's AWS provider: version, source and detail-type of a message select
the rule. A message without a rule announces nothing; a text that is no EventBridge message cannot
be read. Both are to be deleted from the queue.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.provider.contract import InterruptionKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SPOT_NOTICE", "InterruptionMessage", "parse_message"]

SPOT_NOTICE: Final = timedelta(minutes=2)
"""From the warning until EC2 takes a spot instance back."""

_VERSION: Final = "0"
_EC2: Final = "aws.ec2"
_STATES: Final = {
    "stopping": InterruptionKind.INSTANCE_STOPPED,
    "stopped": InterruptionKind.INSTANCE_STOPPED,
    "shutting-down": InterruptionKind.INSTANCE_TERMINATED,
    "terminated": InterruptionKind.INSTANCE_TERMINATED,
}
_CLOSED: Final = "closed"
"""AWS Health's word for a change that is over, or called off."""
_LONGEST_QUOTE: Final = 200
_INSTANCE_ID: Final = re.compile(r"[!-~]{1,255}")
"""Any text that a call of EC2 can carry: one that cannot would make the look-up of all instances fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionMessage:
    """One message, read."""

    kind: InterruptionKind
    instance_ids: tuple[str, ...] = ()
    """As the message names them; none when it announces nothing."""
    deadline: datetime | None = None
    """Time at which EC2 takes the instances in any case, if the message has one."""
    detail: str
    sent_at: datetime | None = None
    """Time of the message, from its envelope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Envelope:
    kind: str
    """The `detail-type`."""
    sent_at: datetime | None
    detail: Mapping[str, object]


class _UnreadableMessageError(ValueError):
    """The text is no message of EventBridge's; says why."""


def parse_message(text: str) -> InterruptionMessage:
    """Read the body of a message of the queue; never raises.

    The kind is UNKNOWN for what cannot be read, and IRRELEVANT for what concerns no instance's end.
    """
    try:
        return _read(text)
    except _UnreadableMessageError as error:
        return InterruptionMessage(
            kind=InterruptionKind.UNKNOWN, detail=f"{error}: {text[:_LONGEST_QUOTE]}".strip()
        )


def _read(text: str) -> InterruptionMessage:
    try:
        given: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _UnreadableMessageError("not JSON") from error
    if not isinstance(given, dict):
        raise _UnreadableMessageError("not a JSON object")
    envelope = cast("Mapping[str, object]", given)
    key = tuple(_text(envelope, name) for name in ("version", "source", "detail-type"))
    reader = _READERS.get(key)
    sent_at = _instant(_text(envelope, "time"))
    if reader is None:
        return InterruptionMessage(
            kind=InterruptionKind.IRRELEVANT, detail=" ".join(key).strip(), sent_at=sent_at
        )
    detail = envelope.get("detail")
    if not isinstance(detail, dict):
        raise _UnreadableMessageError("without a detail")
    return reader(
        _Envelope(kind=key[2], sent_at=sent_at, detail=cast("Mapping[str, object]", detail))
    )


def _spot(envelope: _Envelope) -> InterruptionMessage:
    sent_at = envelope.sent_at
    return _about_one(
        envelope,
        InterruptionKind.SPOT_RECLAIM,
        deadline=None if sent_at is None else sent_at + SPOT_NOTICE,
        detail=_text(envelope.detail, "instance-action"),
    )


def _reservation(envelope: _Envelope) -> InterruptionMessage:
    return _about_one(
        envelope,
        InterruptionKind.RESERVATION_RECLAIM,
        deadline=_instant(_text(envelope.detail, "instance-termination-time")),
        detail=_text(envelope.detail, "instance-action"),
    )


def _rebalance(envelope: _Envelope) -> InterruptionMessage:
    return _about_one(envelope, InterruptionKind.REBALANCE)


def _state_change(envelope: _Envelope) -> InterruptionMessage:
    state = _text(envelope.detail, "state").lower()
    kind = _STATES.get(state)
    if kind is None:
        return _ignored_message(envelope, state)
    return _about_one(envelope, kind, detail=state)


def _health(envelope: _Envelope) -> InterruptionMessage:
    """Read an event of AWS Health; of other services and categories there are many."""
    detail = envelope.detail
    code, category = _text(detail, "eventTypeCode"), _text(detail, "eventTypeCategory")
    if _text(detail, "service") != "EC2" or category != "scheduledChange":
        return _ignored_message(envelope, code or category)
    if _text(detail, "statusCode").lower() == _CLOSED:
        return _ignored_message(envelope, f"{code} {_CLOSED}")
    entities = detail.get("affectedEntities")
    ids = [
        _text(cast("Mapping[str, object]", entity), "entityValue")
        for entity in (cast("list[object]", entities) if isinstance(entities, list) else ())
        if isinstance(entity, dict)
    ]
    named = {name for name in ids if _INSTANCE_ID.fullmatch(name)}
    if not named:
        raise _UnreadableMessageError("without an affected entity")
    start = _text(detail, "startTime")
    return InterruptionMessage(
        kind=InterruptionKind.SCHEDULED_MAINTENANCE,
        instance_ids=tuple(sorted(named)),
        detail=f"{code} from {start}" if start else code,
        sent_at=envelope.sent_at,
    )


def _about_one(
    envelope: _Envelope,
    kind: InterruptionKind,
    *,
    deadline: datetime | None = None,
    detail: str = "",
) -> InterruptionMessage:
    instance_id = _text(envelope.detail, "instance-id")
    if not _INSTANCE_ID.fullmatch(instance_id):
        raise _UnreadableMessageError("without an instance-id")
    return InterruptionMessage(
        kind=kind,
        instance_ids=(instance_id,),
        deadline=deadline,
        detail=detail,
        sent_at=envelope.sent_at,
    )


def _ignored_message(envelope: _Envelope, what: str) -> InterruptionMessage:
    return InterruptionMessage(
        kind=InterruptionKind.IRRELEVANT,
        detail=f"{envelope.kind} {what}".strip(),
        sent_at=envelope.sent_at,
    )


_READERS: Final[Mapping[tuple[str, ...], Callable[[_Envelope], InterruptionMessage]]] = {
    (_VERSION, _EC2, "EC2 Spot Instance Interruption Warning"): _spot,
    (_VERSION, _EC2, "EC2 Capacity Reservation Instance Interruption Warning"): _reservation,
    # The earlier name of the same message in AWS's guide.
    (
        _VERSION,
        _EC2,
        "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
    ): _reservation,
    (_VERSION, _EC2, "EC2 Instance State-change Notification"): _state_change,
    (_VERSION, _EC2, "EC2 Instance Rebalance Recommendation"): _rebalance,
    (_VERSION, "aws.health", "AWS Health Event"): _health,
}


def _text(record: Mapping[str, object], key: str) -> str:
    """Return a text; what JSON can escape and UTF-8 cannot encode (a lone surrogate) is a "?"."""
    value = record.get(key)
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _instant(text: str) -> datetime | None:
    """Read an instant of ISO 8601 in UTC; one without a time zone is UTC.

    One so near to the end of the calendar that no notice can be added to it is no instant.
    """
    try:
        moment = datetime.fromisoformat(text)
        instant = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return instant if instant.year < MAXYEAR else None
