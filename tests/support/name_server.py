"""Serves host names to one process by DNS, or fails to."""

from __future__ import annotations

import asyncio
import random
import struct
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Self, cast, final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

__all__ = ["NameServer", "NameService"]

PORT: Final = 53
"""A resolv.conf names no port, so the server has an address on loopback of its own."""
_HEADER: Final = struct.Struct("!6H")
_RESPONSE: Final = 0x8180
_SERVFAIL: Final = 2
_NXDOMAIN: Final = 3
_TYPE_A: Final = 1
_POD_SETTINGS: Final = (
    "search karpenter.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
)
"""As kubelets write them for pods: a name is tried with each suffix first."""


class NameService(Enum):
    """Service that the server gives."""

    WORKS = auto()
    FAILS = auto()
    """Each query is answered with SERVFAIL."""
    SILENT = auto()
    """No query is answered: each lookup takes as long as the resolver waits."""


@final
class NameServer:
    """Serves one name, which has the address 127.0.0.1; an async context manager.

    `command` runs a program in a mount namespace whose resolv.conf names this server alone, for which the
    caller needs to be root.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._name: Final = name
        self._folder: Final = folder
        self._address: Final = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.53"
        self._transport: asyncio.DatagramTransport | None = None
        self.service = NameService.WORKS
        self.queries = 0
        """Number of queries for the name since the start."""

    async def __aenter__(self) -> Self:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Queries(self), local_addr=(self._address, PORT)
        )
        self._transport = transport
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._transport is not None:
            self._transport.close()

    def command(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the command that runs another one with this name server."""
        file = self._folder / "resolv.conf"
        file.write_text(f"nameserver {self._address}\n{_POD_SETTINGS}")
        script = f'mount --bind "{file}" /etc/resolv.conf && exec "$@"'
        return ("unshare", "--mount", "sh", "-c", script, "sh", *words)

    def answer(self, query: bytes) -> bytes | None:
        """Return the answer to a query; None if there is none."""
        number, _, questions, *_ = _HEADER.unpack_from(query)
        name, end = _read_name(query)
        kind, _ = struct.unpack_from("!2H", query, end)
        question = query[_HEADER.size : end + 4]
        is_ours = name == self._name
        self.queries += is_ours
        if self.service is NameService.SILENT or questions != 1:
            return None
        if self.service is NameService.FAILS:
            return _HEADER.pack(number, _RESPONSE | _SERVFAIL, 1, 0, 0, 0) + question
        if not is_ours:
            return _HEADER.pack(number, _RESPONSE | _NXDOMAIN, 1, 0, 0, 0) + question
        if kind != _TYPE_A:
            return _HEADER.pack(number, _RESPONSE, 1, 0, 0, 0) + question
        pointer_to_question = 0xC000 | _HEADER.size
        record = struct.pack("!3HIH4B", pointer_to_question, _TYPE_A, 1, 1, 4, 127, 0, 0, 1)
        return _HEADER.pack(number, _RESPONSE, 1, 1, 0, 0) + question + record


class _Queries(asyncio.DatagramProtocol):
    def __init__(self, server: NameServer) -> None:
        self._server: Final = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        answer = self._server.answer(data)
        if answer is not None and self._transport is not None:
            self._transport.sendto(answer, addr)


def _read_name(query: bytes) -> tuple[str, int]:
    """Return the name of the question, and where its type begins."""
    at, labels = _HEADER.size, list[str]()
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii").lower())
        at += 1 + length
    return ".".join(labels), at + 1
