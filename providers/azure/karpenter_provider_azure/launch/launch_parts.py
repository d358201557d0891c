"""Builds the parts of launches, without any call."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.calls.rest import RestClient
from karpenter_core.provider.kit.late_failures import LateFailures
from karpenter_provider_azure.launch.claim_launches import LaunchCatalogue
from karpenter_provider_azure.launch.custom_scripts import CustomScripts
from karpenter_provider_azure.launch.existing_vms import ExistingVms
from karpenter_provider_azure.launch.extensions import ExtensionInstaller
from karpenter_provider_azure.launch.failed_launches import FailedLaunches
from karpenter_provider_azure.launch.failure_recorder import FailureRecorder
from karpenter_provider_azure.launch.image_tokens import ImageTokens
from karpenter_provider_azure.launch.open_operations import OpenOperations
from karpenter_provider_azure.launch.vm_calls import VmCalls
from karpenter_provider_azure.launch.vm_launcher import VmLauncher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import ProviderContext
    from karpenter_core.provider.kit.instances.described import DescribedInstances
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.catalogue.instance_types import InstanceTypeCatalogue
    from karpenter_provider_azure.catalogue.quotas import RegionQuotas
    from karpenter_provider_azure.catalogue.region_sizes import RegionSizeReader
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.launch.boot_data import BootDataBuilder
    from karpenter_provider_azure.launch.failure_recorder import LaunchObserver
    from karpenter_provider_azure.launch.node_network import NodeNetwork
    from karpenter_provider_azure.launch.vm_calls import ArmCalls
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["LaunchMarket", "LaunchParts"]

_SCRIPT_MODE: Final = "bootstrappingclient"
_TOKEN_TIMEOUT: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchMarket:
    """The parts of the catalogue that launches read and change."""

    sizes: RegionSizeReader
    types: InstanceTypeCatalogue
    quotas: RegionQuotas
    unavailable_offerings: UnavailableOfferings


@final
class LaunchParts:
    """Launches, the failures that come later, and extensions."""

    def __init__(
        self,
        context: ProviderContext,
        settings: AzureSettings,
        arm: ArmCalls,
        *,
        market: LaunchMarket,
        network: NodeNetwork,
        boot: BootDataBuilder,
        list_vms: Callable[[], DescribedInstances[DescribedVm]],
        node_class: Callable[[str], AKSNodeClass | None],
        recent: RecentLaunches,
        observer: LaunchObserver,
    ) -> None:
        """`list_vms` is `VmReader.of_cluster`, `node_class` is `NodeClassRegistry.node_class`."""
        clock = context.clock
        tokens = _image_tokens(settings, clock)
        calls = VmCalls(
            arm,
            settings,
            context.fence,
            image_headers=tokens.headers if tokens is not None else dict[str, str],
        )
        catalogue = LaunchCatalogue(
            sizes=lambda: market.sizes.current()[0],
            is_open=market.types.is_open,
            instance_types=market.types.instance_types,
            quotas=market.quotas,
        )

        def node_class_of(claim: NodeClaim) -> AKSNodeClass | None:
            return node_class(claim.spec.node_class_ref.name)

        def vms() -> tuple[DescribedVm, ...]:
            return list_vms().instances

        self.calls: Final = calls
        self.operations: Final = OpenOperations(clock)
        self.failures: Final = FailureRecorder(
            clock,
            location=settings.location,
            sizes=catalogue.sizes,
            unavailable_offerings=market.unavailable_offerings,
            observer=observer,
        )
        scripts = CustomScripts(clock, boot=boot, catalogue=catalogue, node_class_of=node_class_of)
        self.launcher: Final = VmLauncher(
            settings,
            clock,
            calls=calls,
            catalogue=catalogue,
            network=network,
            boot=boot,
            failures=self.failures,
            existing=ExistingVms(
                calls,
                cluster=settings.cluster_name,
                failures=self.failures,
                operations=self.operations,
            ),
            operations=self.operations,
            scripts=scripts,
            recent=recent,
        )
        failed = FailedLaunches(
            clock,
            calls=calls,
            list_vms=vms,
            read_claims=context.read_claims,
            failures=self.failures,
            operations=self.operations,
        )
        self.late_failures: Final = LateFailures(failed.read, context.read_claims)
        self.extensions: Final = ExtensionInstaller(
            settings,
            clock,
            calls=calls,
            list_vms=vms,
            read_claims=context.read_claims,
            scripts=scripts if settings.provision_mode == _SCRIPT_MODE else None,
        )


def _image_tokens(settings: AzureSettings, clock: Clock) -> ImageTokens | None:
    """Return the tokens for images of AKS's own galleries; None for community images."""
    url = settings.sig_access_token_server_url
    if not settings.use_sig or not url:
        return None
    client = RestClient(url, headers={}, timeout=_TOKEN_TIMEOUT)

    def read() -> Mapping[str, object]:
        scope = settings.cloud.scope
        return client.get("imageTokens:get", "", dict[str, object], scope=scope)

    return ImageTokens(clock, read)
