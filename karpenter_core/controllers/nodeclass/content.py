"""Whether a NodeClass says something else than before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karpenter_core.api.nodeclass import NodeClass

__all__ = ["content_of", "wishes_of"]


def content_of(node_class: NodeClass) -> str:
    """Return a NodeClass as text: what it asks for and what was found, not when that was stamped."""
    found = node_class.model_dump(
        mode="json", exclude={"metadata": True, "status": {"conditions": True}}
    )
    return f"{node_class.uid}/{found!r}"


def wishes_of(node_class: NodeClass) -> str:
    """Return what a NodeClass asks for, as text."""
    asked = node_class.model_dump(mode="json", exclude={"metadata": True, "status": True})
    return f"{node_class.uid}/{asked!r}"
