"""Lists and watches one kind, and reports every change exactly once.

The contract: the sink gets every object, every change and every deletion once, however often the
connection breaks, including changes that this process wrote itself. A stream that ends is resumed
from the last resourceVersion. If the server no longer keeps that version (410), the kind is listed
again; the old objects stay meanwhile, and only differences by UID and resourceVersion are passed on.

A silent stream proves nothing (see `kube.contact`), so it is checked against a list. A list that is
older than the held objects comes from a server that was restored from a backup, and is passed on
whole: see `ObjectObserved.authoritative`.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

from karpenter_core.errors import ApiError, BadInputError, GoneError, NotFoundError
from karpenter_core.kube.api import PAGE_SIZE
from karpenter_core.kube.contact import ContactTimes, LastContact
from karpenter_core.kube.held_objects import HeldObjects
from karpenter_core.kube.listing import add_initial_event
from karpenter_core.kube.pacing import JitteredBackoff, cancel_when_raised, time_limit
from karpenter_core.kube.transport import LINE_TOO_LONG
from karpenter_core.kube.wire.kind_codec import uid_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import KubeApi
    from karpenter_core.kube.held_objects import Change
    from karpenter_core.kube.metrics import KubeMetrics
    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.kube.wire.kind_codec import Codec, InvalidObject, ListPage, WatchEvent
    from karpenter_core.state.events import StateObject

__all__ = ["Informer", "Sink"]

Sink: TypeAlias = "Callable[[Change], None]"

_BACKOFF_BASE_SECONDS: Final = 0.8  # client-go's reflector: 0.8 s to 30 s
_BACKOFF_CAP_SECONDS: Final = 30.0
_HEALTHY_SECONDS: Final = 120.0
_WATCH_SECONDS: Final = 300  # a watch is asked to last 300 to 600 s, drawn to spread reconnects
_WATCH_GRACE_SECONDS: Final = 30.0  # after that the stream is stuck, not quiet
_INITIAL_EVENTS_SECONDS: Final = 120.0
_PROBE_SECONDS: Final = 60.0
"""Time limit for a list that checks a silent stream."""
_MISSING_KIND_SECONDS: Final = 5.0
_REPORT_SECONDS: Final = 600.0
_OWED_DELETIONS: Final = 10
"""Watches from one version that may lack a deletion before the kind is listed again."""
_YIELD_EVERY: Final = 500  # handlers between two turns of the event loop
_LIST_LIMITS: Final = (PAGE_SIZE, PAGE_SIZE, 0)  # after two expired tokens: all in one answer
_NO_WATCH_LIST: Final = frozenset({400, 422})
_GONE: Final = 410
_TOO_NEW: Final = 504
_SERVER_ERROR: Final = 500

_log = structlog.stdlib.get_logger("kube.informer")


class Informer:
    """Lists and watches one kind and passes changes to `sink`, which must not block."""

    def __init__(
        self,
        kind: ResourceKind,
        codec: Codec,
        api: KubeApi,
        *,
        clock: Clock,
        sink: Sink,
        metrics: KubeMetrics | None = None,
        on_invalid: Callable[[InvalidObject], None] | None,
        jitter: Callable[[], float] | None,
        watch_list: bool = True,
        times: ContactTimes | None = None,
        on_fresh: Callable[[], None] | None = None,
    ) -> None:
        """`on_fresh` is called when a contact makes the stale kind fresh."""
        self.kind: Final = kind
        self.synced: Final = asyncio.Event()
        self._codec: Final = codec
        self._api: Final = api
        self._clock: Final = clock
        self._sink: Final = sink
        self._metrics: Final = metrics
        self._counted = (-1, -1)
        """The numbers of objects, and of invalid ones, that the metrics show."""
        self._jitter: Final = jitter or random.Random().random  # noqa: S311 - spreads retries only
        self._backoff: Final = JitteredBackoff(
            self._jitter, base=_BACKOFF_BASE_SECONDS, cap=_BACKOFF_CAP_SECONDS
        )
        self._watch_list = watch_list
        self._resource: Final = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        self._held: Final = HeldObjects(on_invalid or _log_invalid)
        self._version = ""
        self._refused_at = ""
        self._deletions_owed_at = ""
        self._deletions_owed = 0
        self._trouble = ""
        self._reported_at = 0.0
        self._contact: Final = LastContact(clock, times or ContactTimes(), on_fresh)
        self.show_age()

    @property
    def resource_version(self) -> str:
        """The resourceVersion up to which all changes were seen; empty before the first list."""
        return self._version

    @property
    def problem(self) -> str:
        """The current problem of list or watch; empty if there is none."""
        return self._trouble

    @property
    def age_seconds(self) -> float | None:
        """Time since the last list, event or bookmark; None before the first list."""
        return self._contact.age_seconds

    @property
    def is_fresh(self) -> bool:
        """Whether the last list, event or bookmark is recent enough to act on."""
        return self._contact.is_fresh

    def show_age(self) -> None:
        """Export the time since the last contact."""
        if self._metrics is not None:
            age = self._metrics.informer_age.labels(self.kind.kind)
            age.set_function(self._contact.age_or_infinity)

    def hide_age(self) -> None:
        """Export no age, as of a kind that is not served: an infinite one would be alerted on."""
        if self._metrics is not None:
            self._metrics.informer_age.remove(self.kind.kind)

    def __len__(self) -> int:
        """Count the objects held."""
        return len(self._held)

    def note_written(self, written: StateObject) -> None:
        """Take note of the answer to a write of ours, which the state knows already.

        What was made and has vanished while the stream was broken appears in no listing, before or
        after. Without this note subscribers would never learn that it is gone.
        """
        self._emit(self._held.note_written(written, self._version))

    async def read_all(self) -> tuple[list[StateObject], list[InvalidObject]]:
        """Ask the API server for every object there is now, past the watch; the rare way.

        Returns the objects and those that cannot be read.

        Raises:
            ApiError: they could not all be listed.
        """
        pages = [self._codec.decode_list(body) async for body in self._api.list_pages(self.kind)]
        objects = [found for page in pages for found in page.objects]
        return objects, [found for page in pages for found in page.invalid]

    async def read_now(self, field_selector: str) -> tuple[list[StateObject], list[InvalidObject]]:
        """List the objects of a selection now, and pass on what the watch has not shown yet.

        Returns the objects and those that cannot be read.

        Raises:
            ApiError: they could not be listed.
        """
        body = await self._api.list_page(self.kind, limit=0, field_selector=field_selector)
        page = self._codec.decode_list(body)
        if not self._version or int(page.resource_version or 0) >= int(self._version):
            for listed_object in page.objects:
                self._emit(self._held.note_listed(listed_object))
        return list(page.objects), list(page.invalid)

    async def run(self) -> None:
        """List and follow until cancelled."""
        while True:
            started = self._clock.monotonic()
            pause = 0.0
            try:
                await self._follow()
            except NotFoundError as error:
                self._version = ""
                pause = _MISSING_KIND_SECONDS * (0.5 + 0.5 * self._jitter())
                self._log_problem(error, f"waiting for {self._resource} to be installed")
            except ApiError as error:
                pause = error.retry_after.total_seconds() if error.retry_after else 0.0
                self._must_list_again(error)
            except BadInputError as error:
                self._version = ""
                self._log_problem(error, "the response cannot be parsed; listing again")
            except TimeoutError as error:
                self._log_problem(error, "the watch is stuck; reconnecting")
            if self._clock.monotonic() - started >= _HEALTHY_SECONDS:
                self._backoff.reset()
            await self._clock.sleep(pause or self._backoff.next_delay())

    async def _follow(self) -> None:
        """Catch up if need be, then follow one stream to its end."""
        if not self._version and self._watch_list:
            try:
                await self._stream(initial=True)
            except ApiError as error:
                if error.status not in _NO_WATCH_LIST:
                    raise
            except _NoInitialEventsError:
                pass
            else:
                return
            self._watch_list = False  # this server lists in pages
        if not self._version:
            await self._list()
        await self._stream(initial=False)

    async def _list(self) -> None:
        for limit in _LIST_LIMITS:
            objects: dict[str, StateObject] = {}
            invalid: dict[str, InvalidObject] = {}
            version = ""
            try:
                async for body in self._api.list_pages(self.kind, limit=limit):
                    page = self._codec.decode_list(body)
                    objects.update((uid_of(found), found) for found in page.objects)
                    invalid.update((found.uid, found) for found in page.invalid)
                    version = page.resource_version
                    await asyncio.sleep(0)
            except GoneError:
                if limit:
                    continue  # the token ran out between two pages
                raise
            await self._replace(objects, invalid, version)
            return

    async def _stream(self, *, initial: bool) -> None:
        seconds = round(_WATCH_SECONDS * (1 + self._jitter()))
        stream = self._api.watch(
            self.kind,
            resource_version=self._version,
            timeout_seconds=seconds,
            send_initial_events=initial,
        )
        async with AsyncExitStack() as stack:
            lines: AsyncIterator[bytes] | None = None
            if initial:
                lines = await self._read_initial(stack.enter_async_context(stream))
            async with (
                cancel_when_raised(self._check_silence),
                time_limit(self._clock, seconds + _WATCH_GRACE_SECONDS),
            ):
                if lines is None:
                    lines = await stack.enter_async_context(stream)
                async for line in lines:
                    self._apply(self._codec.decode_event(line))

    async def _read_initial(self, opening: Awaitable[AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
        """Collect the initial events of a watch and replace the held objects by them.

        Only the server's answer has a time limit: if applying were cut off, subscribers would miss objects.
        """
        objects: dict[str, StateObject] = {}
        invalid: dict[str, InvalidObject] = {}
        try:
            async with time_limit(self._clock, _INITIAL_EVENTS_SECONDS):
                lines = await opening
                version = await self._gather_initial(lines, objects, invalid)
        except TimeoutError:
            raise _NoInitialEventsError from None
        await self._replace(objects, invalid, version)
        return lines

    async def _check_silence(self) -> None:
        """Check each silence of a stream against a list, until one hides something.

        Raises:
            TimeoutError: the stream owes what a list shows, or there is no such list.
            GoneError: the server no longer knows the version that the stream goes on from, or the
                stream has lost changes before it.
        """
        opened = self._clock.monotonic()
        while True:
            due = self._contact.next_probe_at(opened, has_failed=bool(self._trouble))
            if (wait := due - self._clock.monotonic()) > 0:
                await self._clock.sleep(wait)
                continue
            heard = self._contact.at
            try:
                async with time_limit(self._clock, _PROBE_SECONDS):
                    owed = await self._find_owed(heard)
            except GoneError:
                raise
            except ApiError as error:
                raise TimeoutError(f"the watch is silent, and no list answers: {error}") from error
            except TimeoutError:
                raise TimeoutError("the watch is silent, and no list answers") from None
            if owed and self._contact.at == heard:
                await self._clock.sleep(self._contact.times.reply_seconds)
            if self._contact.at != heard:
                continue
            if owed:
                raise TimeoutError(owed)
            self._record_contact()

    async def _find_owed(self, heard: float | None) -> str:
        """Compare the held objects with a complete list; return the difference, empty if none.

        Nothing is taken over from the list: the watch has to prove that it works. `heard` is the last
        contact: what the watch reports meanwhile is not compared with the list.

        Raises:
            GoneError: no watch from the last version can show the difference.
        """
        count = 0
        async for body in self._api.list_pages(self.kind):
            page = self._codec.decode_list(body)
            if int(page.resource_version or 0) < self._held.reached_version:
                raise GoneError("the API server has returned to an older version", status=_GONE)
            if not self._held.is_fully_held(page):
                self._check_passed_over(page, heard)
                return "the watch does not report changed objects"
            count += len(page.objects) + len(page.invalid)
            await asyncio.sleep(0)
        if count == self._held.count:
            return ""
        if self._contact.at == heard:
            self._note_owed_deletions()
        return "the watch does not report deleted objects"

    def _check_passed_over(self, page: ListPage, heard: float | None) -> None:
        if self._contact.at == heard and self._held.has_passed_over(page):
            raise GoneError("the watch has lost changes; listing again", status=_GONE)

    def _note_owed_deletions(self) -> None:
        """Give up on a version from which watch after watch lacks deletions: it is past them."""
        if self._deletions_owed_at != self._version:
            self._deletions_owed_at, self._deletions_owed = self._version, 0
        self._deletions_owed += 1
        if self._deletions_owed >= _OWED_DELETIONS:
            self._deletions_owed = 0
            raise GoneError("the watch has lost deletions; listing again", status=_GONE)

    async def _gather_initial(
        self,
        lines: AsyncIterator[bytes],
        objects: dict[str, StateObject],
        invalid: dict[str, InvalidObject],
    ) -> str:
        """Read up to the bookmark that ends the initial events and return its version."""
        async for line in lines:
            event = self._codec.decode_event(line)
            if event.error is not None:
                raise event.error
            if event.initial_events_end:
                return event.resource_version
            add_initial_event(event, objects, invalid)
        message = f"watch {self.kind.plural}: the stream ended within its initial events"
        raise ApiError(message, status=0)

    async def _replace(
        self, objects: dict[str, StateObject], invalid: dict[str, InvalidObject], version: str
    ) -> None:
        """Replace the held objects by a complete listing and pass on the differences."""
        changes, restored = self._held.replace(objects, invalid, version)
        self._version = version
        if restored:
            _log.warning("the API server has returned to an older state", kind=self.kind.kind)
        for index, change in enumerate(changes, start=1):
            self._emit(change)
            if index % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        if self._metrics is not None:
            self._metrics.informer_relists.labels(self.kind.kind).inc()
        self._record_contact()
        self._count()
        if not self.synced.is_set():
            self.synced.set()
            _log.debug("synced", kind=self.kind.kind, objects=len(objects))

    def _apply(self, event: WatchEvent) -> None:
        if event.error is not None:
            self._note_refusal(event.error)
            raise event.error
        if self._held.is_repeated(event):
            return
        self._record_contact()
        if event.resource_version:
            self._version = event.resource_version
        self._emit(self._held.apply(event))
        self._count()

    def _emit(self, change: Change | None) -> None:
        if change is None:
            return
        try:
            self._sink(change)
        except Exception:
            self._fail("handler")
            _log.exception(
                "an event handler failed", kind=self.kind.kind, uid=uid_of(change.object)
            )

    def _note_refusal(self, error: ApiError) -> None:
        """List again if the server has refused twice to resume the watch from one version."""
        if error.status < _SERVER_ERROR:
            return
        if self._refused_at == self._version:
            self._version = ""
        self._refused_at = self._version

    def _must_list_again(self, error: ApiError) -> None:
        """Decide whether to resume from where we were, or to list again."""
        temporary = error.status in {0, 429} or error.status >= _SERVER_ERROR
        too_new = error.status == _TOO_NEW or "too large resource version" in str(error).lower()
        if too_new or not temporary or error.reason == LINE_TOO_LONG:
            self._version = ""
        if isinstance(error, GoneError):
            _log.debug("too old to resume; listing again", kind=self.kind.kind)
        else:
            self._log_problem(error, "disconnected; retrying")

    def _log_problem(self, error: Exception, what: str) -> None:
        """Log a problem at the begin of an outage, and every ten minutes while it lasts."""
        self._fail("watch")
        text, now = str(error) or type(error).__name__, self._clock.monotonic()
        if not self._trouble or now - self._reported_at >= _REPORT_SECONDS:
            _log.warning(what, kind=self.kind.kind, error=text)
            self._reported_at = now
        self._trouble = text

    def _record_contact(self) -> None:
        """Note a complete list, an event or a bookmark."""
        if self._trouble:
            _log.info("connected again", kind=self.kind.kind)
            self._trouble = ""
        self._contact.record()

    def _fail(self, step: str) -> None:
        if self._metrics is not None:
            self._metrics.informer_failures.labels(self.kind.kind, step).inc()

    def _count(self) -> None:
        """Show the numbers of objects, if they have changed: most batches are bookmarks and updates."""
        counts = (len(self._held), self._held.invalid_count)
        if self._metrics is None or counts == self._counted:
            return
        self._counted = counts
        self._metrics.informer_objects.labels(self.kind.kind).set(counts[0])
        self._metrics.informer_invalid_objects.labels(self.kind.kind).set(counts[1])


class _NoInitialEventsError(Exception):
    """The server took the request for initial events and never ended them."""


def _log_invalid(invalid_object: InvalidObject) -> None:
    _log.warning("ignored an invalid object", error=str(invalid_object))
