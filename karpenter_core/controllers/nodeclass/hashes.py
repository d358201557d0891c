"""Caches the hashes that providers compute for NodeClasses."""

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
    """Calls the provider once for each version of a NodeClass."""

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._annotations: dict[Hashable, tuple[NodeClass, Mapping[str, str]]] = {}

    async def annotations_of(self, node_class: NodeClass) -> Mapping[str, str]:
        """Return a NodeClass' hash annotations; none if its provider computes no hash.

        Raises:
            CloudProviderError: the provider could not compute the hash.
        """
        key = (type(node_class), node_class.name)
        cached = self._annotations.get(key)
        if cached is not None and cached[0] is node_class:
            return cached[1]
        digest = await self._providers.hash_node_class(node_class)
        annotations: Mapping[str, str] = {}
        if digest is not None:
            annotations = hash_annotations(node_class, value=digest.value, version=digest.version)
        self._annotations[key] = node_class, annotations
        return annotations
