"""Reads the Events of the controller from a live cluster: its last decisions, as users see them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.errors import ApiError, GoneError
from karpenter_core.kube.events import COMPONENT
from karpenter_core.kube.resources import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.kube.api import ClusterApis

__all__ = ["DecisionEvent", "read_decisions"]

_MOST: Final = 50
_MOST_PAGES: Final = 40
"""Pages of 500 Events: those of an hour of a very large cluster."""
_LONGEST: Final = 1024
_FORBIDDEN: Final = 403
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionEvent:
    """Events of one decision: of one object, or of several with the same reason and message."""

    at: datetime
    """The time of the latest."""
    objects: tuple[str, ...]
    """Kind and name of each object, in the order of their names: `Node/general-x`."""
    reason: str
    message: str
    is_warning: bool
    count: int
    """Number of occurrences."""

    @property
    def title(self) -> str:
        """Return the object, or the number of objects of one kind."""
        if len(self.objects) == 1:
            return self.objects[0]
        kind = self.objects[0].partition("/")[0]
        return f"{len(self.objects)} {kind}s"


class _ObjectReference(msgspec.Struct, rename="camel"):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _EventSeries(msgspec.Struct, rename="camel"):
    count: int = 1
    last_observed_time: datetime | None = None


class _EventMetadata(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime | None = None


class _Event(msgspec.Struct, rename="camel"):
    metadata: _EventMetadata = msgspec.field(default_factory=_EventMetadata)
    involved_object: _ObjectReference = msgspec.field(default_factory=_ObjectReference)
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int | None = None
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    series: _EventSeries | None = None

    @property
    def at(self) -> datetime:
        observed = self.series.last_observed_time if self.series is not None else None
        return (
            observed
            or self.last_timestamp
            or self.event_time
            or self.metadata.creation_timestamp
            or _BEGINNING
        )

    @property
    def occurrences(self) -> int:
        return (self.series.count if self.series is not None else self.count) or 1

    @property
    def title(self) -> str:
        involved = self.involved_object
        name = f"{involved.namespace}/{involved.name}" if involved.kind == "Pod" else involved.name
        return f"{involved.kind}/{name}"


class _ListMetadata(msgspec.Struct, rename="camel"):
    continue_token: str = msgspec.field(default="", name="continue")


class _EventList(msgspec.Struct, rename="camel"):
    items: list[_Event] | None = None
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


_decoder: Final = msgspec.json.Decoder(_EventList)


async def read_decisions(apis: ClusterApis) -> tuple[tuple[DecisionEvent, ...], tuple[str, ...]]:
    """Return the last decisions, the latest first, and notes.

    Events that may not be listed, or cannot be read, are a note: everything else can be shown.
    """
    api, token = apis.api_for(EVENTS), ""
    latest: list[_Event] = []
    notes: list[str] = []
    for _ in range(_MOST_PAGES):
        try:
            body = await api.list_page(
                EVENTS, continue_token=token, field_selector=f"reportingComponent={COMPONENT}"
            )
            page = _decoder.decode(body)
        except GoneError:
            break  # the token of the next page has expired: what was read is recent enough
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            notes.append("events cannot be listed (forbidden): the last decisions are not shown")
            break
        except msgspec.MsgspecError as error:
            notes.append(f"events cannot be read: {error}")
            break
        latest = heapq.nlargest(_MOST * _MOST, [*latest, *(page.items or ())], key=lambda e: e.at)
        token = page.metadata.continue_token
        if not token:
            break
    else:
        notes.append("there are more events than top reads: later decisions may be missing")
    return _grouped(latest), tuple(notes)


def _printable(text: str) -> str:
    """Return a text without control characters: whoever may create Events writes to the terminal."""
    cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return "".join(letter if letter.isprintable() else " " for letter in cut)


def _grouped(events: Iterable[_Event]) -> tuple[DecisionEvent, ...]:
    """Return one entry for the Events with the same kind, reason and message."""
    groups: dict[tuple[str, str, str, str], list[_Event]] = {}
    for event in events:
        key = (event.involved_object.kind, event.reason, event.message, event.type)
        groups.setdefault(key, []).append(event)
    decisions = [
        DecisionEvent(
            at=max(event.at for event in members),
            objects=tuple(sorted({_printable(event.title) for event in members})),
            reason=_printable(reason),
            message=_printable(message),
            is_warning=kind == "Warning",
            count=sum(event.occurrences for event in members),
        )
        for (_, reason, message, kind), members in groups.items()
    ]
    decisions.sort(key=lambda each: (each.reason, each.objects, each.message))
    decisions.sort(key=lambda each: each.at, reverse=True)
    return tuple(decisions[:_MOST])
