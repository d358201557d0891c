"""Publishes Kubernetes Events from a bounded queue.

`publish` returns at once. Repetitions are left out before they cost anything, the rest waits in a
bounded queue and is posted at a rate of its own, so that a storm of Events cannot delay a write
that matters. An Event that cannot be sent is counted and forgotten. Each Event goes to the cluster that
holds its object, where users look for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from karpenter_core.errors import ApiError, ConflictError, NotFoundError
from karpenter_core.kube.rate_limits import AsyncTokenBucket
from karpenter_core.kube.resources import EVENTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.notices import Notice
    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.kube.metrics import KubeMetrics

__all__ = ["COMPONENT", "EVENT_BURST", "EVENT_QPS", "RATE_LIMITS", "EventRecorder"]

COMPONENT: Final = "karpenter"
RATE_LIMITS: Final[Mapping[str, tuple[float, int]]] = {
    "nominated": (5.0, 10),  # upstream
    "conditions": (5.0, 20),
}
"""Shared rate limits by name (in lower case): events a second, and burst."""
EVENT_QPS: Final = 50.0
EVENT_BURST: Final = 200

_MESSAGE_BYTES: Final = 1024  # what the API server accepts
_NAME_LENGTH: Final = 200  # leaves room for the suffix within 253
_QUEUE_LENGTH: Final = 2_000
_REMEMBERED: Final = 4_096
_WORKERS: Final = 4
_ATTEMPTS: Final = 3
_RETRY_SECONDS: Final = 1.0

_log = structlog.stdlib.get_logger("kube.events")


@dataclass(frozen=True, slots=True)
class _PostedEvent:
    """An Event on the server that may be counted up."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class _QueuedEvent:
    """A notice that waits to be posted, when it was published, and its own name's ending."""

    notice: Notice
    at: datetime
    suffix: str


class EventRecorder:
    """Turns notices into core/v1 Events. Give it API clients with limiters of their own."""

    def __init__(self, apis: ClusterApis, *, clock: Clock, metrics: KubeMetrics | None) -> None:
        self._apis: Final = apis
        self._clock: Final = clock
        self._metrics: Final = metrics
        self._queue: Final[asyncio.Queue[_QueuedEvent]] = asyncio.Queue(_QUEUE_LENGTH)
        self._recent: Final[OrderedDict[str, float]] = OrderedDict()
        self._capacity = _REMEMBERED
        """Time of the next search for expired keys: a search takes as long as there are keys."""
        self._posted: Final[OrderedDict[tuple[str, ...], _PostedEvent]] = OrderedDict()
        self._buckets: Final = {
            name: AsyncTokenBucket(clock, rate=rate, burst=burst)
            for name, (rate, burst) in RATE_LIMITS.items()
        }
        self._sequence = 0

    def publish(self, notice: Notice) -> None:
        """Queue an Event, unless one like it was published lately or its bucket is empty."""
        if notice.dedupe and not self._is_new(notice):
            return
        bucket = self._buckets.get(notice.bucket.lower())
        if bucket is not None and not bucket.try_take():
            return
        now = self._clock.now()
        self._sequence += 1
        unique = int(now.timestamp() * 1_000_000) * 1_000 + self._sequence % 1_000
        try:
            self._queue.put_nowait(_QueuedEvent(notice, now, f"{unique:x}"))
        except asyncio.QueueFull:
            self._drop("queue-full", notice)

    async def run(self) -> None:
        """Post queued Events, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._work())

    async def drain(self) -> None:
        """Wait until everything queued has been posted or given up; `run` must be running."""
        await self._queue.join()

    async def _work(self) -> None:
        while True:
            entry = await self._queue.get()
            try:
                await self._post(entry)
            except ApiError as error:
                self._drop(str(error.status), entry.notice, error)
            except Exception as error:  # an Event must never hurt anything
                self._drop("failed", entry.notice, error)
            finally:
                self._queue.task_done()

    def _is_new(self, notice: Notice) -> bool:
        now = self._clock.monotonic()
        key = f"{notice.reason.lower()}-{'-'.join(notice.dedupe)}"
        if self._recent.get(key, now) > now:
            return False
        self._recent[key] = now + notice.window.total_seconds()
        self._recent.move_to_end(key)
        if len(self._recent) > self._capacity:
            self._forget(now)
            self._capacity = max(_REMEMBERED, 2 * len(self._recent))
        return True

    def _forget(self, now: float) -> None:
        """Drop expired entries; if they are too few, the oldest ones."""
        for key in [key for key, until in self._recent.items() if until <= now]:
            del self._recent[key]
        while len(self._recent) > _REMEMBERED * 4:
            self._recent.popitem(last=False)

    async def _post(self, entry: _QueuedEvent) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._post_once(entry)
            except ApiError as error:
                temporary = error.status in {0, 429} or error.status >= 500  # noqa: PLR2004 - HTTP
                if not temporary or attempt == _ATTEMPTS:
                    raise
                wait = error.retry_after.total_seconds() if error.retry_after else _RETRY_SECONDS
                await self._clock.sleep(min(wait, 10 * _RETRY_SECONDS))
            else:
                return

    async def _post_once(self, entry: _QueuedEvent) -> None:
        """Count up the same Event if it was posted before, else create one."""
        notice = entry.notice
        regarding = notice.regarding
        namespace = regarding.namespace or "default"
        key = (regarding.uid, regarding.kind, namespace, regarding.name,
               notice.type, notice.reason, notice.message)  # fmt: skip
        group, slash, _ = regarding.api_version.partition("/")
        api = self._apis.api_for_group(group if slash else "")
        posted = self._posted.get(key)
        if posted is not None:
            patch = {"count": posted.count + 1, "lastTimestamp": _timestamp(entry.at)}
            try:
                await api.patch(EVENTS, posted.name, patch, namespace=namespace)
            except NotFoundError:
                self._posted.pop(key, None)  # Events expire on the server
            else:
                self._remember(key, _PostedEvent(posted.name, posted.count + 1))
                return
        name = f"{regarding.name[:_NAME_LENGTH]}.{entry.suffix}"
        with suppress(ConflictError):  # it is there: the answer to an earlier attempt was lost
            manifest = _manifest(entry, namespace, name)
            await api.create(EVENTS, manifest, namespace=namespace)
        self._remember(key, _PostedEvent(name, 1))

    def _remember(self, key: tuple[str, ...], posted: _PostedEvent) -> None:
        self._posted[key] = posted
        if len(self._posted) > _REMEMBERED:
            self._posted.popitem(last=False)

    def _drop(self, cause: str, notice: Notice, error: Exception | None = None) -> None:
        if self._metrics is not None:
            self._metrics.events_dropped.labels(cause).inc()
        _log.debug("event was dropped", cause=cause, reason=notice.reason, error=str(error))


def _manifest(entry: _QueuedEvent, namespace: str, name: str) -> dict[str, object]:
    notice, regarding = entry.notice, entry.notice.regarding
    moment = _timestamp(entry.at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "name": regarding.name,
            "namespace": regarding.namespace,
            "uid": regarding.uid,
        },
        "type": notice.type,
        "reason": notice.reason,
        "message": _cut(notice.message),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def _cut(message: str) -> str:
    """Shorten to the API server's limit, never within a character."""
    encoded = message.encode()
    if len(encoded) <= _MESSAGE_BYTES:
        return message
    return encoded[: _MESSAGE_BYTES - 3].decode(errors="ignore") + "..."


def _timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
