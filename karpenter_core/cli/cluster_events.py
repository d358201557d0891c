"""Reads the controller's last decisions from its Events in a live cluster."""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

import msgspec

from karpenter_core.errors import ApiError, GoneError
from karpenter_core.kube.events import COMPONENT
from karpenter_core.kube.resources import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import ClusterApis, KubeApi

__all__ = ["ControllerEvents", "DecisionEvent", "DecisionWatch", "PodRefusal", "read_decisions"]

_MOST: Final = 50
_MOST_PAGES: Final = 40
"""Pages of 500 Events: those of an hour of a very large cluster."""
_LONGEST: Final = 1024
_FORBIDDEN: Final = 403
_OURS: Final = f"reportingComponent={COMPONENT}"
_WATCH_SECONDS: Final = 300
_POLL_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 5.0
_FAILED: Final = "FailedScheduling"
_NOMINATED: Final = "Nominated"
_TARGET: Final = re.compile(r"(?:nodeclaim|node)/([a-z0-9.-]+)")
_FAILED_PREFIX: Final = "Failed to schedule pod, "
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRefusal:
    """The reason why a pass of the controller has launched no node for a pod."""

    at: datetime
    message: str
    later_targets: frozenset[str] = frozenset()
    """NodeClaims and nodes that later passes have chosen for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerEvents:
    """The decisions and refusals that the Events of the controller tell of."""

    decisions: tuple[DecisionEvent, ...] = ()
    """The last decisions, the latest first."""
    refusals: Mapping[str, PodRefusal] = field(default_factory=dict[str, PodRefusal])
    """By namespace and name of a pod that some pass has not placed."""
    notes: tuple[str, ...] = ()


class _ObjectReference(msgspec.Struct, rename="camel"):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _EventSeries(msgspec.Struct, rename="camel"):
    count: int = 1
    last_observed_time: datetime | None = None


class _EventMetadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
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
    resource_version: str = ""


class _EventList(msgspec.Struct, rename="camel"):
    items: list[_Event] | None = None
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


class _WatchLine(msgspec.Struct):
    type: str
    object: _Event


_decoder: Final = msgspec.json.Decoder(_EventList)
_event_decoder: Final = msgspec.json.Decoder(_WatchLine)


async def read_decisions(apis: ClusterApis) -> ControllerEvents:
    """Return what the last Events say.

    Events that may not be listed, or cannot be read, are a note: everything else can be shown.
    """
    listing = await _list_events(apis.api_for(EVENTS))
    return ControllerEvents(
        decisions=_grouped(listing.events),
        refusals=_refusals(listing.events),
        notes=listing.notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EventListing:
    """The latest Events of the controller."""

    events: tuple[_Event, ...]
    notes: tuple[str, ...]
    resource_version: str
    """Version from which a watch goes on; empty if there is none."""


async def _list_events(api: KubeApi) -> _EventListing:
    latest: list[_Event] = []
    notes: list[str] = []
    token = version = ""
    for _ in range(_MOST_PAGES):
        try:
            body = await api.list_page(EVENTS, continue_token=token, field_selector=_OURS)
            page = _decoder.decode(body)
        except GoneError:
            break  # the token of the next page has expired: what was read is recent enough
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            notes.append(
                "events cannot be listed (forbidden): the last decisions of the controller are unknown"
            )
            break
        except msgspec.MsgspecError as error:
            notes.append(f"events cannot be read: {error}")
            break
        latest = _latest((*latest, *(page.items or ())))
        token = page.metadata.continue_token
        if not token:
            version = page.metadata.resource_version
            break
    else:
        notes.append("there are more events than top reads: later decisions may be missing")
    return _EventListing(events=tuple(latest), notes=tuple(notes), resource_version=version)


def _latest(events: Iterable[_Event]) -> list[_Event]:
    return heapq.nlargest(_MOST * _MOST, events, key=lambda event: event.at)


@final
class DecisionWatch:
    """Keeps the last decisions current: lists the Events of the controller once, then watches them.

    Where they may not be watched they are listed anew, seldom. A failure is no error of the view: the
    decisions are those that were read last.
    """

    def __init__(self, apis: ClusterApis, clock: Clock, *, on_change: Callable[[], None]) -> None:
        self._api: Final = apis.api_for(EVENTS)
        self._clock: Final = clock
        self._on_change: Final = on_change
        self._events: dict[str, _Event] = {}
        self._notes: tuple[str, ...] = ()
        self._decisions: tuple[DecisionEvent, ...] | None = ()
        self._refusals: Mapping[str, PodRefusal] | None = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Reasons why decisions are missing."""
        return self._notes

    @property
    def decisions(self) -> tuple[DecisionEvent, ...]:
        """The last decisions, the latest first."""
        if self._decisions is None:
            self._decisions = _grouped(self._events.values())
        return self._decisions

    @property
    def refusals(self) -> Mapping[str, PodRefusal]:
        """Reasons why the controller has launched no node for pods, by namespace and name."""
        if self._refusals is None:
            self._refusals = _refusals(self._events.values())
        return self._refusals

    async def run(self) -> None:
        """Follow the Events until cancelled."""
        while True:
            try:
                listing = await _list_events(self._api)
                self._events = {event.metadata.uid: event for event in listing.events}
                self._notes = listing.notes
                self._note_change()
                if listing.resource_version:
                    await self._watch(listing.resource_version)
            except ApiError as error:
                if error.status == _FORBIDDEN:
                    await self._clock.sleep(_POLL_SECONDS)
            except msgspec.MsgspecError as error:
                self._notes = (f"events cannot be read: {error}",)
            await self._clock.sleep(_RETRY_SECONDS)

    async def _watch(self, version: str) -> None:
        """Follow one stream to its end, and its successors from where it ended.

        Raises:
            ApiError: the watch is refused or broken; the Events are listed anew.
        """
        while True:
            opening = self._api.watch(
                EVENTS,
                resource_version=version,
                timeout_seconds=_WATCH_SECONDS,
                field_selector=_OURS,
            )
            async with opening as lines:
                async for line in lines:
                    event = _event_decoder.decode(line)
                    if event.type == "ERROR":
                        return
                    version = event.object.metadata.resource_version or version
                    if event.type != "BOOKMARK":
                        self._apply(event)

    def _apply(self, event: _WatchLine) -> None:
        uid = event.object.metadata.uid
        if event.type == "DELETED":
            self._events.pop(uid, None)
        else:
            self._events[uid] = event.object
            if len(self._events) > 2 * _MOST * _MOST:
                self._events = {each.metadata.uid: each for each in _latest(self._events.values())}
        self._note_change()

    def _note_change(self) -> None:
        self._decisions = self._refusals = None
        self._on_change()


def _printable(text: str) -> str:
    """Return a text without control characters: anyone who may create Events could write to the terminal."""
    cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return "".join(letter if letter.isprintable() else " " for letter in cut)


def _refusals(events: Iterable[_Event]) -> dict[str, PodRefusal]:
    """Return the last refusal of each pod, with the nominations after it."""
    failed: dict[str, _Event] = {}
    nominated: dict[str, list[_Event]] = {}
    for event in events:
        if event.involved_object.kind != "Pod":
            continue
        key = f"{event.involved_object.namespace}/{event.involved_object.name}"
        if event.reason == _NOMINATED:
            nominated.setdefault(key, []).append(event)
        elif event.reason == _FAILED and (key not in failed or event.at > failed[key].at):
            failed[key] = event
    return {
        key: PodRefusal(
            at=event.at,
            message=_printable(event.message.removeprefix(_FAILED_PREFIX)),
            later_targets=frozenset(
                target
                for each in nominated.get(key, ())
                if each.at > event.at
                for target in _TARGET.findall(each.message)
            ),
        )
        for key, event in failed.items()
    }


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
