"""Records the hosts that a process connects to."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def hosts_reached() -> Iterator[set[str]]:
    """Collect `host:port` of all that is resolved or connected to while the context is open."""
    found: set[str] = set()
    is_on = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not is_on:
            return
        if event == "socket.connect" and isinstance(arguments[1], tuple):
            found.add(":".join(map(str, arguments[1][:2])))
        elif event == "socket.getaddrinfo":
            found.add(f"{arguments[0]}:{arguments[1]}")

    # A hook cannot be taken off; this one is switched off.
    sys.addaudithook(hook)
    try:
        yield found
    finally:
        is_on.clear()
