"""Registers the NodeClasses and NodePools that hooks were last called with.

Some hooks have no NodeClass argument, and no hook lists the NodePools.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from karpenter_core.api.nodeclass import NodeClass

if TYPE_CHECKING:
    from karpenter_core.api.nodepool import NodePool

__all__ = ["NodeClassRegistry"]

C = TypeVar("C", bound=NodeClass)


@final
class NodeClassRegistry(Generic[C]):
    """The last NodeClasses and NodePools by name, of one kind; callable from any thread."""

    def __init__(self) -> None:
        self._lock: Final = Lock()
        self._classes: Final[dict[str, C]] = {}
        self._pools: Final[dict[str, NodePool]] = {}

    def note(self, node_class: C, node_pool: NodePool | None = None) -> None:
        """Record the arguments of a hook."""
        with self._lock:
            self._classes[node_class.name] = node_class
            if node_pool is not None:
                self._pools[node_pool.name] = node_pool

    def forget(self, node_class: C) -> None:
        """Remove a NodeClass that was deleted."""
        with self._lock:
            self._classes.pop(node_class.name, None)

    def node_class(self, name: str) -> C | None:
        """Return a NodeClass; None if no hook was called with it."""
        with self._lock:
            return self._classes.get(name)

    def node_pools(self, node_class: C) -> tuple[NodePool, ...]:
        """Return the NodePools that use a NodeClass, by name."""
        with self._lock:
            pools = [self._pools[name] for name in sorted(self._pools)]
        return tuple(
            pool for pool in pools if pool.spec.template.spec.node_class_ref.name == node_class.name
        )
