"""Starts the provider, and runs its periodic tasks.

The region is known from the start: it is configured, or the metadata service of the instance
returns it within seconds. Alibaba Cloud itself is not called before a hook needs it, so that a
cloud which is down does not keep the core from starting.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import INSTANCE_TYPE, MEMORY
from karpenter_core.errors import CloudProviderError, InsufficientCapacityError
from karpenter_core.provider.contract import LaunchedInstance, PeriodicTask
from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
from karpenter_core.provider.kit.plugin import CloudHooks
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.catalogue import stock, system_disks
from karpenter_provider_alibabacloud.catalogue.region_types import refresh_period
from karpenter_provider_alibabacloud.catalogue.stock import CapacityErrorCounter
from karpenter_provider_alibabacloud.late_taints import LATE_TAINTS_PERIOD
from karpenter_provider_alibabacloud.metrics import AlibabaCloudMetrics
from karpenter_provider_alibabacloud.node_class.conditions import ALIBABA_CLOUD_ERRORS
from karpenter_provider_alibabacloud.parts import PRICES_TASK, ProviderParts, ProviderServices
from karpenter_provider_alibabacloud.price_reader import RUN_PERIOD
from karpenter_provider_alibabacloud.sdk import CloudClients
from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import (
        Finding,
        LaunchOutcome,
        LaunchRequest,
        NodeClassHash,
        ProviderContext,
        TerminateOutcome,
    )
    from karpenter_provider_alibabacloud.sdk import ClientLimits

__all__ = ["StartedProvider"]

_TYPES_TASK: Final = "instance-types"
_STOCK_TASK: Final = "stock"
_DISKS_TASK: Final = "system-disks"
_DOUBTED_AGAIN_SECONDS: Final = {_TYPES_TASK: 30 * 60, _STOCK_TASK: 60}
"""Shortest period between two readings that launches ask for, by task; types are a dozen calls."""


@final
class StartedProvider:
    """One started provider; callable from any thread."""

    def __init__(self, context: ProviderContext, *, limits: ClientLimits | None = None) -> None:
        """Read settings and files.

        Raises:
            SettingsError: a setting cannot be used, or nothing says which region it is.
        """
        self._context: Final = context
        self.settings: Final = AlibabaCloudSettings.from_context(context)
        self.node_classes: Final = NodeClassRegistry[ECSNodeClass]()
        with ExitStack() as opened:
            self.metrics: Final = AlibabaCloudMetrics(
                context.metrics,
                context.clock,
                with_reserved=context.feature_gates.reserved_capacity,
            )
            opened.callback(self.metrics.close)
            self.clients: Final = CloudClients.from_settings(
                self.settings,
                limits=limits,
                observe=self.metrics.calls.observe,
                monotonic=context.clock.monotonic,
            )
            opened.callback(self.clients.close)
            self.parts: Final = ProviderParts(
                ProviderServices(
                    context=context,
                    settings=self.settings,
                    clients=self.clients,
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
            launch_instances=self.launch,
            fetch_instances=parts.operations.instances.fetch,
            list_instances=parts.operations.instances.list,
            sync_instance=self.sync,
            detect_drift=parts.operations.drift.detect,
            terminate_instances=self.terminate,
            poll_interruptions=parts.interruption_sources.poll,
            acknowledge_interruptions=parts.interruption_sources.acknowledge,
            record_offerings=self.metrics.offerings.record,
        )
        self._capacity_errors: Final = CapacityErrorCounter()
        self._lock: Final = Lock()
        self._doubted_at: Final = dict.fromkeys(_DOUBTED_AGAIN_SECONDS, -inf)
        """Times at which launches last found repeatedly that a task's data is stale; by task, monotonic."""
        self._are_types_doubted = False
        """Whether they were not read since."""

    def close(self) -> None:
        """Close connections and unregister metrics."""
        self._opened.close()

    def hash_node_class(self, node_class: ECSNodeClass) -> NodeClassHash:
        """Digest what a node is made by."""
        from karpenter_provider_alibabacloud.hashing import hash_node_class

        return hash_node_class(node_class)

    def check(self) -> Sequence[Finding]:
        """Return the findings of `karpenter doctor`."""
        return self.parts.doctor.check()

    # -- what more than one part has to do with ----------------------------------------------------

    def _instance_types(
        self, node_pool: NodePool, node_class: ECSNodeClass
    ) -> Sequence[InstanceType]:
        """List what the region sells, as a node of this NodeClass would be."""
        try:
            return self.parts.catalogue.types.instance_types(node_class, node_pool)
        except CloudProviderError as error:
            raise ALIBABA_CLOUD_ERRORS.with_stable_text(error) from error

    def launch(self, requests: Sequence[LaunchRequest]) -> Sequence[LaunchOutcome]:
        """Launch instances, and draw conclusions from what came of it."""
        try:
            outcomes = self.parts.launch.foreign.launch(requests)
        except CloudProviderError as error:
            self.parts.node_class.refused_launches.note(requests, [error] * len(requests))
            raise
        self.parts.node_class.refused_launches.note(requests, outcomes)
        self.parts.node_class.registrations.note_launched(
            it.provider_id for it in outcomes if isinstance(it, LaunchedInstance)
        )
        noted = [
            self._capacity_errors.note(sold_out=isinstance(it, InsufficientCapacityError))
            for it in outcomes
        ]
        if any(noted):
            self._doubt_stock()
        return outcomes

    def _doubt_stock(self) -> None:
        """Ask for types and stock anew, unless that was done a while ago."""
        now = self._context.clock.monotonic()
        with self._lock:
            due = [
                task
                for task, seconds in _DOUBTED_AGAIN_SECONDS.items()
                if now - self._doubted_at[task] >= seconds
            ]
            self._doubted_at.update(dict.fromkeys(due, now))
            self._are_types_doubted |= _TYPES_TASK in due
        for task in due:
            self._context.wake(task)

    def sync(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Learn from a Node that has registered, and bring its instance in line."""
        self.parts.node_class.registrations.note_registered(node.provider_id)
        self._learn_memory(node_claim, node)
        self.parts.operations.tagger.sync(node_claim, node)

    def terminate(self, provider_ids: Sequence[str]) -> Sequence[TerminateOutcome]:
        """Delete instances."""
        outcomes = self.parts.operations.instances.terminate(provider_ids)
        self.parts.node_class.registrations.note_terminated(provider_ids)
        return outcomes

    def _learn_memory(self, node_claim: NodeClaim, node: NodeView) -> None:
        node_class = self.node_classes.node_class(node_claim.spec.node_class_ref.name)
        instance_type = node.labels.get(INSTANCE_TYPE, "")
        if node_class is None or not node_class.status.v_switches or not instance_type:
            return
        self.parts.catalogue.types.learn_memory(
            node_class,
            instance_type=instance_type,
            image_id=node_claim.status.image_id,
            memory_bytes=node.capacity.get(MEMORY, 0),
        )

    # -- periodic work -------------------------------------------------------------------------

    def tasks(self) -> tuple[PeriodicTask, ...]:
        """Return what is done now and then."""
        return (
            PeriodicTask(
                name=_TYPES_TASK,
                period=refresh_period(random.random()),  # noqa: S311 - spreads calls
                run=self._refresh_types,
                leader_only=False,
            ),
            PeriodicTask(
                name=_STOCK_TASK,
                period=stock.REFRESH_PERIOD,
                run=self._refresh_stock,
                leader_only=False,
            ),
            PeriodicTask(
                name=PRICES_TASK, period=RUN_PERIOD, run=self._refresh_prices, leader_only=False
            ),
            PeriodicTask(
                name=_DISKS_TASK, period=system_disks.REFRESH_PERIOD, run=self._refresh_disks
            ),
            PeriodicTask(
                name="late-taints",
                period=LATE_TAINTS_PERIOD,
                run=self.parts.operations.late_taints.run,
            ),
            *self.parts.interruption_sources.tasks(),
        )

    def _refresh_types(self) -> None:
        with self._lock:
            at_once, self._are_types_doubted = self._are_types_doubted, False
        self.parts.catalogue.region.refresh(at_once=at_once)

    def _refresh_stock(self) -> None:
        self.parts.catalogue.stock.refresh(at_once=True)

    def _refresh_prices(self) -> None:
        self.parts.catalogue.price_reader.refresh()

    def _refresh_disks(self) -> None:
        self.parts.catalogue.system_disks.refresh()
