"""Names the parts of an AKSNodeClass, and how each is found.

`karpenter_core.provider.kit.node_class.resolution` resolves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.resolution import (
    NodeClassPart,
    NodeClassResolver,
    SharedRead,
)
from karpenter_provider_azure.node_class.conditions import (
    AZURE_ERRORS,
    IMAGES_READY,
    KUBERNETES_VERSION_READY,
    LOCAL_DNS_READY,
    SUBNETS_READY,
)
from karpenter_provider_azure.node_class.images import image_field
from karpenter_provider_azure.node_class.versions import (
    VersionChoice,
    choose_version,
    served_version,
    version_part,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.provider.contract import ClusterFacts
    from karpenter_core.provider.kit.node_class.resolution import NodeClassValidation
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.node_class.images import ImageResolver
    from karpenter_provider_azure.node_class.local_dns import LocalDnsResolver
    from karpenter_provider_azure.node_class.subnets import SubnetResolver

__all__ = ["NodeClassPartResolvers", "node_class_resolver"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassPartResolvers:
    """The resolvers of all parts; the version of Kubernetes is a fact of the cluster."""

    facts: ClusterFacts
    images: ImageResolver
    subnets: SubnetResolver
    local_dns: LocalDnsResolver


def node_class_resolver(
    resolvers: NodeClassPartResolvers, validation: NodeClassValidation[AKSNodeClass]
) -> NodeClassResolver[AKSNodeClass]:
    """Return the resolver."""
    return NodeClassResolver(
        lambda node_class: _parts(resolvers, node_class), AZURE_ERRORS, validation=validation
    )


def _parts(resolvers: NodeClassPartResolvers, node_class: AKSNodeClass) -> Sequence[NodeClassPart]:
    current = node_class.status.kubernetes_version
    choice = SharedRead(lambda: choose_version(current, served_version(resolvers.facts)))

    def usable_choice() -> VersionChoice:
        """Return the choice; that of the status while the API server does not answer."""
        try:
            return choice()
        except CloudProviderError:
            if not current:
                raise
            return VersionChoice(version=current)

    return (
        NodeClassPart(
            KUBERNETES_VERSION_READY,
            "the version of the cluster",
            lambda: version_part(choice()),
            is_always_read=False,
        ),
        NodeClassPart(
            IMAGES_READY,
            image_field(node_class),
            lambda: resolvers.images.resolve(node_class, usable_choice()),
        ),
        NodeClassPart(
            SUBNETS_READY,
            resolvers.subnets.field(node_class),
            lambda: resolvers.subnets.resolve(node_class),
        ),
        NodeClassPart(
            LOCAL_DNS_READY,
            "spec.localDNS",
            lambda: resolvers.local_dns.resolve(node_class, lambda: usable_choice().version),
            is_always_read=False,
        ),
    )
