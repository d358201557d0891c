"""What providers say the hash of a NodeClass is."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from karpenter_core.lifecycle.nodeclass.hashing import hash_annotations

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.provider.host.facade import Providers

__all__ = ["NodeClassHashes"]


@final
class NodeClassHashes:
    """Asks once for each state of a NodeClass."""

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._known: dict[Hashable, tuple[NodeClass, Mapping[str, str]]] = {}

    async def annotations_of(self, node_class: NodeClass) -> Mapping[str, str]:
        """Return the annotations that say a NodeClass' hash; none without static drift.

        Raises:
            CloudProviderError: the provider could not tell.
        """
        key = (type(node_class), node_class.name)
        known = self._known.get(key)
        if known is not None and known[0] is node_class:
            return known[1]
        found = await self._providers.hash_node_class(node_class)
        annotations: Mapping[str, str] = {}
        if found is not None:
            annotations = hash_annotations(node_class, value=found.value, version=found.version)
        self._known[key] = node_class, annotations
        return annotations
