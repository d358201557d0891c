"""Kubernetes Events as data, so that pure code can ask for one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from karpenter_core.api.records import NodeView

__all__ = ["DEFAULT_DEDUPE", "Notice", "ObjectRef", "node_ref"]

DEFAULT_DEDUPE: Final = timedelta(minutes=2)  # upstream default


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """A reference to a Kubernetes object."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


def node_ref(node: NodeView) -> ObjectRef:
    """Refer to a node in Events (Kubernetes files them under the node's name)."""
    return ObjectRef(api_version="v1", kind="Node", name=node.name, uid=node.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One Event to publish about `regarding`.

    Of notices with the same reason and `dedupe` values, one is sent within each `window`; without
    `dedupe` values every notice is sent. `bucket` names a shared rate limit, if any.
    """

    regarding: ObjectRef
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    dedupe: tuple[str, ...] = ()
    window: timedelta = DEFAULT_DEDUPE
    bucket: str = ""
