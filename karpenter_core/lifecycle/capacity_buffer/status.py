"""Computes conditions and status of a CapacityBuffer, as upstream does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.capacity_buffer import (
    PROVISIONING,
    READY_FOR_PROVISIONING,
    CapacityBufferStatus,
    LocalObjectRef,
)
from karpenter_core.api.conditions import FALSE, TRUE, is_true, with_condition
from karpenter_core.lifecycle.changes import MergePatch, changed_fields
from karpenter_core.state.capacity_buffers import MAX_VIRTUAL_PODS, BufferFailure

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.capacity_buffer import CapacityBuffer
    from karpenter_core.api.conditions import ConditionStatus
    from karpenter_core.scheduling.virtual_pods import VirtualPlacement
    from karpenter_core.state.capacity_buffers import ResolvedBuffer

__all__ = ["buffer_status_patch", "with_provisioning", "with_resolution"]

RESOLVED: Final = "Resolved"
NOT_READY_FOR_PROVISIONING: Final = "NotReadyForProvisioning"
BUFFER_EMPTY: Final = "BufferEmpty"
REQUIRES_NEW_CAPACITY: Final = "RequiresNewCapacity"
FITS_EXISTING_CAPACITY: Final = "FitsExistingCapacity"


def with_resolution(
    buffer: CapacityBuffer,
    resolution: ResolvedBuffer | BufferFailure,
    *,
    now: datetime,
    note: str,
) -> CapacityBuffer:
    """Return the buffer with the condition ReadyForProvisioning and the resolved pods.

    After a failure the status keeps the pods that were resolved last. `note` is added to the message.
    """
    strategy = buffer.spec.provisioning_strategy
    if isinstance(resolution, BufferFailure):
        updated = _with_status(buffer, provisioning_strategy=strategy)
        return _with_condition(
            updated,
            READY_FOR_PROVISIONING,
            FALSE,
            reason=resolution.reason,
            message=resolution.message,
            now=now,
        )
    template = resolution.pod_template
    updated = _with_status(
        buffer,
        provisioning_strategy=strategy,
        replicas=resolution.replicas,
        pod_template_ref=None if template is None else LocalObjectRef(name=template.name),
        pod_template_generation=None if template is None else template.generation,
    )
    message = "Pod template resolved successfully"
    if resolution.wanted > resolution.replicas:
        message += f"; limited to {MAX_VIRTUAL_PODS} of {resolution.wanted} pods"
    if note:
        message += f"; {note}"
    return _with_condition(
        updated, READY_FOR_PROVISIONING, TRUE, reason=RESOLVED, message=message, now=now
    )


def with_provisioning(
    buffer: CapacityBuffer, placement: VirtualPlacement | None, *, now: datetime
) -> CapacityBuffer:
    """Return the buffer with the condition Provisioning, which says where its pods would go.

    `placement` is the result of a pass; None before one has decided, which changes nothing.
    """
    if not is_true(buffer.status.conditions, READY_FOR_PROVISIONING):
        return _with_condition(
            buffer,
            PROVISIONING,
            FALSE,
            reason=NOT_READY_FOR_PROVISIONING,
            message="Buffer is not ReadyForProvisioning",
            now=now,
        )
    if not buffer.status.replicas:
        return _with_condition(
            buffer,
            PROVISIONING,
            FALSE,
            reason=BUFFER_EMPTY,
            message="Buffer has zero desired replicas",
            now=now,
        )
    if placement is None or placement.wanted != buffer.status.replicas:
        return buffer
    if placement.on_new or placement.failed:
        return _with_condition(
            buffer,
            PROVISIONING,
            FALSE,
            reason=REQUIRES_NEW_CAPACITY,
            message=f"{placement.on_new}/{placement.wanted} virtual pods required new capacity, "
            f"{placement.failed} failed",
            now=now,
        )
    if placement.undecided:
        return buffer
    return _with_condition(
        buffer,
        PROVISIONING,
        TRUE,
        reason=FITS_EXISTING_CAPACITY,
        message=f"All {placement.wanted} virtual pods fit on existing capacity",
        now=now,
    )


def buffer_status_patch(old: CapacityBuffer, new: CapacityBuffer) -> MergePatch | None:
    """Return the patch of a buffer's status; None when nothing changed.

    It carries the resource version: the list of conditions may have other writers.
    """
    status = changed_fields(old.status, new.status)
    if not status:
        return None
    return MergePatch(body={"status": status}, resource_version=old.metadata.resource_version)


def _with_status(buffer: CapacityBuffer, **changes: object) -> CapacityBuffer:
    status: CapacityBufferStatus = buffer.status.model_copy(update=changes)
    return buffer if status == buffer.status else buffer.model_copy(update={"status": status})


def _with_condition(
    buffer: CapacityBuffer,
    condition_type: str,
    status: ConditionStatus,
    *,
    reason: str,
    message: str,
    now: datetime,
) -> CapacityBuffer:
    conditions = with_condition(
        buffer.status.conditions,
        type=condition_type,
        status=status,
        reason=reason,
        message=message,
        now=now,
        generation=buffer.metadata.generation,
    )
    return _with_status(buffer, conditions=conditions)
