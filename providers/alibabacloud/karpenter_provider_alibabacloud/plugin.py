"""The hooks of the Alibaba Cloud provider; each calls one part of it.

Imports nothing that is slow: every run of the program loads every plug-in.
"""

from __future__ import annotations

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
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.labels import LABEL_CLASSES
from karpenter_provider_alibabacloud.settings import SETTINGS

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
        SettingSpec,
        TerminateOutcome,
    )
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
class AlibabaCloudProvider:
    """The plug-in; one object for each process."""

    def __init__(self, *, limits: ClientLimits | None = None) -> None:
        """`limits` are those of calls to the cloud, where the usual ones take too long."""
        self._limits: Final = limits
        self._running: StartedProvider | None = None

    @property
    def running(self) -> StartedProvider:
        """What was started.

        Raises:
            CloudProviderError: nothing was.
        """
        if self._running is None:
            raise CloudProviderError("the Alibaba Cloud provider is not started")
        return self._running

    # -- set-up and end ------------------------------------------------------------------------

    @hookimpl
    def karpenter_provider_info(self) -> ProviderInfo:
        """Serve ECSNodeClass."""
        return ProviderInfo(
            name="alibabacloud",
            contract_version=CONTRACT_VERSION,
            node_classes=(ECSNodeClass,),
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
        """Read settings and files; an unset region is read from the metadata service."""
        from karpenter_provider_alibabacloud.started_provider import StartedProvider

        self._running = StartedProvider(context, limits=self._limits)

    @hookimpl
    def karpenter_stop(self) -> None:
        """Close connections."""
        if self._running is not None:
            self._running.close()
            self._running = None

    @hookimpl
    def karpenter_classify_labels(self) -> LabelClasses:
        """Name the labels of ECS instances."""
        return LABEL_CLASSES

    # -- NodeClass -----------------------------------------------------------------------------

    @hookimpl
    def karpenter_resolve_node_class(self, node_class: NodeClass) -> NodeClassResolution:
        """Find what it refers to, and try out whether nodes could be launched."""
        ours, running = _ours(node_class), self.running
        running.node_classes.note(ours)
        return running.parts.node_class.resolver.resolve(ours)

    @hookimpl
    def karpenter_hash_node_class(self, node_class: NodeClass) -> NodeClassHash:
        """Digest what a node is made by."""
        from karpenter_provider_alibabacloud.hashing import hash_node_class

        return hash_node_class(_ours(node_class))

    @hookimpl
    def karpenter_finalize_node_class(self, node_class: NodeClass) -> None:
        """Forget it: in the cloud nothing was made for it but instances."""
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
        try:
            types = running.parts.catalogue.types.instance_types(ours, node_pool)
        except CloudProviderError as error:
            from karpenter_provider_alibabacloud.node_class.conditions import with_stable_text

            raise with_stable_text(error) from error
        running.metrics.offerings.record(node_pool.name, types)
        return types

    # -- instances -----------------------------------------------------------------------------

    @hookimpl
    def karpenter_launch_instances(
        self, requests: Sequence[LaunchRequest]
    ) -> Sequence[LaunchOutcome]:
        """Launch them by as few provisioning groups as will do."""
        return self.running.launch(requests)

    @hookimpl
    def karpenter_fetch_instances(self, provider_ids: Sequence[str]) -> Sequence[FetchOutcome]:
        """Fetch instances."""
        return self.running.parts.operations.instances.fetch(provider_ids)

    @hookimpl
    def karpenter_list_instances(self) -> InstanceListing:
        """List what has this cluster's tags."""
        return self.running.parts.operations.instances.list()

    @hookimpl
    def karpenter_sync_instance(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Tag the instance with its claim and Node; learn how much memory its type really has."""
        self.running.sync(node_claim, node)

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
        """Delete them in as few calls as will do."""
        return self.running.terminate(provider_ids)

    # -- interruptions -------------------------------------------------------------------------

    @hookimpl
    def karpenter_poll_interruptions(self) -> Sequence[Interruption]:
        """Tell which instances are taken back, stopped or maintained."""
        return self.running.parts.interruption_sources.poll()

    @hookimpl
    def karpenter_acknowledge_interruptions(self, ids: Sequence[str]) -> None:
        """Forget what was handled."""
        self.running.parts.interruption_sources.acknowledge(ids)

    @hookimpl
    def karpenter_read_interruptions(self, node: NodeView) -> Sequence[Interruption]:
        """Read the condition that ACK's node problem detector sets on spot nodes."""
        return self.running.parts.interruption_sources.read(node)

    # -- background ----------------------------------------------------------------------------

    @hookimpl
    def karpenter_declare_tasks(self) -> Sequence[PeriodicTask]:
        """Keep catalogue, stock and prices fresh, and late taints off."""
        return self.running.tasks()

    @hookimpl
    def karpenter_check(self) -> Sequence[Finding]:
        """Check credentials, permissions and the cluster."""
        return self.running.parts.doctor.check()


def _ours(node_class: NodeClass) -> ECSNodeClass:
    """Return a NodeClass as what it is: hooks get those of this provider alone."""
    return cast("ECSNodeClass", node_class)
