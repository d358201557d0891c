"""What controllers ask the API server itself, past the watches, before they end something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from karpenter_core.kube.wire.codecs import InvalidObject
    from karpenter_core.state.events import Object

__all__ = ["LiveReader"]


class LiveReader(Protocol):
    """Lists objects of one kind as they are now; the kind's informer is one."""

    async def read_now(self, field_selector: str) -> tuple[list[Object], list[InvalidObject]]:
        """Return the selected objects, and those that cannot be read.

        The state has them afterwards, as far as they are newer than what it had.

        Raises:
            ApiError: they could not be listed.
        """
        ...
