"""NodeClasses and NodePools as hooks were last called with them.

Some hooks are not told the NodeClass, and nothing else tells a provider which NodePools there are.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from karpenter_core.api.nodepool import NodePool
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass

__all__ = ["Known"]


@final
class Known:
    """What hooks were called with, by name; callable from any thread."""

    def __init__(self) -> None:
        self._lock: Final = Lock()
        self._classes: Final[dict[str, EC2NodeClass]] = {}
        self._pools: Final[dict[str, NodePool]] = {}

    def note(self, node_class: EC2NodeClass, node_pool: NodePool | None = None) -> None:
        """Note what a hook was called with."""
        with self._lock:
            self._classes[node_class.name] = node_class
            if node_pool is not None:
                self._pools[node_pool.name] = node_pool

    def forget(self, node_class: EC2NodeClass) -> None:
        """Forget a NodeClass that is gone."""
        with self._lock:
            self._classes.pop(node_class.name, None)

    def node_class(self, name: str) -> EC2NodeClass | None:
        """Return a NodeClass; None when no hook was called with it."""
        with self._lock:
            return self._classes.get(name)

    def node_pools(self, node_class: EC2NodeClass) -> tuple[NodePool, ...]:
        """Return the NodePools that use a NodeClass, by name."""
        with self._lock:
            pools = [self._pools[name] for name in sorted(self._pools)]
        return tuple(
            pool for pool in pools if pool.spec.template.spec.node_class_ref.name == node_class.name
        )
