"""The hooks of the Alibaba Cloud provider; each calls one part of it.

Imports nothing that is slow: every run of the program loads every plug-in.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.contract import CONTRACT_VERSION, BatchLimits, ProviderInfo
from karpenter_core.provider.kit.plugin import CloudPlugin, repair_policies
from karpenter_core.provider.markers import hookimpl
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.labels import LABEL_CLASSES
from karpenter_provider_alibabacloud.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import Conversion, Interruption, ProviderContext
    from karpenter_core.provider.kit.plugin import StartedCloud
    from karpenter_provider_alibabacloud.sdk import ClientLimits
    from karpenter_provider_alibabacloud.started_provider import StartedProvider

__all__ = ["AlibabaCloudProvider"]

_BATCHES: Final = {
    "karpenter_launch_instances": BatchLimits(size=1000),
    "karpenter_fetch_instances": BatchLimits(size=500),
    "karpenter_terminate_instances": BatchLimits(idle=timedelta(milliseconds=100), size=500),
}
"""Calls that change something are few a second, so those that wait are gathered."""

_REPAIRED: Final = (
    ("Ready", "False", timedelta(minutes=30)),
    ("Ready", "Unknown", timedelta(minutes=30)),
    ("KernelDeadlock", "True", timedelta(minutes=10)),
    ("ReadonlyFilesystem", "True", timedelta(minutes=10)),
)
"""The kubelet's condition and those of the node problem detector, which ACK has as an add-on, and how
long each may last."""


@final
class AlibabaCloudProvider(CloudPlugin[ECSNodeClass, "StartedProvider"]):
    """The plug-in; one object for each process."""

    info = ProviderInfo(
        name="alibabacloud",
        contract_version=CONTRACT_VERSION,
        node_classes=(ECSNodeClass,),
        batch_limits=_BATCHES,
        repair_policies=repair_policies(_REPAIRED),
        observes=True,
    )
    title = "Alibaba Cloud"
    settings = SETTINGS
    labels = LABEL_CLASSES

    def __init__(self, *, limits: ClientLimits | None = None) -> None:
        """`limits` are those of calls to the cloud, where the usual ones take too long."""
        super().__init__()
        self._limits: Final = limits

    def start_provider(self, context: ProviderContext) -> StartedProvider:
        """Read settings and files; an unset region is read from the metadata service."""
        from karpenter_provider_alibabacloud.started_provider import StartedProvider

        return StartedProvider(context, limits=self._limits)

    @property
    def cloud(self) -> StartedCloud[ECSNodeClass]:
        """The started provider."""
        return self.running

    @hookimpl
    def karpenter_read_interruptions(self, node: NodeView) -> Sequence[Interruption]:
        """Read the condition that ACK's node problem detector sets on spot nodes."""
        return self.running.parts.interruption_sources.read(node)

    @hookimpl
    def karpenter_declare_conversions(self) -> Sequence[Conversion]:
        """Declare the conversions of scaling groups of ESS."""
        from karpenter_provider_alibabacloud.conversion.scaling_groups import CONVERSIONS

        return CONVERSIONS
