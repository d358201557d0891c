"""Builds the parts that look after launched virtual machines, without any call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_provider_azure.arm import graph
from karpenter_provider_azure.instances.cluster_vms import cluster_vms
from karpenter_provider_azure.instances.drift import DriftDetector
from karpenter_provider_azure.instances.orphans import OrphanCollector
from karpenter_provider_azure.instances.vm_updater import VmExtensions, VmUpdater
from karpenter_provider_azure.interruption.sources import InterruptionSources
from karpenter_provider_azure.launch.extensions import BILLING_EXTENSION, SCRIPT_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.provider.contract import PeriodicTask, ProviderContext
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.arm.client import ArmClient
    from karpenter_provider_azure.instances.vm_reader import VmReader
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["InstanceParts"]

_SCRIPT_MODE: Final = "bootstrappingclient"


@final
class InstanceParts:
    """Listing, termination, updates, drift, interruptions and garbage collection.

    `instances`, `updater.sync`, `drift.detect` and `interruptions.read` answer hooks.
    """

    def __init__(
        self,
        context: ProviderContext,
        settings: AzureSettings,
        client: ArmClient,
        *,
        reader: VmReader,
        recent: RecentLaunches,
        delete: Callable[[str], None],
        node_class: Callable[[str], AKSNodeClass | None],
        unavailable_offerings: UnavailableOfferings,
    ) -> None:
        """`delete` is `VmCalls.delete`, `node_class` is `NodeClassRegistry.node_class`."""
        clock = context.clock
        self.interruptions: Final = InterruptionSources(clock, unavailable_offerings)
        self.instances: Final = cluster_vms(clock, reader=reader, recent=recent, delete=delete)
        self.updater: Final = VmUpdater(
            client,
            clock,
            settings=settings,
            reader=reader,
            extensions=_extensions(settings),
            last_listed=self.instances.last_listed,
            node_class=node_class,
            fence=context.fence,
        )
        self.drift: Final = DriftDetector(
            instances=self.instances,
            kubelet_identity=settings.kubelet_identity_client_id,
            read_nodes=context.read_nodes,
            is_event_ahead=self.interruptions.is_event_ahead,
        )
        self.orphans: Final = OrphanCollector(
            client,
            clock,
            settings=settings,
            reader=reader,
            query=lambda text: graph.query(client, text),
            read_claims=context.read_claims,
            fence=context.fence,
        )

    def tasks(self) -> tuple[PeriodicTask, ...]:
        """Return the periodic work."""
        return self.orphans.tasks()


def _extensions(settings: AzureSettings) -> VmExtensions:
    return VmExtensions(
        required=(SCRIPT_EXTENSION,) if settings.provision_mode == _SCRIPT_MODE else (),
        optional=(BILLING_EXTENSION,) if settings.cloud.has_billing_extension else (),
    )
