"""Deletes the cloud resources of a NodeClass that is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NodeClassFinalizer"]

C = TypeVar("C", bound=NodeClass)


@final
class NodeClassFinalizer(Generic[C]):
    """Answers `karpenter_finalize_node_class`; callable from any thread.

    The core calls it when no claim refers to the NodeClass any more, and again while it raises.
    """

    def __init__(self, *removals: Callable[[C], object], forget: Callable[[C], object]) -> None:
        """Each of `removals` deletes one kind of resource, and raises while some is left.

        `forget` is `NodeClassResolver.forget`.
        """
        self._forget: Final = forget
        self._removals: Final = removals

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
        self._forget(node_class)
