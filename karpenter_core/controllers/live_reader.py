"""Defines the port for lists from the API server itself, past the watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from karpenter_core.kube.wire.kind_codec import InvalidObject
    from karpenter_core.state.events import StateObject

__all__ = ["LiveReader"]


class LiveReader(Protocol):
    """Lists objects of one kind as they are now; implemented by the kind's informer."""

    async def read_all(self) -> tuple[list[StateObject], list[InvalidObject]]:
        """Return all objects, and those that cannot be parsed.

        Raises:
            ApiError: they could not be listed.
        """
        ...

    async def read_now(self, field_selector: str) -> tuple[list[StateObject], list[InvalidObject]]:
        """Return the selected objects, and those that cannot be parsed.

        Afterwards the state has them too, unless it had newer versions.

        Raises:
            ApiError: they could not be listed.
        """
        ...
