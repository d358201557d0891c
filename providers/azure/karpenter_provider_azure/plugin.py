"""The hooks of the Azure provider; each calls one part of it.

Imports nothing that is slow: every run of the program loads every plug-in.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.contract import CONTRACT_VERSION, BatchLimits, ProviderInfo
from karpenter_core.provider.kit.node_names import refusal_of_name
from karpenter_core.provider.kit.one_by_one import one_by_one
from karpenter_core.provider.kit.plugin import CloudPlugin, repair_policies
from karpenter_core.provider.markers import hookimpl
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.images.maintenance import NAMESPACE_VARIABLE, window_read
from karpenter_provider_azure.labels import LABEL_CLASSES
from karpenter_provider_azure.node_class.local_dns import LOCAL_DNS_READS
from karpenter_provider_azure.setting_specs import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import (
        Conversion,
        Interruption,
        LaunchedInstance,
        LaunchRequest,
        ProviderContext,
        RegistrationRefusal,
    )
    from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
    from karpenter_core.provider.kit.plugin import StartedCloud
    from karpenter_provider_azure.started_provider import StartedProvider

__all__ = ["AzureProvider"]

_BATCHES: Final = {
    "karpenter_fetch_instances": BatchLimits(size=500),
    "karpenter_terminate_instances": BatchLimits(idle=timedelta(milliseconds=100), size=500),
}
"""One listing serves all instances that are fetched or terminated together."""

_REPAIRED: Final = (
    ("Ready", "False", timedelta(minutes=10)),
    ("Ready", "Unknown", timedelta(minutes=10)),
    ("kubernetes.azure.com/NodeHealthy", "False", timedelta()),
    ("PreemptionScheduled", "True", timedelta()),
)
"""The kubelet's condition and those of AKS's node problem detector, and how long each may last."""

_USUAL_NAMESPACE: Final = "kube-system"
"""The namespace that permissions are granted for when the variable is not set."""


@final
class AzureProvider(CloudPlugin[AKSNodeClass, "StartedProvider"]):
    """The plug-in; one object for each process."""

    info = ProviderInfo(
        name="azure",
        contract_version=CONTRACT_VERSION,
        node_classes=(AKSNodeClass,),
        batch_limits=_BATCHES,
        repair_policies=repair_policies(_REPAIRED),
        observes=True,
        reads=(
            *LOCAL_DNS_READS,
            window_read(os.environ.get(NAMESPACE_VARIABLE) or _USUAL_NAMESPACE),
        ),
    )
    title = "Azure"
    settings = SETTINGS
    labels = LABEL_CLASSES

    def __init__(
        self, *, retries: RetryPolicy | None = None, read_seconds: float | None = None
    ) -> None:
        """`retries` and `read_seconds` replace the policy of calls, and the longest wait for an answer."""
        super().__init__()
        self._retries: Final = retries
        self._read_seconds: Final = read_seconds

    def start_provider(self, context: ProviderContext) -> StartedProvider:
        """Read settings and files; no call is made."""
        from karpenter_provider_azure.started_provider import StartedProvider

        waits = {} if self._read_seconds is None else {"read_seconds": self._read_seconds}
        return StartedProvider(context, retries=self._retries, **waits)

    @property
    def cloud(self) -> StartedCloud[AKSNodeClass]:
        """The started provider."""
        return self.running

    @hookimpl
    @one_by_one
    def karpenter_launch_instances(self, request: LaunchRequest) -> LaunchedInstance:  # pyright: ignore[reportIncompatibleMethodOverride] - the decorator makes it plural
        """Launch one virtual machine; Azure has no call for several."""
        return self.running.launch(request)

    @hookimpl
    def karpenter_gate_registration(
        self, node_claim: NodeClaim, node: NodeView
    ) -> RegistrationRefusal | None:
        """Refuse a Node that is not named like the virtual machine, which is the kubelet's host.

        AKS names the hosts of its machines itself, so no name is expected of theirs.
        """
        from karpenter_provider_azure.resource_ids import named_after_claim

        expected = named_after_claim(node_claim)
        return refusal_of_name(node, expected) if expected else None

    @hookimpl
    def karpenter_read_interruptions(self, node: NodeView) -> Sequence[Interruption]:
        """Read the conditions by which AKS announces scheduled events."""
        return self.running.parts.interruptions.read(node)

    @hookimpl
    def karpenter_declare_conversions(self) -> Sequence[Conversion]:
        """Declare the conversions of node pools of AKS and of scale sets."""
        from karpenter_provider_azure.conversion.agent_pools import CONVERSIONS

        return CONVERSIONS
