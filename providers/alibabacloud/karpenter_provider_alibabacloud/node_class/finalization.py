"""Clears the process's memory of a deleted NodeClass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.node_class.resolution import NodeClassResolver
    from karpenter_provider_alibabacloud.node_class.validation import NodeClassValidator

__all__ = ["NodeClassFinalizer"]


@final
class NodeClassFinalizer:
    """Answers `karpenter_finalize_node_class`; callable from any thread.

    The core calls it when no claim refers to the NodeClass any more. It keeps the finalizer until
    then, and says in an Event which claims it waits for.
    """

    def __init__(self, *, resolver: NodeClassResolver, validator: NodeClassValidator) -> None:
        self._resolver: Final = resolver
        self._validator: Final = validator

    def finalize(self, node_class: ECSNodeClass) -> None:
        """Forget the NodeClass; it may be repeated."""
        self._validator.forget(node_class.name)
        self._resolver.forget(node_class)
