"""Builds the parts of a started provider by concern, without any call.

Each class holds the parts of one concern and takes the concerns that it builds on.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.node_class.finalization import NodeClassFinalizer
from karpenter_core.provider.kit.node_class.refused_launches import RefusedLaunches
from karpenter_provider_azure.catalogue.quotas import quota_remark
from karpenter_provider_azure.doctor import ProviderDoctor
from karpenter_provider_azure.images.discovery import (
    CommunityGalleries,
    ImageReader,
    SharedGalleries,
)
from karpenter_provider_azure.images.maintenance import (
    NAMESPACE_VARIABLE,
    MaintenanceWindowReader,
)
from karpenter_provider_azure.interruption.sources import InterruptionSources
from karpenter_provider_azure.network.subnets import ClusterNetwork
from karpenter_provider_azure.node_class.images import ImageResolver
from karpenter_provider_azure.node_class.local_dns import LocalDnsResolver
from karpenter_provider_azure.node_class.resolution import (
    NodeClassPartResolvers,
    node_class_resolver,
)
from karpenter_provider_azure.node_class.subnets import SubnetResolver
from karpenter_provider_azure.node_class.validation import (
    DiskEncryptionSetCheck,
    launch_refusal,
    node_class_validator,
    unused_fields_remark,
)
from karpenter_provider_azure.region_parts import CatalogueParts, NetworkParts
from karpenter_provider_azure.vm_parts import InstanceParts, LaunchParts

if TYPE_CHECKING:
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.region_parts import ProviderServices

__all__ = ["NodeClassParts", "ProviderParts"]


@final
class NodeClassParts:
    """Resolution, validation and finalization of NodeClasses."""

    def __init__(
        self, services: ProviderServices, network: NetworkParts, catalogue: CatalogueParts
    ) -> None:
        context, settings, arm = services.context, services.settings, services.arm
        clock, location = context.clock, settings.location
        galleries = (
            SharedGalleries(arm, gallery_subscription_id=settings.sig_subscription_id)
            if settings.use_sig
            else CommunityGalleries(arm)
        )

        def remark(node_class: AKSNodeClass) -> str:
            remarks = (
                unused_fields_remark(node_class, provision_mode=settings.provision_mode),
                quota_remark(catalogue.quotas.view().quotas, location=location),
            )
            return "; ".join(filter(None, remarks))

        self.refused_launches: Final = RefusedLaunches(clock, launch_refusal)
        self.resolver: Final = node_class_resolver(
            NodeClassPartResolvers(
                facts=context.cluster,
                images=ImageResolver(
                    ImageReader(clock, galleries),
                    MaintenanceWindowReader(
                        clock,
                        context.read_objects,
                        namespace=os.environ.get(NAMESPACE_VARIABLE, ""),
                    ),
                    uses_shared_galleries=settings.use_sig,
                ),
                subnets=SubnetResolver(
                    network.subnets,
                    guid=network.guid,
                    security_groups=network.security_groups,
                    cluster=ClusterNetwork.of(settings),
                ),
                local_dns=LocalDnsResolver(
                    context.read_objects,
                    network_plugin=settings.network_plugin,
                    network_policy=settings.network_policy,
                    preferred_since=settings.local_dns_preferred_since,
                ),
            ),
            node_class_validator(
                clock,
                DiskEncryptionSetCheck(arm, settings.node_osdisk_diskencryptionset_id),
                refused_launches=self.refused_launches,
                additional_tags=settings.additional_tags,
                remark=remark,
            ),
        )
        self.finalizer: Final = NodeClassFinalizer(forget=self.resolver.forget)


@final
class ProviderParts:
    """The parts of one started provider."""

    def __init__(self, services: ProviderServices) -> None:
        self.network: Final = NetworkParts(services)
        self.catalogue: Final = CatalogueParts(services)
        self.node_class: Final = NodeClassParts(services, self.network, self.catalogue)
        self.launch: Final = LaunchParts(services, self.network, self.catalogue)
        self.interruptions: Final = InterruptionSources(
            services.context.clock, self.catalogue.unavailable_offerings
        )
        self.operations: Final = InstanceParts(services, self.launch, self.interruptions)
        self.doctor: Final = ProviderDoctor(
            services.arm,
            settings=services.settings,
            security_groups=self.network.security_groups,
            observing=services.context.observing,
        )
