"""Numbers the dashboard's states, and writes differences between two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

if TYPE_CHECKING:
    from karpenter_core.operator.dashboard_content import Json

__all__ = ["StateVersions"]

_NODES: Final = "nodes"


@final
class StateVersions:
    """The last state, encoded part by part, so that an update has only what changed."""

    def __init__(self, prefix: str) -> None:
        """`prefix` distinguishes the versions of this process from those of another one."""
        self._prefix: Final = prefix
        self._number = 0
        self._parts: dict[str, bytes] = {}
        self._nodes: dict[str, bytes] = {}

    @property
    def version(self) -> str:
        """Version of the last state."""
        return f"{self._prefix}-{self._number}"

    def take(self, state: Json) -> bytes | None:
        """Take a new state; return the update from the last one, None if nothing changed."""
        encode = msgspec.json.encode
        rows: list[Json] = state[_NODES]  # pyright: ignore[reportAssignmentType] - by contract
        nodes = {str(row["name"]): encode(row) for row in rows}
        parts = {name: encode(part) for name, part in state.items() if name != _NODES}
        changed = {name: part for name, part in parts.items() if self._parts.get(name) != part}
        changed_nodes = [row for name, row in nodes.items() if self._nodes.get(name) != row]
        removed = [name for name in self._nodes if name not in nodes]
        self._parts, self._nodes = parts, nodes
        if not (changed or changed_nodes or removed):
            return None
        base = self.version
        self._number += 1
        return _object(
            base=encode(base),
            version=encode(self.version),
            parts=_object(**changed),
            nodes=b"[" + b",".join(changed_nodes) + b"]",
            removedNodes=encode(removed),
        )

    def whole(self, **others: object) -> bytes:
        """Return the last state as JSON, with its version and other parts."""
        return _object(
            version=msgspec.json.encode(self.version),
            **self._parts,
            nodes=b"[" + b",".join(self._nodes.values()) + b"]",
            **{name: msgspec.json.encode(value) for name, value in others.items()},
        )


def _object(**parts: bytes) -> bytes:
    """Join encoded values to a JSON object; names need no escapes."""
    return (
        b"{" + b",".join(b'"%s":%s' % (name.encode(), part) for name, part in parts.items()) + b"}"
    )
