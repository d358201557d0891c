"""Evaluates all NodeOverlays together: the controller `nodeoverlay`.

An evaluation takes all overlays, all NodePools and their listed catalogues. Its result replaces the one
before in one step, so that no pass sees one half of it; then the conditions are written. It is repeated
when an overlay, a NodePool's labels or a listing changes. A NodePool without a listing is left out, and
has no catalogue until it is evaluated: the catalogue controller repeats failed listings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import structlog

from karpenter_core.api.labels import PRICE_PER_NODE
from karpenter_core.controllers.reconciling.reconciler import Reconciler, ReconcileResult
from karpenter_core.errors import KarpenterError
from karpenter_core.kube.refusals import is_refusal, refused_write_notice
from karpenter_core.kube.wire.codecs import NODE_OVERLAYS
from karpenter_core.lifecycle.nodeoverlay.evaluation import evaluate_overlays, listed_pools
from karpenter_core.lifecycle.nodeoverlay.status import (
    overlay_notices,
    overlay_status_patch,
    with_verdict,
)
from karpenter_core.state.events import OverlaysEvaluated
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Hashable

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeoverlay import NodeOverlay
    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.nodeoverlay.evaluation import OverlayEvaluation
    from karpenter_core.lifecycle.nodepool.validation import LabelRules
    from karpenter_core.scheduling.problem import Catalogue
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["REPEAT_SECONDS", "NodeOverlayController"]

REPEAT_SECONDS: Final = 6 * 3600.0  # upstream default
_ALL: Final = "all"

_Inputs: TypeAlias = "tuple[Hashable, ...]"


@final
class NodeOverlayController:
    """The controller `nodeoverlay`: evaluation, conditions, and the changes of catalogues."""

    def __init__(
        self,
        *,
        cluster_state: ClusterState,
        runtime: ControllerRuntime,
        label_rules: LabelRules,
        writer: ObjectWriter | None,
    ) -> None:
        """Without a `writer` (a process that observes) no conditions are written."""
        self._cluster_state = cluster_state
        self._runtime = runtime
        self._rules = label_rules
        self._writer = writer
        self._evaluated: tuple[_Inputs, OverlayEvaluation] | None = None
        self._catalogues: tuple[Catalogue, ...] = ()
        """Keeps the evaluated catalogues, so that no other object gets the identity of one."""
        self._conflicts: dict[str, str] = {}
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[str] = Reconciler(
            self.name, self.reconcile, runtime=runtime, concurrency=1
        )
        for kind in (ObjectKind.NODE_OVERLAY, ObjectKind.NODE_POOL, ObjectKind.CATALOGUE):
            cluster_state.subscribe(kind, lambda _name: self._reconciler.wake(_ALL))

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodeoverlay"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        self._reconciler.wake(_ALL)
        await self._reconciler.run()

    async def reconcile(self, _key: str) -> ReconcileResult:
        """Evaluate all overlays, unless nothing changed, and write their conditions."""
        snapshot = self._cluster_state.snapshot()
        inputs = _inputs_of(snapshot)
        if self._evaluated is None or self._evaluated[0] != inputs:
            evaluation = evaluate_overlays(
                snapshot.node_overlays.values(), listed_pools(snapshot), rules=self._rules
            )
            self._catalogues = tuple(snapshot.listed_catalogues.values())
            self._evaluated = inputs, evaluation
            self._cluster_state.fold(OverlaysEvaluated(evaluation.store))
            self._log_conflicts(evaluation)
        if self._writer is not None:
            await self._write_conditions(self._writer, snapshot, self._evaluated[1])
        return ReconcileResult(requeue_after=REPEAT_SECONDS)

    async def _write_conditions(
        self, writer: ObjectWriter, snapshot: Snapshot, evaluation: OverlayEvaluation
    ) -> None:
        """Write all conditions that changed; the error of one overlay does not stop the others.

        Raises:
            KarpenterError: the last error; the conditions are written after a back-off.
        """
        failure: KarpenterError | None = None
        for _, overlay in sorted(snapshot.node_overlays.items()):
            judged = with_verdict(overlay, evaluation, now=self._runtime.clock.now())
            patch = overlay_status_patch(overlay, judged)
            if patch is None:
                continue
            try:
                stored = await writer.kube_writer.patch(
                    NODE_OVERLAYS,
                    overlay.name,
                    patch.body,
                    subresource="status",
                    resource_version=patch.resource_version,
                )
            except KarpenterError as error:
                failure = error
                if is_refusal(error):
                    writer.publish(refused_write_notice(overlay.ref, error))
            else:
                self._report_verdict(writer, cast("NodeOverlay", stored), evaluation)
        if failure is not None:
            raise failure

    def _report_verdict(
        self, writer: ObjectWriter, overlay: NodeOverlay, evaluation: OverlayEvaluation
    ) -> None:
        """Report a condition that was written: an Event unless the overlay is applied, and a log line."""
        writer.publish_all(overlay_notices(overlay, evaluation))
        problems = evaluation.errors.get(overlay.name)
        if problems:
            self._log.warning(
                "nodeoverlay is invalid and not applied",
                NodeOverlay={"name": overlay.name},
                problem="; ".join(problems),
            )

    def _log_conflicts(self, evaluation: OverlayEvaluation) -> None:
        for name, conflict in sorted(evaluation.conflicts.items()):
            if self._conflicts.get(name) != conflict:
                self._log.warning(
                    "nodeoverlay conflicts with another one and is not applied",
                    NodeOverlay={"name": name},
                    conflict=conflict,
                )
        self._conflicts = dict(evaluation.conflicts)


def _inputs_of(snapshot: Snapshot) -> _Inputs:
    """Return what an evaluation depends on; equal only if it would have the same result."""
    overlays = tuple(
        (
            overlay.uid,
            overlay.metadata.generation,
            overlay.metadata.annotations.get(PRICE_PER_NODE),
        )
        for _, overlay in sorted(snapshot.node_overlays.items())
    )
    pools = tuple(
        (
            pool.name,
            tuple(sorted(pool.spec.template.metadata.labels.items())),
            id(catalogue),
        )
        for pool, catalogue in listed_pools(snapshot)
    )
    return overlays, pools
