"""Sends messages to viewers of the dashboard; drops viewers too slow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Subscriber", "Subscribers"]

MOST_SUBSCRIBERS: Final = 20
QUEUED_MESSAGES: Final = 32


@final
class Subscriber:
    """One viewer: a bounded queue, and a function that ends its connection."""

    def __init__(self, on_drop: Callable[[], None]) -> None:
        self.queue: Final[asyncio.Queue[bytes]] = asyncio.Queue(QUEUED_MESSAGES)
        self._on_drop: Final = on_drop

    def send(self, message: bytes) -> bool:
        """Queue a message; False if the queue is full."""
        try:
            self.queue.put_nowait(message)
        except asyncio.QueueFull:
            return False
        return True

    def drop(self) -> None:
        """End the connection."""
        self._on_drop()


@final
class Subscribers:
    """All viewers, of which there are a bounded number."""

    def __init__(self) -> None:
        self._all: set[Subscriber] = set()
        self.dropped = 0
        """Number of viewers that were too slow."""

    def __len__(self) -> int:
        return len(self._all)

    def add(self, subscriber: Subscriber) -> bool:
        """Add a viewer; False if there are too many."""
        if len(self._all) >= MOST_SUBSCRIBERS:
            return False
        self._all.add(subscriber)
        return True

    def remove(self, subscriber: Subscriber) -> None:
        """Remove a viewer, if it is still there."""
        self._all.discard(subscriber)

    def send(self, message: bytes) -> None:
        """Send a message to every viewer, and drop those whose queue is full."""
        for subscriber in tuple(self._all):
            if not subscriber.send(message):
                self.dropped += 1
                self.remove(subscriber)
                subscriber.drop()

    def drop_all(self) -> None:
        """End all connections."""
        for subscriber in tuple(self._all):
            self.remove(subscriber)
            subscriber.drop()
