"""The hooks of the AWS provider; each calls one part of it.

Imports nothing that is slow: every run of the program loads every plug-in.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import (
    CONTRACT_VERSION,
    BatchLimits,
    ProviderInfo,
    RepairPolicy,
)
from karpenter_core.provider.markers import hookimpl
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.labels import LABEL_CLASSES
from karpenter_provider_aws.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import (
        DriftOutcome,
        FetchOutcome,
        Finding,
        InstanceListing,
        Interruption,
        LabelClasses,
        LaunchOutcome,
        LaunchRequest,
        NodeClassHash,
        NodeClassResolution,
        PeriodicTask,
        ProviderContext,
        RegistrationGate,
        SettingSpec,
        TerminateOutcome,
    )
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
class AwsProvider:
    """The plug-in; one object for each process."""

    def __init__(
        self, *, limits: ClientLimits | None = None, shared: SharedClients | None = None
    ) -> None:
        """`limits` are those of calls to AWS, where the usual ones take too long.

        `shared` are clients that other objects of this class use too.
        """
        self._limits: Final = limits
        self._shared: Final = shared
        self._running: StartedProvider | None = None

    @property
    def running(self) -> StartedProvider:
        """What was started.

        Raises:
            CloudProviderError: nothing was.
        """
        if self._running is None:
            raise CloudProviderError("the AWS provider is not started")
        return self._running

    # -- set-up and end ------------------------------------------------------------------------

    @hookimpl
    def karpenter_provider_info(self) -> ProviderInfo:
        """Serve EC2NodeClass."""
        return ProviderInfo(
            name="aws",
            contract_version=CONTRACT_VERSION,
            node_classes=(EC2NodeClass,),
            batch_limits=_BATCHES,
            repair_policies=tuple(
                RepairPolicy(condition_type=kind, condition_status=status, toleration=toleration)
                for kind, status, toleration in _REPAIRED
            ),
        )

    @hookimpl
    def karpenter_add_settings(self) -> Sequence[SettingSpec]:
        """Add the settings under the names users know."""
        return SETTINGS

    @hookimpl
    def karpenter_start(self, context: ProviderContext) -> None:
        """Read the settings; no call is made."""
        from karpenter_provider_aws.started_provider import StartedProvider

        self._running = StartedProvider(context, limits=self._limits, shared=self._shared)

    @hookimpl
    def karpenter_stop(self) -> None:
        """Close connections."""
        if self._running is not None:
            self._running.close()
            self._running = None

    @hookimpl
    def karpenter_classify_labels(self) -> LabelClasses:
        """Name the labels of EC2 instances."""
        return LABEL_CLASSES

    # -- NodeClass -----------------------------------------------------------------------------

    @hookimpl
    def karpenter_resolve_node_class(self, node_class: NodeClass) -> NodeClassResolution:
        """Find what it refers to, and try out whether nodes could be launched."""
        ours = _ours(node_class)
        self.running.node_classes.note(ours)
        return self.running.parts.node_class.resolver.resolve(ours)

    @hookimpl
    def karpenter_hash_node_class(self, node_class: NodeClass) -> NodeClassHash:
        """Digest what a node is made by."""
        from karpenter_provider_aws.hashing import hash_node_class

        return hash_node_class(_ours(node_class), ca_bundle=self.running.settings.cluster_ca_bundle)

    @hookimpl
    def karpenter_finalize_node_class(self, node_class: NodeClass) -> None:
        """Remove its instance profiles and launch templates."""
        ours, running = _ours(node_class), self.running
        running.parts.node_class.finalizer.finalize(ours)
        running.node_classes.forget(ours)

    @hookimpl
    def karpenter_list_instance_types(
        self, node_pool: NodePool, node_class: NodeClass
    ) -> Sequence[InstanceType]:
        """List what the region sells, as a node of this NodeClass would be."""
        ours, running = _ours(node_class), self.running
        running.node_classes.note(ours, node_pool)
        types = running.parts.catalogue.types.instance_types(ours)
        running.metrics.offerings.record(node_pool.name, types)
        return types

    # -- instances -----------------------------------------------------------------------------

    @hookimpl
    def karpenter_launch_instances(
        self, requests: Sequence[LaunchRequest]
    ) -> Sequence[LaunchOutcome]:
        """Launch them by as few fleets as will do."""
        return self.running.parts.launch.launcher.launch(requests)

    @hookimpl
    def karpenter_fetch_instances(self, provider_ids: Sequence[str]) -> Sequence[FetchOutcome]:
        """Fetch instances."""
        return self.running.parts.operations.instances.fetch(provider_ids)

    @hookimpl
    def karpenter_list_instances(self) -> InstanceListing:
        """List what has this cluster's tags."""
        return self.running.parts.operations.instances.list()

    @hookimpl
    async def karpenter_gate_registration(
        self, node_claim: NodeClaim, node: NodeView
    ) -> RegistrationGate | None:
        """Hold a Node until it is known in which partition of its placement group it is."""
        from karpenter_provider_aws.registration import may_lack_partition

        running = self.running
        if not may_lack_partition(node_claim, node):
            return None
        parts = await asyncio.to_thread(lambda: running.parts)
        return await parts.operations.partition_gate.hold(node_claim, node)

    @hookimpl
    def karpenter_sync_instance(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Tag the instance with its claim and Node; learn how much memory its type really has."""
        parts = self.running.parts
        parts.operations.tagger.sync(node_claim, node)
        parts.catalogue.types.learn_memory(node_claim, node)

    @hookimpl
    def karpenter_detect_drift(
        self, node_claims: Sequence[NodeClaim], node_class: NodeClass
    ) -> Sequence[DriftOutcome]:
        """Compare instances with what the NodeClass has found."""
        return self.running.parts.operations.drift.detect(node_claims, _ours(node_class))

    @hookimpl
    def karpenter_terminate_instances(
        self, provider_ids: Sequence[str]
    ) -> Sequence[TerminateOutcome]:
        """Terminate them in one call."""
        return self.running.parts.operations.instances.terminate(provider_ids)

    # -- interruptions -------------------------------------------------------------------------

    @hookimpl
    def karpenter_poll_interruptions(self) -> Sequence[Interruption]:
        """Return interruptions of the queue, status checks and reservations."""
        return self.running.parts.interruption.sources.poll()

    @hookimpl
    def karpenter_acknowledge_interruptions(self, ids: Sequence[str]) -> None:
        """Delete messages from the queue."""
        self.running.parts.interruption.sources.acknowledge(ids)

    # -- background ----------------------------------------------------------------------------

    @hookimpl
    def karpenter_declare_tasks(self) -> Sequence[PeriodicTask]:
        """Keep catalogue and prices fresh, and clean up."""
        return self.running.tasks()

    @hookimpl
    def karpenter_check(self) -> Sequence[Finding]:
        """Check credentials, permissions, the queue and the cluster."""
        return self.running.check()


def _ours(node_class: NodeClass) -> EC2NodeClass:
    """Return a NodeClass as what it is: hooks get those of this provider alone."""
    return cast("EC2NodeClass", node_class)
