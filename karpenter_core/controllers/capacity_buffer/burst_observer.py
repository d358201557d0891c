"""Counts pods that arrive for buffers of automatic size; keeps the counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.api.notices import Notice
from karpenter_core.errors import ApiError
from karpenter_core.kube.refusals import is_refusal, refused_write_notice
from karpenter_core.kube.wire.codecs import CAPACITY_BUFFERS
from karpenter_core.lifecycle.capacity_buffer.bursts import (
    HISTORY,
    LAG,
    SIZE_FROM_BURSTS,
    burst_replicas,
    burst_setting,
    read_history,
    with_arrivals,
    write_history,
)
from karpenter_core.state.capacity_buffers import BufferFailure, resolve_buffer
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from karpenter_core.api.capacity_buffer import CapacityBuffer
    from karpenter_core.api.records import PodShape, PodView
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.capacity_buffer.bursts import BurstHistory
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["BurstObserver", "BurstSizing"]

OBSERVE_SECONDS: Final = 60.0
RECENT: Final = 3 * OBSERVE_SECONDS
"""Seconds for which arrived pods are remembered: every buffer has counted them by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstSizing:
    """The size from bursts (None: not automatic), a note for the condition, and the next look."""

    replicas: int | None = None
    note: str = ""
    again_after: float | None = None


@final
class BurstObserver:
    """Follows the arrival of pods; reads all pods of the cluster once for each buffer."""

    def __init__(self, *, writer: ObjectWriter, runtime: ControllerRuntime) -> None:
        self._writer = writer
        self._runtime = runtime
        self._histories: dict[str, tuple[str, BurstHistory]] = {}
        """UID and history by the buffer's key; newer than the annotation by what changes nothing."""
        self._arrived: dict[str, datetime] = {}
        """UIDs of pods that were created a short time ago."""
        writer.cluster_state.subscribe(ObjectKind.POD, self._on_pod)

    def forget(self, key: str) -> None:
        """Forget a buffer."""
        self._histories.pop(key, None)
        if not self._histories:
            self._arrived.clear()

    async def observe(
        self, buffer: CapacityBuffer, snapshot: Snapshot
    ) -> tuple[CapacityBuffer, BurstSizing]:
        """Count what arrived for a buffer; return it as stored, and its size."""
        annotations = buffer.metadata.annotations
        try:
            quantile = burst_setting(annotations)
            stored = None if quantile is None else read_history(annotations)
        except ValueError as error:
            return buffer, self._refused(buffer, str(error))
        if quantile is None:
            self.forget(buffer.key)
            return buffer, BurstSizing()
        if buffer.spec.limits is None:
            return buffer, self._refused(
                buffer,
                f"{SIZE_FROM_BURSTS} has no effect without spec.limits, which bound the size",
            )
        resolution = resolve_buffer(buffer, snapshot)
        if isinstance(resolution, BufferFailure):
            return buffer, BurstSizing()
        if not resolution.shape.labels:
            return buffer, self._refused(
                buffer, f"{SIZE_FROM_BURSTS} has no effect: the pod template has no labels"
            )
        known = self._histories.get(buffer.key)
        if known is None or known[0] != buffer.uid:
            before, pods = stored, snapshot.pods.values()
        else:
            before, pods = known[1], self._recent_pods(snapshot)
        arrivals = [
            pod.created
            for pod in pods
            if pod.created is not None and _is_alike(pod.shape, resolution.shape)
        ]
        history = with_arrivals(before, arrivals, now=self._runtime.clock.now())
        if stored is None or (stored.days, stored.arrivals) != (history.days, history.arrivals):
            buffer = await self._store(buffer, history)
        self._histories[buffer.key] = (buffer.uid, history)
        size = burst_replicas(history, quantile)
        note = f"sized for bursts of {size} pods ({float(quantile):g} of those observed)"
        return buffer, BurstSizing(replicas=size, note=note, again_after=OBSERVE_SECONDS)

    async def _store(self, buffer: CapacityBuffer, history: BurstHistory) -> CapacityBuffer:
        """Write the history; a policy may let nobody else annotate a buffer, which has its room anyway."""
        body = {"metadata": {"annotations": {HISTORY: write_history(history)}}}
        try:
            written = await self._writer.kube_writer.patch(
                CAPACITY_BUFFERS, buffer.name, body, namespace=buffer.namespace
            )
        except ApiError as error:
            if not is_refusal(error):
                raise
            self._writer.publish(refused_write_notice(buffer.ref, error))
            return buffer
        return cast("CapacityBuffer", written)

    def _refused(self, buffer: CapacityBuffer, problem: str) -> BurstSizing:
        self.forget(buffer.key)
        self._writer.publish(
            Notice(
                regarding=buffer.ref,
                type="Warning",
                reason="InvalidBufferSizing",
                message=problem,
                dedupe=(buffer.uid, problem),
            )
        )
        return BurstSizing(note=problem)

    def _recent_pods(self, snapshot: Snapshot) -> Iterator[PodView]:
        horizon = self._runtime.clock.now() - LAG
        for uid, at in tuple(self._arrived.items()):
            if (horizon - at).total_seconds() > RECENT:
                del self._arrived[uid]
                continue
            pod = snapshot.pods.get(uid)
            if pod is not None:
                yield pod

    def _on_pod(self, uid: str) -> None:
        if self._histories and uid not in self._arrived:
            self._arrived[uid] = self._runtime.clock.now()


def _is_alike(shape: PodShape, template: PodShape) -> bool:
    """Tell whether a pod is of the namespace and has the labels of a template."""
    return shape.namespace == template.namespace and template.labels.items() <= shape.labels.items()
