"""Declares the virtual pods of CapacityBuffers, and writes their status.

Templates and workloads are watched, so that a change of them is acted on at once. The provisioning
pass places the declared pods and reports where; this controller puts that into the condition
Provisioning.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_core.controllers.capacity_buffer.burst_observer import BurstObserver
from karpenter_core.controllers.cluster_state import ChangedNames
from karpenter_core.controllers.reconciling.reconciler import DONE, Reconciler, ReconcileResult
from karpenter_core.controllers.reconciling.refusal_reports import reporting_refusals
from karpenter_core.kube.wire.codecs import CAPACITY_BUFFERS
from karpenter_core.lifecycle.capacity_buffer.status import (
    buffer_status_patch,
    with_provisioning,
    with_resolution,
)
from karpenter_core.state.capacity_buffers import (
    BufferFailure,
    buffer_pods,
    buffer_source,
    is_active,
    resolve_buffer,
)
from karpenter_core.state.events import VirtualPodsDeclared
from karpenter_core.state.object_kinds import ObjectKind, workload_key

if TYPE_CHECKING:
    from karpenter_core.api.capacity_buffer import CapacityBuffer
    from karpenter_core.api.records import PodShape, VirtualSource
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.state.capacity_buffers import ResolvedBuffer

__all__ = ["CapacityBufferController"]

_PLACES: Final = ("existing", "new", "none")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Declared:
    """The pods that were declared for a buffer; `shape` is the template's, None for none."""

    source: VirtualSource
    shape: PodShape | None
    replicas: int


@final
class CapacityBufferController:
    """The controller `capacitybuffer`."""

    def __init__(self, *, writer: ObjectWriter, runtime: ControllerRuntime) -> None:
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._runtime = runtime
        self._declared: dict[str, _Declared] = {}
        self._bursts = BurstObserver(writer=writer, runtime=runtime)
        self._reconciler: Reconciler[str] = Reconciler(
            self.name,
            reporting_refusals(
                self.reconcile,
                objects=lambda: self._cluster_state.snapshot().capacity_buffers,
                publish=writer.publish,
            ),
            runtime=runtime,
            log_field="CapacityBuffer",
        )
        self._change_queue = ChangedNames(
            writer.cluster_state,
            ObjectKind.POD_TEMPLATE,
            ObjectKind.WORKLOAD,
            ObjectKind.VIRTUAL_PLACEMENT,
        )
        writer.cluster_state.subscribe(ObjectKind.CAPACITY_BUFFER, self._wake_buffer)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "capacitybuffer"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        for key in self._cluster_state.snapshot().capacity_buffers:
            self._reconciler.wake(key)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatch_changes())
            group.create_task(self._reconciler.run())

    async def reconcile(self, key: str) -> ReconcileResult:
        """Declare the pods of one buffer, and write its status."""
        snapshot = self._cluster_state.snapshot()
        buffer = snapshot.capacity_buffers.get(key)
        if buffer is None or buffer.is_deleting or not is_active(buffer):
            self._withdraw(key)
            return DONE
        buffer, sizing = await self._bursts.observe(buffer, snapshot)
        snapshot = self._cluster_state.snapshot()
        resolution = resolve_buffer(buffer, snapshot, burst_replicas=sizing.replicas)
        self._declare(buffer, resolution)
        self._show_placement(buffer)
        now = self._runtime.clock.now()
        updated = with_resolution(buffer, resolution, now=now, note=sizing.note)
        source = buffer_source(buffer)
        placement = self._cluster_state.snapshot().virtual_placements.get(source)
        updated = with_provisioning(updated, placement, now=now)
        patch = buffer_status_patch(buffer, updated)
        if patch is not None:
            await self._writer.kube_writer.patch(
                CAPACITY_BUFFERS,
                buffer.name,
                patch.body,
                namespace=buffer.namespace,
                subresource="status",
                resource_version=patch.resource_version,
            )
        if isinstance(resolution, BufferFailure) and resolution.is_retried:
            return ReconcileResult(back_off=True)
        return ReconcileResult(requeue_after=sizing.again_after)

    def _declare(self, buffer: CapacityBuffer, resolution: ResolvedBuffer | BufferFailure) -> None:
        """Declare the buffer's pods, unless they are the same as before."""
        source = buffer_source(buffer)
        shape, replicas = None, 0
        if not isinstance(resolution, BufferFailure):
            shape, replicas = resolution.shape, resolution.replicas
        old = self._declared.get(buffer.key)
        if old is not None and old.source != source:  # created anew under the same name
            self._withdraw(buffer.key)
        elif old is not None and old.shape is shape and old.replicas == replicas:
            return
        self._declared[buffer.key] = _Declared(source=source, shape=shape, replicas=replicas)
        pods = () if shape is None else buffer_pods(buffer, shape, replicas)
        self._cluster_state.fold(VirtualPodsDeclared(source=source, pods=pods))

    def _withdraw(self, key: str) -> None:
        self._bursts.forget(key)
        declared = self._declared.pop(key, None)
        if declared is None:
            return
        source = declared.source
        self._cluster_state.fold(VirtualPodsDeclared(source=source, pods=None))
        for place in _PLACES:
            self._runtime.metrics.capacity_buffer_pods.remove(source.namespace, source.name, place)

    def _show_placement(self, buffer: CapacityBuffer) -> None:
        """Show in a metric where the buffer's pods are."""
        source = buffer_source(buffer)
        placement = self._cluster_state.snapshot().virtual_placements.get(source)
        counts = (
            (0, 0, 0)
            if placement is None
            else (placement.on_existing, placement.on_new, placement.failed)
        )
        for place, count in zip(_PLACES, counts, strict=True):
            self._runtime.metrics.capacity_buffer_pods.labels(
                buffer.namespace, buffer.name, place
            ).set(count)

    def _wake_buffer(self, key: str) -> None:
        self._reconciler.wake(key)

    async def _dispatch_changes(self) -> None:
        """Wake the buffers that changes of other objects affect."""
        while True:
            changes = await self._change_queue.take()
            touched = {
                *(f"PodTemplate/{key}" for key in changes.get(ObjectKind.POD_TEMPLATE, ())),
                *changes.get(ObjectKind.WORKLOAD, ()),
                *changes.get(ObjectKind.VIRTUAL_PLACEMENT, ()),
            }
            for key, buffer in self._cluster_state.snapshot().capacity_buffers.items():
                if not touched.isdisjoint(_dependencies(buffer)):
                    self._reconciler.wake(key)


def _dependencies(buffer: CapacityBuffer) -> tuple[str, ...]:
    """Return the names under which changes that affect a buffer are reported."""
    placed = buffer_source(buffer).key
    spec = buffer.spec
    if spec.pod_template_ref is not None:
        return placed, f"PodTemplate/{buffer.namespace}/{spec.pod_template_ref.name}"
    if spec.scalable_ref is not None:
        ref = spec.scalable_ref
        return placed, workload_key(ref.kind, buffer.namespace, ref.name)
    return (placed,)
