"""Turn what a pure step asks for into as few writes as it takes.

A step says how objects should be; this sends the difference: at most one patch of a claim's
metadata, one of its status, one of its Node. What did not change is not sent. Numbers, Events and
facts follow only when the writes have succeeded, so that a retry counts nothing twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast, final

import structlog
from prometheus_client import Counter, Gauge, Histogram

from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView
from karpenter_core.controllers.quantiles import QuantileSummary
from karpenter_core.errors import NotFoundError
from karpenter_core.kube.resources import NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.lifecycle.changes import metadata_patch, status_patch
from karpenter_core.state.events import OfferingsExhausted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.judgements import FailedJudgement
    from karpenter_core.api.notices import Notice, ObjectRef
    from karpenter_core.controllers.feed import Feed
    from karpenter_core.controllers.metrics import Metrics
    from karpenter_core.kube.writer import Writer
    from karpenter_core.lifecycle.changes import Fact, NodePatch, Step

__all__ = ["Hands"]


@final
class Hands:
    """The writes that controllers share, and the side effects that go with them."""

    def __init__(
        self,
        *,
        writer: Writer,
        feed: Feed,
        publish: Callable[[Notice], None],
        metrics: Metrics,
        owns_nodes: bool = True,
    ) -> None:
        """`owns_nodes` is False when Nodes live in another cluster than their NodeClaims.

        That cluster's garbage collector would delete a Node whose owner it cannot find.
        """
        self._owns_nodes = owns_nodes
        self.writer = writer
        self.feed = feed
        self.publish = publish
        self.metrics = metrics
        self._set_aside: dict[tuple[str, str], frozenset[tuple[ObjectRef, str]]] = {}

    async def write_claim(self, old: NodeClaim, new: NodeClaim) -> NodeClaim:
        """Send what changed of a claim: metadata, then status; return it as stored.

        Raises:
            ConflictError: somebody wrote in between.
        """
        if new is old:
            return old
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

    async def write_node(self, node: NodeView, wanted: NodePatch) -> NodeView:
        """Send what a Node is to gain and to lose; return it as stored.

        Raises:
            ConflictError: somebody wrote in between.
        """
        if not self._owns_nodes:
            wanted = replace(wanted, owner=None)
        patch = wanted.merge_patch(node)
        if patch is None:
            return node
        stored = await self.writer.patch(
            NODES, node.name, patch.body, resource_version=patch.resource_version
        )
        return cast("NodeView", stored)

    async def delete_claim(self, claim: NodeClaim) -> bool:
        """Delete a claim, if it is still that one and nobody has; say whether we did."""
        if claim.is_deleting:
            return False
        try:
            await self.writer.delete(NODE_CLAIMS, claim.name, uid=claim.uid)
        except NotFoundError:
            return False
        return True

    async def delete_node(self, node: NodeView) -> bool:
        """Delete a Node, if it is still that one and nobody has; say whether we did."""
        if node.is_deleting:
            return False
        try:
            await self.writer.delete(NODES, node.name, uid=node.uid)
        except NotFoundError:
            return False
        return True

    def settle(self, step: Step, *, provider: str = "") -> None:
        """Count, tell and remember what a step leaves behind; its writes have succeeded."""
        self.count(step.facts)
        self.tell(step.notices)
        for event in step.events:
            self.feed.fold(event)
        if step.exhausted:
            self.feed.fold(
                OfferingsExhausted(
                    offerings=step.exhausted,
                    provider=provider,
                    node_class=step.exhausted_for,
                    at=self.feed.now,
                )
            )

    def count(self, facts: Iterable[Fact]) -> None:
        """Put facts into their metrics."""
        for fact in facts:
            metric: object = getattr(self.metrics, fact.metric)
            if isinstance(metric, Counter):
                (metric.labels(**fact.labels) if fact.labels else metric).inc(fact.value)
            elif isinstance(metric, Histogram | QuantileSummary):
                (metric.labels(**fact.labels) if fact.labels else metric).observe(fact.value)
            elif isinstance(metric, Gauge):
                (metric.labels(**fact.labels) if fact.labels else metric).set(fact.value)

    def set_aside(
        self, failed: Iterable[FailedJudgement], *, controller: str, phase: str = ""
    ) -> None:
        """Tell of objects that were set aside because judging them failed: Event, metric, log.

        What the same phase of the pass before set aside as well is not logged again; a controller
        that judges more than once in a pass names the phase.
        """
        failed = tuple(failed)
        logged = self._set_aside.get((controller, phase), frozenset())
        self._set_aside[controller, phase] = frozenset(
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
                "set aside, judging it failed",
                step=item.step,
                error=item.error,
                **{about.kind: {"namespace": about.namespace, "name": about.name}},
            )

    def tell(self, notices: Iterable[Notice]) -> None:
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
        stored = await self.writer.patch(
            NODE_CLAIMS,
            name,
            cast("dict[str, object]", body),
            subresource=subresource,
            resource_version=resource_version,
        )
        return cast("NodeClaim", stored)
