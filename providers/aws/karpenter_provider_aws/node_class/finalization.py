"""Deletes what the provider created in AWS for a deleted NodeClass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.discovery.profiles import InstanceProfiles
    from karpenter_provider_aws.launch.templates import ClusterLaunchTemplates
    from karpenter_provider_aws.node_class.resolution import NodeClassResolver
    from karpenter_provider_aws.node_class.validation import NodeClassValidator

__all__ = ["NodeClassFinalizer"]


@final
class NodeClassFinalizer:
    """Answers `karpenter_finalize_node_class`; callable from any thread.

    The core calls it when no claim refers to the NodeClass any more, and again while it raises.
    """

    def __init__(
        self,
        *,
        profiles: InstanceProfiles,
        templates: ClusterLaunchTemplates,
        resolver: NodeClassResolver,
        validator: NodeClassValidator,
    ) -> None:
        self._profiles: Final = profiles
        self._templates: Final = templates
        self._resolver: Final = resolver
        self._validator: Final = validator

    def finalize(self, node_class: EC2NodeClass) -> None:
        """Remove profiles and launch templates; both are tried, whatever became of the other.

        Raises:
            CloudProviderError: something is left.
        """
        problem: CloudProviderError | None = None
        try:
            self._profiles.remove_all(node_class)
        except CloudProviderError as error:
            problem = error
        self._templates.delete_all(node_class.name)
        if problem is not None:
            raise problem
        self._validator.forget(node_class.name)
        self._resolver.forget(node_class)
