"""Starts the provider, and runs its periodic tasks.

Azure is not called before a hook needs it, so that a cloud which is down does not keep the core from
starting.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import INSTANCE_TYPE, MEMORY
from karpenter_core.errors import CloudProviderError, LaunchFailedError
from karpenter_core.provider.contract import PeriodicTask
from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
from karpenter_core.provider.kit.plugin import CloudHooks
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.arm.client import RETRIES, ArmClient
from karpenter_provider_azure.arm.sdk_sender import READ_SECONDS
from karpenter_provider_azure.catalogue.price_reader import PRICE_PERIOD
from karpenter_provider_azure.catalogue.quotas import CHECK_PERIOD
from karpenter_provider_azure.catalogue.region_sizes import refresh_period
from karpenter_provider_azure.images.versions import NO_IMAGE_REASON
from karpenter_provider_azure.json_service import JsonService
from karpenter_provider_azure.metrics import AzureMetrics
from karpenter_provider_azure.node_class.conditions import AZURE_ERRORS
from karpenter_provider_azure.parts import ProviderParts
from karpenter_provider_azure.region_parts import ProviderServices
from karpenter_provider_azure.settings import AzureSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import (
        Finding,
        LaunchedInstance,
        LaunchOutcome,
        LaunchRequest,
        NodeClassHash,
        ProviderContext,
    )
    from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy

__all__ = ["StartedProvider"]

_SIZES_TASK: Final = "vm-sizes"
_QUOTAS_TASK: Final = "quotas"
_PRICES_TASK: Final = "prices"


@final
class StartedProvider:
    """One started provider; callable from any thread."""

    def __init__(
        self,
        context: ProviderContext,
        *,
        retries: RetryPolicy | None = None,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        """Read settings and files; `retries` replaces the usual policies of calls.

        `read_seconds` is the longest wait for an answer.

        Raises:
            SettingsError: a setting cannot be used; all such settings are named.
        """
        self.settings: Final = AzureSettings.from_context(context)
        self.node_classes: Final = NodeClassRegistry[AKSNodeClass]()
        with ExitStack() as opened:
            self.metrics: Final = AzureMetrics(
                context.metrics,
                context.clock,
                with_reserved=context.feature_gates.reserved_capacity,
            )
            opened.callback(self.metrics.close)
            self.arm: Final = ArmClient(
                self.settings,
                observe=self.metrics.calls.observe,
                observe_remaining=self.metrics.observe_remaining,
                read_seconds=read_seconds,
                retries=retries or RETRIES,
            )
            opened.callback(self.arm.close)
            self.parts: Final = ProviderParts(
                ProviderServices(
                    context=context,
                    settings=self.settings,
                    arm=self.arm,
                    json=JsonService(
                        ca_bundle=self.settings.ca_bundle,
                        timeout_seconds=read_seconds,
                        observe=self.metrics.calls.observe,
                        retries=retries,
                    ),
                    metrics=self.metrics,
                    node_classes=self.node_classes,
                )
            )
            self._opened: Final = opened.pop_all()
        parts = self.parts
        self.hooks: Final = CloudHooks(
            resolve_node_class=parts.node_class.resolver.resolve,
            finalize_node_class=parts.node_class.finalizer.finalize,
            list_instance_types=self._instance_types,
            launch_instances=self._launch_each,
            fetch_instances=parts.operations.nodes.fetch,
            list_instances=parts.operations.nodes.list,
            sync_instance=self.sync,
            detect_drift=parts.operations.drift.detect,
            terminate_instances=parts.operations.nodes.terminate,
            poll_interruptions=parts.launch.late_failures.poll,
            acknowledge_interruptions=parts.launch.late_failures.acknowledge,
            record_offerings=self.metrics.offerings.record,
        )

    def close(self) -> None:
        """Close connections and unregister metrics."""
        self._opened.close()

    def hash_node_class(self, node_class: AKSNodeClass) -> NodeClassHash:
        """Return the hash of the fields that nodes are made by."""
        from karpenter_provider_azure.hashing import hash_node_class

        return hash_node_class(node_class)

    def check(self) -> Sequence[Finding]:
        """Return the findings of `karpenter doctor`."""
        return self.parts.doctor.check()

    # -- hooks that concern several parts ------------------------------------------------------------

    def _instance_types(
        self, _node_pool: NodePool, node_class: AKSNodeClass
    ) -> Sequence[InstanceType]:
        try:
            types = self.parts.catalogue.types.instance_types(node_class)
        except CloudProviderError as error:
            raise AZURE_ERRORS.with_stable_text(error) from error
        self.parts.catalogue.prices.report_unknown(it.name for it in types)
        return types

    def launch(self, request: LaunchRequest) -> LaunchedInstance:
        """Launch the virtual machine of a claim, and record its outcome for the NodeClass.

        Raises:
            CloudProviderError: nothing was launched, or Azure did not say so.
        """
        refused_launches = self.parts.node_class.refused_launches
        try:
            outcome = self.parts.launch.launcher.launch(request)
        except CloudProviderError as error:
            refused_launches.note([request], [error])
            if isinstance(error, LaunchFailedError) and error.reason == NO_IMAGE_REASON:
                node_class = self.node_classes.node_class(request.node_class.name)
                self.metrics.observe_image_error(node_class.spec.image_family if node_class else "")
            raise
        refused_launches.note([request], [outcome])
        return outcome

    def _launch_each(self, requests: Sequence[LaunchRequest]) -> Sequence[LaunchOutcome]:
        """Launch one after the other; the plug-in's hook launches them side by side."""
        outcomes: list[LaunchOutcome] = []
        for request in requests:
            try:
                outcomes.append(self.launch(request))
            except CloudProviderError as error:
                outcomes.append(error)
        return outcomes

    def sync(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Learn from a Node that has registered, and bring its virtual machine in line.

        AKS machines are left as they are: only preview versions of the API change them.
        """
        self._learn_memory(node_claim, node)
        operations = self.parts.operations
        if not operations.nodes.is_machine(node_claim.status.provider_id):
            operations.updater.sync(node_claim, node)

    def _learn_memory(self, node_claim: NodeClaim, node: NodeView) -> None:
        node_class = self.node_classes.node_class(node_claim.spec.node_class_ref.name)
        instance_type = node.labels.get(INSTANCE_TYPE, "")
        if node_class is None or not node_class.status.images or not instance_type:
            return
        self.parts.catalogue.types.learn_memory(
            node_class,
            instance_type=instance_type,
            image_id=node_claim.status.image_id,
            memory_bytes=node.capacity.get(MEMORY, 0),
        )

    # -- periodic work -------------------------------------------------------------------------

    def tasks(self) -> tuple[PeriodicTask, ...]:
        """Return the periodic work."""
        parts = self.parts
        return (
            PeriodicTask(
                name=_SIZES_TASK,
                period=refresh_period(random.random()),  # noqa: S311 - spreads calls
                run=self._refresh_sizes,
                leader_only=False,
            ),
            PeriodicTask(
                name=_QUOTAS_TASK,
                period=CHECK_PERIOD,
                run=self._refresh_quotas,
                leader_only=False,
            ),
            PeriodicTask(
                name=_PRICES_TASK,
                period=PRICE_PERIOD,
                run=self._refresh_prices,
                leader_only=False,
            ),
            parts.launch.extensions.task(),
            *parts.operations.orphans.tasks(),
        )

    def _refresh_sizes(self) -> None:
        self.parts.catalogue.region.refresh()

    def _refresh_quotas(self) -> None:
        quotas = self.parts.catalogue.quotas
        if quotas.is_due():
            quotas.refresh()

    def _refresh_prices(self) -> None:
        self.parts.catalogue.price_reader.refresh()
