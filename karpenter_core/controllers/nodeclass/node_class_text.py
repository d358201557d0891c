"""Renders NodeClasses as text, to detect changes of spec or status."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karpenter_core.api.nodeclass import NodeClass

__all__ = ["spec_and_status_text", "spec_text"]


def spec_and_status_text(node_class: NodeClass) -> str:
    """Return the spec and status of a NodeClass as text, without its conditions."""
    fields = node_class.model_dump(
        mode="json", exclude={"metadata": True, "status": {"conditions": True}}
    )
    return f"{node_class.uid}/{fields!r}"


def spec_text(node_class: NodeClass) -> str:
    """Return the spec of a NodeClass as text."""
    spec = node_class.model_dump(mode="json", exclude={"metadata": True, "status": True})
    return f"{node_class.uid}/{spec!r}"
