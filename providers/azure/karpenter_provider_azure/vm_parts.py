"""Builds the parts that launch, update and delete VMs, without any call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlencode

from karpenter_core.provider.kit.late_failures import LateFailures
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_provider_azure.arm import graph
from karpenter_provider_azure.bootstrap.node_boot import (
    TIMEOUT_SECONDS,
    BootstrappingService,
    ClusterBootReader,
    NodeBoot,
)
from karpenter_provider_azure.instances.cluster_vms import VmListing, cluster_vms
from karpenter_provider_azure.instances.orphans import OrphanCollector
from karpenter_provider_azure.instances.vm_reader import VmReader
from karpenter_provider_azure.instances.vm_updater import VmExtensions, VmUpdater
from karpenter_provider_azure.json_service import JsonService
from karpenter_provider_azure.launch.extensions import (
    BILLING_EXTENSION,
    SCRIPT_EXTENSION,
    CustomScripts,
    ExtensionInstaller,
)
from karpenter_provider_azure.launch.failed_launches import ExistingVms, FailedLaunches
from karpenter_provider_azure.launch.failure_recorder import FailureRecorder
from karpenter_provider_azure.launch.image_tokens import ImageTokens
from karpenter_provider_azure.launch.node_network import NodeNetwork
from karpenter_provider_azure.launch.vm_calls import VmCalls, open_operations
from karpenter_provider_azure.launch.vm_launcher import VmLauncher
from karpenter_provider_azure.machines.drift import DriftDetector
from karpenter_provider_azure.machines.node_instances import NodeInstances, aks_machines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.interruption.sources import InterruptionSources
    from karpenter_provider_azure.region_parts import CatalogueParts, NetworkParts, ProviderServices
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["InstanceParts", "LaunchParts"]


_TOKEN_ACTION: Final = "imageTokens:get"  # noqa: S105 - a name for metrics


@final
class LaunchParts:
    """Launches of virtual machines, their extensions, and launches that fail late."""

    def __init__(
        self, services: ProviderServices, network: NetworkParts, catalogue: CatalogueParts
    ) -> None:
        context, settings = services.context, services.settings
        clock = context.clock
        self.calls: Final = VmCalls(
            services.arm,
            settings,
            context.fence,
            image_headers=_image_headers(services),
            note_deleted=catalogue.quotas.note_deleted,
        )
        self.reader: Final = VmReader(services.arm, settings)
        self.listing: Final = VmListing(clock, self.reader.of_cluster)
        self.recent: Final = RecentLaunches(clock)
        boot = self._boot(services, network)
        scripts = CustomScripts(
            clock,
            boot=boot,
            catalogue=catalogue.for_launches,
            node_class_of=partial(_node_class_of, services.node_classes),
        )
        operations = open_operations(clock)
        failures = FailureRecorder(
            clock,
            location=settings.location,
            sizes=catalogue.for_launches.sizes,
            unavailable_offerings=catalogue.unavailable_offerings,
            metrics=services.metrics.launches,
        )
        self.launcher: Final = VmLauncher(
            settings,
            clock,
            calls=self.calls,
            catalogue=catalogue.for_launches,
            network=NodeNetwork(
                settings, pools=network.pools, security_groups=network.security_groups
            ),
            boot=boot,
            failures=failures,
            existing=ExistingVms(
                self.calls,
                self.reader,
                cluster=settings.cluster_name,
                failures=failures,
                operations=operations,
            ),
            operations=operations,
            scripts=scripts,
            recent=self.recent,
        )
        self.extensions: Final = ExtensionInstaller(
            settings,
            clock,
            calls=self.calls,
            list_vms=self._list_vms,
            read_claims=context.read_claims,
            scripts=scripts if runs_script(settings) else None,
        )
        self.late_failures: Final = LateFailures(
            FailedLaunches(
                clock,
                calls=self.calls,
                list_vms=self._list_vms,
                read_claims=context.read_claims,
                failures=failures,
                operations=operations,
            ).read,
            context.read_claims,
        )

    def _list_vms(self) -> tuple[DescribedVm, ...]:
        return self.listing.recent().instances

    def _boot(self, services: ProviderServices, network: NetworkParts) -> NodeBoot:
        settings = services.settings
        cluster = ClusterBootReader(
            settings,
            services.context.cluster,
            guid=network.guid,
            security_groups=network.security_groups,
        )
        if not runs_script(settings):
            return NodeBoot(cluster, None)
        poster = JsonService(
            ca_bundle=settings.ca_bundle,
            timeout_seconds=TIMEOUT_SECONDS,
            observe=services.metrics.calls.observe,
        )
        service = BootstrappingService(settings, poster, bearer_token=services.arm.bearer_token)
        return NodeBoot(cluster, service)


@final
class InstanceParts:
    """Listing, termination, updates and drift of instances, and what they leave behind."""

    def __init__(
        self, services: ProviderServices, launch: LaunchParts, interruptions: InterruptionSources
    ) -> None:
        context, settings, arm = services.context, services.settings, services.arm
        clock = context.clock
        self.instances: Final = cluster_vms(
            clock, reader=launch.reader, recent=launch.recent, delete=launch.calls.delete
        )
        machines = aks_machines(
            arm, clock, settings=settings, vms=launch.reader, fence=context.fence
        )
        self.nodes: Final = NodeInstances(self.instances, machines)
        self.updater: Final = VmUpdater(
            arm,
            clock,
            settings=settings,
            reader=launch.reader,
            extensions=VmExtensions(
                required=(SCRIPT_EXTENSION,) if runs_script(settings) else (),
                optional=(BILLING_EXTENSION,) if settings.cloud.has_billing_extension else (),
            ),
            last_listed=self.instances.last_listed,
            node_class=services.node_classes.node_class,
            fence=context.fence,
        )
        self.drift: Final = DriftDetector(
            self.instances,
            machines,
            kubelet_identity=settings.kubelet_identity_client_id,
            read_nodes=context.read_nodes,
            is_event_ahead=interruptions.is_event_ahead,
        )
        self.orphans: Final = OrphanCollector(
            arm,
            clock,
            settings=settings,
            reader=launch.reader,
            query=partial(graph.query, arm),
            read_claims=context.read_claims,
            fence=context.fence,
        )


def runs_script(settings: AzureSettings) -> bool:
    """Whether an extension runs the script by which a node joins."""
    return settings.provision_mode == "bootstrappingclient"


def _image_headers(services: ProviderServices) -> Callable[[], Mapping[str, str]]:
    """Return what gives the headers that permit images of AKS's own galleries; none for others."""
    settings = services.settings
    if not settings.use_sig:
        return dict[str, str]
    query = urlencode({"scope": settings.cloud.scope})
    url = f"{settings.sig_access_token_server_url}?{query}"
    read = partial(services.json.get, url, action=_TOKEN_ACTION)
    return ImageTokens(services.context.clock, read).headers


def _node_class_of(
    node_classes: NodeClassRegistry[AKSNodeClass], claim: NodeClaim
) -> AKSNodeClass | None:
    return node_classes.node_class(claim.spec.node_class_ref.name)
