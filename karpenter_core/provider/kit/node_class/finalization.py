"""Deletes the cloud resources of a NodeClass that is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.provider.kit.node_class.resolution import NodeClassResolver

__all__ = ["NodeClassFinalizer"]

C = TypeVar("C", bound=NodeClass)


@final
class NodeClassFinalizer(Generic[C]):
    """Answers `karpenter_finalize_node_class`; callable from any thread.

    The core calls it when no claim refers to the NodeClass any more, and again while it raises.
    """

    def __init__(
        self, resolver: NodeClassResolver[C], *, removals: Sequence[Callable[[C], object]] = ()
    ) -> None:
        """Each of `removals` deletes one kind of resource, and raises while some is left."""
        self._resolver: Final = resolver
        self._removals: Final = tuple(removals)

    def finalize(self, node_class: C) -> None:
        """Run all removals, even if one fails; then forget the NodeClass.

        Raises:
            CloudProviderError: something is left.
        """
        problem: CloudProviderError | None = None
        for remove in self._removals:
            try:
                remove(node_class)
            except CloudProviderError as error:
                problem = error
        if problem is not None:
            raise problem
        self._resolver.forget(node_class)
