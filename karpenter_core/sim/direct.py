"""Calls the embedded API server in process, without a socket."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import ApiError
from karpenter_core.sim.apiserver import is_watch
from karpenter_core.sim.faults import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from karpenter_core.kube.transport import ApiRequest, ApiResponse
    from karpenter_core.sim.frontend import ServerFrontend

__all__ = ["DirectTransport"]


class DirectTransport:
    """`kube.transport.Transport` onto an embedded server."""

    def __init__(self, frontend: ServerFrontend) -> None:
        self._front: Final = frontend

    async def request(self, request: ApiRequest) -> ApiResponse:
        """Send a request and read the whole answer."""
        await asyncio.sleep(0)  # a request is never answered in the same breath
        try:
            return await self._front.respond(request)
        except ConnectionLostError as error:
            raise ApiError(str(error), status=0) from error

    @asynccontextmanager
    async def stream(
        self, request: ApiRequest
    ) -> AsyncGenerator[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """Open a watch and iterate over its lines."""
        await asyncio.sleep(0)
        if not is_watch(request):
            response = await self.request(request)
            yield response, _split(response.body)
            return
        try:
            response, batches = await self._front.watch(request)
        except ConnectionLostError as error:
            raise ApiError(str(error), status=0) from error
        async with aclosing(_lines(batches)) as lines:
            yield response, lines

    async def close(self) -> None:
        """Do nothing: there are no connections."""


async def _lines(batches: AsyncIterator[list[bytes]] | None) -> AsyncGenerator[bytes]:
    if batches is None:
        return
    try:
        async for batch in batches:
            for line in batch:
                yield line
    except ConnectionLostError as error:
        raise ApiError(str(error), status=0) from error


async def _split(body: bytes) -> AsyncGenerator[bytes]:
    for line in body.splitlines(keepends=True):
        yield line
