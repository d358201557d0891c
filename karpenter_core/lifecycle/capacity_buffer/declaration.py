"""Declares virtual pods of all CapacityBuffers at once.

Plans that no controller prepares use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.lifecycle.capacity_buffer.bursts import (
    burst_replicas,
    burst_setting,
    read_history,
)
from karpenter_core.state.capacity_buffers import (
    BufferFailure,
    buffer_pods,
    buffer_source,
    is_active,
    resolve_buffer,
)
from karpenter_core.state.events import VirtualPodsDeclared

if TYPE_CHECKING:
    from karpenter_core.api.capacity_buffer import CapacityBuffer
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["buffer_declarations", "recorded_burst_replicas"]


def buffer_declarations(
    snapshot: Snapshot,
) -> tuple[tuple[VirtualPodsDeclared, ...], dict[str, str]]:
    """Return the virtual pods of every buffer, and why some buffers have none, by their key."""
    declared: list[VirtualPodsDeclared] = []
    problems: dict[str, str] = {}
    for key, buffer in sorted(snapshot.capacity_buffers.items()):
        if buffer.is_deleting:
            continue
        if not is_active(buffer):
            problems[key] = (
                f'provisioning strategy "{buffer.spec.provisioning_strategy}" is not acted on'
            )
            continue
        resolution = resolve_buffer(
            buffer, snapshot, burst_replicas=recorded_burst_replicas(buffer)
        )
        if isinstance(resolution, BufferFailure):
            problems[key] = resolution.message
            continue
        pods = buffer_pods(buffer, resolution.shape, resolution.replicas)
        declared.append(VirtualPodsDeclared(source=buffer_source(buffer), pods=pods))
    return tuple(declared), problems


def recorded_burst_replicas(buffer: CapacityBuffer) -> int | None:
    """Return the size from the bursts that are recorded; None without a usable record."""
    annotations = buffer.metadata.annotations
    try:
        quantile = burst_setting(annotations)
        history = None if quantile is None else read_history(annotations)
    except ValueError:
        return None
    if quantile is None or history is None or buffer.spec.limits is None:
        return None
    return burst_replicas(history, quantile)
