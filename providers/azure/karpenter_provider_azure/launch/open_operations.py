"""Remembers the operations that make virtual machines, while this process lives."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from karpenter_core.clock import Clock

__all__ = ["OpenOperations"]

_KEPT: Final = timedelta(hours=1)
"""A launch that takes longer has been given up before."""


@final
class OpenOperations:
    """URLs of operations by instance id; callable from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._urls: Final[TtlCache[str, str]] = TtlCache(clock, _KEPT)

    def put(self, instance_id: str, url: str) -> None:
        """Remember the operation of a launch; an empty URL is none."""
        if url:
            self._urls.put(instance_id, url)
        else:
            self._urls.drop(instance_id)

    def url(self, instance_id: str) -> str:
        """Return the URL of the operation of a launch; empty if it is not known."""
        return self._urls.get(instance_id) or ""

    def drop(self, instance_id: str) -> None:
        """Forget the operation of a launch."""
        self._urls.drop(instance_id)
