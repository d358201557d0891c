"""Keeps the objects that providers read (`ProviderInfo.reads`) up to date.

Providers read what was fetched last, without a request and from any thread. An outage of the API
server or a refusal keeps the last objects; before the first answer a read raises the reason.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast, final

import msgspec
import structlog

from karpenter_core.errors import ApiError, CloudProviderError, NotFoundError, PluginError
from karpenter_core.kube.api_errors import error_of
from karpenter_core.kube.pacing import time_limit
from karpenter_core.kube.resources import ResourceKind
from karpenter_core.kube.transport import ApiRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.kube.transport import Transport
    from karpenter_core.provider.contract import ObjectRead

__all__ = ["RETRY_SECONDS", "DeclaredReads", "kind_of"]

REQUEST_SECONDS: Final = 10.0
"""The time limit of one request: the start waits for the first."""
RETRY_SECONDS: Final = 10.0
_BAD_REQUEST: Final = 400


def kind_of(read: ObjectRead) -> ResourceKind:
    """Return the place of declared objects in the API."""
    return ResourceKind(
        read.group, read.version, read.resource, read.resource, namespaced=bool(read.namespace)
    )


@final
class DeclaredReads:
    """The declared objects of all providers."""

    def __init__(self, transport: Transport, reads: Iterable[ObjectRead], *, clock: Clock) -> None:
        self._transport: Final = transport
        self._clock: Final = clock
        self._objects: Final[dict[ObjectRead, tuple[Mapping[str, object], ...]]] = {}
        self._problems: Final = dict.fromkeys(reads, "not requested yet")
        """Failure of the last request of each declared read; empty after a success."""
        self._log: FilteringBoundLogger = structlog.get_logger("operator")

    def objects(self, read: ObjectRead) -> tuple[Mapping[str, object], ...]:
        """Return the objects of a declared read as JSON values; callable from any thread.

        Raises:
            CloudProviderError: they were never read; has the reason.
            PluginError: the provider has not declared the read.
        """
        objects = self._objects.get(read)
        if objects is not None:
            return objects
        if read not in self._problems:
            raise PluginError(f"{read} is not declared in ProviderInfo.reads")
        raise CloudProviderError(f"{read} could not be read: {self._problems[read]}")

    async def fetch(self) -> None:
        """Request all declared objects once, and store them."""
        await self._fetch_all(tuple(self._problems))

    async def run(self) -> None:
        """Request them again and again, until cancelled: each in its own period."""
        due = {read: self._next_at(read) for read in self._problems}
        while due:
            await self._clock.sleep(max(0.0, min(due.values()) - self._clock.monotonic()))
            now = self._clock.monotonic()
            ripe = [read for read, at in due.items() if at <= now]
            await self._fetch_all(ripe)
            due |= {read: self._next_at(read) for read in ripe}

    async def _fetch_all(self, reads: Iterable[ObjectRead]) -> None:
        await asyncio.gather(*map(self._fetch, reads))

    def _next_at(self, read: ObjectRead) -> float:
        """Return when a read is due, by the monotonic clock."""
        pause = RETRY_SECONDS if self._problems[read] else read.period.total_seconds()
        return self._clock.monotonic() + pause

    async def _fetch(self, read: ObjectRead) -> None:
        try:
            async with time_limit(self._clock, REQUEST_SECONDS):
                self._objects[read] = await self._request(read)
        except (ApiError, msgspec.DecodeError, TimeoutError) as error:
            problem = str(error) or f"no answer within {REQUEST_SECONDS:g} s"
            if self._problems[read] != problem:
                self._log.warning(
                    "objects for a provider could not be read, trying again", error=problem
                )
            self._problems[read] = problem
        else:
            self._problems[read] = ""

    async def _request(self, read: ObjectRead) -> tuple[Mapping[str, object], ...]:
        path = kind_of(read).path(namespace=read.namespace, name=read.name)
        query = {"limit": str(read.limit)} if read.limit and not read.name else {}
        response = await self._transport.request(ApiRequest(method="GET", path=path, query=query))
        try:
            if response.status >= _BAD_REQUEST:
                raise error_of(response, f"get {path}")
        except NotFoundError:
            return ()
        body = cast("Mapping[str, object]", msgspec.json.decode(response.body))
        if read.name:
            return (body,)
        return tuple(cast("list[Mapping[str, object]]", body.get("items") or []))
