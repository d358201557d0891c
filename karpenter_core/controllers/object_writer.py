"""Writes the results of pure steps with as few API calls as possible.

A step contains objects as they should be; this module sends the difference: at most one patch of a
claim's metadata, one of its status and one of its Node. Metrics, Events and state events follow only
after the writes have succeeded, so that a retry counts nothing twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast, final

import structlog
from prometheus_client import Counter

from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView
from karpenter_core.errors import NotFoundError
from karpenter_core.kube.resources import NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.lifecycle.changes import metadata_patch, status_patch
from karpenter_core.state.events import OfferingsUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.judgements import FailedJudgement
    from karpenter_core.api.notices import Notice, ObjectRef
    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.metrics.process_metrics import Metrics
    from karpenter_core.kube.writer import KubeWriter
    from karpenter_core.lifecycle.changes import LifecycleStep, MetricUpdate, NodePatch

__all__ = ["ObjectWriter"]


@final
class ObjectWriter:
    """The writes that controllers share, and the side effects that go with them."""

    def __init__(
        self,
        *,
        kube_writer: KubeWriter,
        cluster_state: ClusterState,
        publish: Callable[[Notice], None],
        metrics: Metrics,
        owns_nodes: bool,
    ) -> None:
        """`owns_nodes` is False if Nodes are in another cluster than their NodeClaims.

        That cluster's garbage collector would delete a Node whose owner does not exist there.
        """
        self._owns_nodes = owns_nodes
        self.kube_writer = kube_writer
        self.cluster_state = cluster_state
        self.publish = publish
        self.metrics = metrics
        self._reported_failures: dict[tuple[str, str], frozenset[tuple[ObjectRef, str]]] = {}

    async def write_claim(self, old: NodeClaim, new: NodeClaim) -> NodeClaim:
        """Send the changes of a claim, metadata before status; return it as stored.

        Raises:
            ConflictError: another writer was faster.
        """
        stored = old
        patch = metadata_patch(old, new)
        if patch is not None:
            stored = await self._patch_claim(old.name, patch.body, patch.resource_version)
        patch = status_patch(old, new, resource_version=stored.metadata.resource_version)
        if patch is not None:
            stored = await self._patch_claim(
                old.name, patch.body, patch.resource_version, subresource="status"
            )
        return stored

    async def write_node(self, node: NodeView, node_patch: NodePatch) -> NodeView:
        """Send the patch of a Node; return the Node as stored.

        Raises:
            ConflictError: the Node was replaced, or another writer has changed the same fields.
        """
        if not self._owns_nodes:
            node_patch = replace(node_patch, owner=None)
        operations = node_patch.operations_for(node)
        if not operations:
            return node
        stored = await self.kube_writer.patch_by_operations(NODES, node.name, operations)
        return cast("NodeView", stored)

    async def delete_claim(self, claim: NodeClaim) -> bool:
        """Delete a claim unless it is deleted or replaced; tell whether this call deleted it."""
        if claim.is_deleting:
            return False
        try:
            await self.kube_writer.delete(NODE_CLAIMS, claim.name, uid=claim.uid)
        except NotFoundError:
            return False
        return True

    async def delete_node(self, node: NodeView) -> bool:
        """Delete a Node unless it is deleted or replaced; tell whether this call deleted it."""
        if node.is_deleting:
            return False
        try:
            await self.kube_writer.delete(NODES, node.name, uid=node.uid)
        except NotFoundError:
            return False
        return True

    def record_effects(self, step: LifecycleStep) -> None:
        """Record metrics, Events and state events of a step whose writes have succeeded."""
        self.record_metrics(step.metric_updates)
        self.publish_all(step.notices)
        for event in step.events:
            self.cluster_state.fold(event)

    def record_exhausted(self, step: LifecycleStep, provider: str) -> None:
        """Make the offerings unavailable that a failed launch found sold out."""
        if step.exhausted:
            self.cluster_state.fold(
                OfferingsUnavailable(
                    offerings=step.exhausted,
                    provider=provider,
                    node_class=step.exhausted_for,
                    at=self.cluster_state.now,
                )
            )

    def record_metrics(self, metric_updates: Iterable[MetricUpdate]) -> None:
        """Put facts into their metrics."""
        for metric_update in metric_updates:
            metric = self.metrics.of(metric_update.metric)
            series = metric.labels(**metric_update.labels) if metric_update.labels else metric
            if isinstance(series, Counter):
                series.inc(metric_update.value)
            else:
                series.observe(metric_update.value)

    def report_failed_judgements(
        self, failed: Iterable[FailedJudgement], *, controller: str, phase: str = ""
    ) -> None:
        """Report objects that were set aside because evaluating them failed: Event, metric, log.

        An object that the same phase of the last pass had set aside too is not logged again; a
        controller that evaluates objects more than once in a pass names the phase.
        """
        failed = tuple(failed)
        logged = self._reported_failures.get((controller, phase), frozenset())
        self._reported_failures[controller, phase] = frozenset(
            (item.regarding, item.step) for item in failed
        )
        log: FilteringBoundLogger = structlog.get_logger(controller)
        for item in failed:
            about = item.regarding
            self.metrics.judgements_failed.labels(controller=controller, kind=about.kind).inc()
            self.publish(item.notice)
            if (about, item.step) in logged:
                continue
            log.error(
                "object skipped, the decision about it failed",
                step=item.step,
                error=item.error,
                **{about.kind: {"namespace": about.namespace, "name": about.name}},
            )

    def publish_all(self, notices: Iterable[Notice]) -> None:
        """Publish Events."""
        for notice in notices:
            self.publish(notice)

    async def _patch_claim(
        self,
        name: str,
        body: object,
        resource_version: str | None,
        *,
        subresource: str = "",
    ) -> NodeClaim:
        stored = await self.kube_writer.patch(
            NODE_CLAIMS,
            name,
            cast("dict[str, object]", body),
            subresource=subresource,
            resource_version=resource_version,
        )
        return cast("NodeClaim", stored)
