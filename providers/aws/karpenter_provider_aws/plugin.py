"""The hooks of the AWS provider; each calls one part of it.

Imports nothing that is slow: every run of the program loads every plug-in.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.contract import CONTRACT_VERSION, BatchLimits, ProviderInfo
from karpenter_core.provider.kit.plugin import CloudPlugin, repair_policies
from karpenter_core.provider.markers import hookimpl
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.labels import LABEL_CLASSES
from karpenter_provider_aws.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import (
        Conversion,
        ProviderContext,
        RegistrationGate,
        RegistrationRefusal,
    )
    from karpenter_core.provider.kit.plugin import StartedCloud
    from karpenter_provider_aws.sdk import ClientLimits, SharedClients
    from karpenter_provider_aws.started_provider import StartedProvider

__all__ = ["AwsProvider"]

_BATCHES: Final = {
    "karpenter_launch_instances": BatchLimits(size=1000),
    "karpenter_fetch_instances": BatchLimits(idle=timedelta(milliseconds=100), size=500),
    "karpenter_terminate_instances": BatchLimits(idle=timedelta(milliseconds=100), size=500),
}
"""Calls that change something are few a second, so those that wait are gathered."""

_REPAIRED: Final = (
    ("Ready", "False", timedelta(minutes=30)),
    ("Ready", "Unknown", timedelta(minutes=30)),
    ("AcceleratedHardwareReady", "False", timedelta(minutes=10)),
    ("StorageReady", "False", timedelta(minutes=30)),
    ("NetworkingReady", "False", timedelta(minutes=30)),
    ("KernelReady", "False", timedelta(minutes=30)),
    ("ContainerRuntimeReady", "False", timedelta(minutes=30)),
)
"""The conditions of the EKS node monitoring agent, and how long each may last."""


@final
class AwsProvider(CloudPlugin[EC2NodeClass, "StartedProvider"]):
    """The plug-in; one object for each process."""

    info = ProviderInfo(
        name="aws",
        contract_version=CONTRACT_VERSION,
        node_classes=(EC2NodeClass,),
        batch_limits=_BATCHES,
        repair_policies=repair_policies(_REPAIRED),
        observes=True,
    )
    title = "AWS"
    settings = SETTINGS
    labels = LABEL_CLASSES

    def __init__(
        self, *, limits: ClientLimits | None = None, shared: SharedClients | None = None
    ) -> None:
        """`limits` are those of calls to AWS, where the usual ones take too long.

        `shared` are clients that other objects of this class use too.
        """
        super().__init__()
        self._limits: Final = limits
        self._shared: Final = shared

    def start_provider(self, context: ProviderContext) -> StartedProvider:
        """Read the settings; no call is made."""
        from karpenter_provider_aws.started_provider import StartedProvider

        return StartedProvider(context, limits=self._limits, shared=self._shared)

    @property
    def cloud(self) -> StartedCloud[EC2NodeClass]:
        """The started provider."""
        return self.running

    @hookimpl
    async def karpenter_gate_registration(
        self, node_claim: NodeClaim, node: NodeView
    ) -> RegistrationGate | RegistrationRefusal | None:
        """Refuse a Node named after another instance; hold one until its partition is known."""
        from karpenter_provider_aws.registration import may_lack_partition, refusal_of_other_id

        running = self.running
        refusal = refusal_of_other_id(node_claim, node)
        if refusal is not None:
            return refusal
        if not may_lack_partition(node_claim, node):
            return None
        parts = await asyncio.to_thread(lambda: running.parts)
        return await parts.operations.partition_gate.hold(node_claim, node)

    @hookimpl
    def karpenter_declare_conversions(self) -> Sequence[Conversion]:
        """Declare the conversions of AWSNodeTemplates and of EC2NodeClasses of v1beta1."""
        from karpenter_provider_aws.conversion.node_classes import CONVERSIONS

        return CONVERSIONS
