"""Resolves CapacityBuffers: the pods they keep room for, and their number.

The size is the greatest of `replicas`, the percentage of the workload's replicas and the size from
observed bursts; `limits` bound it. Limits alone are a size too: as many pods as fit into them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.capacity_buffer import ACTIVE_CAPACITY
from karpenter_core.api.labels import PODS
from karpenter_core.api.quantities import parse_resources
from karpenter_core.api.records import LOWEST_PRIORITY, PodView, VirtualSource
from karpenter_core.state.object_kinds import workload_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.capacity_buffer import CapacityBuffer
    from karpenter_core.api.quantities import Quantity
    from karpenter_core.api.records import PodShape
    from karpenter_core.api.workload_records import PodTemplateView
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "MAX_VIRTUAL_PODS",
    "BufferFailure",
    "ResolvedBuffer",
    "buffer_pods",
    "buffer_size",
    "buffer_source",
    "is_active",
    "limit_replicas",
    "percentage_replicas",
    "resolve_buffer",
    "undeclared_buffers",
]

MAX_VIRTUAL_PODS: Final = 10_000
"""The most pods that one buffer may have: every pass places all of them."""

POD_TEMPLATE_NOT_FOUND: Final = "PodTemplateNotFound"
SCALABLE_REF_NOT_FOUND: Final = "ScalableRefNotFound"
RESOLUTION_FAILED: Final = "ResolutionFailed"

_APPS: Final = "apps"
_WORKLOADS: Final = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResolvedBuffer:
    """A buffer whose pods are known: their shape, and the number to keep room for.

    `wanted` is the number before `MAX_VIRTUAL_PODS` cuts it.
    """

    shape: PodShape
    replicas: int
    wanted: int
    pod_template: PodTemplateView | None
    """The PodTemplate that is referred to; None for a workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferFailure:
    """The reason why a buffer's pods are unknown.

    `is_retried`: it is not the absence of an object, whose arrival would be noticed.
    """

    reason: str
    message: str
    is_retried: bool = False


def is_active(buffer: CapacityBuffer) -> bool:
    """Tell whether the buffer asks for free room on nodes; other strategies are not acted on."""
    return (buffer.spec.provisioning_strategy or ACTIVE_CAPACITY) == ACTIVE_CAPACITY


def resolve_buffer(
    buffer: CapacityBuffer, snapshot: Snapshot, *, burst_replicas: int | None = None
) -> ResolvedBuffer | BufferFailure:
    """Return the buffer's pods, or why they are unknown.

    `burst_replicas` is the size from observed bursts; None without automatic size.
    """
    spec = buffer.spec
    if spec.pod_template_ref is not None:
        name = spec.pod_template_ref.name
        template = snapshot.pod_templates.get(f"{buffer.namespace}/{name}")
        if template is None:
            return BufferFailure(
                reason=POD_TEMPLATE_NOT_FOUND, message=f'podtemplates "{name}" not found'
            )
        return _sized(buffer, template.template, None, burst_replicas, template)
    if spec.scalable_ref is None:
        return BufferFailure(
            reason=RESOLUTION_FAILED, message="Neither podTemplateRef nor scalableRef is set"
        )
    ref = spec.scalable_ref
    group = ref.api_group or _APPS
    if group != _APPS or ref.kind not in _WORKLOADS:
        return BufferFailure(
            reason=RESOLUTION_FAILED,
            message=f'scalableRef: kind "{ref.kind}" of group "{group}" is not supported; '
            "supported are Deployment, StatefulSet and ReplicaSet of group apps",
            is_retried=True,
        )
    workload = snapshot.workloads.get(workload_key(ref.kind, buffer.namespace, ref.name))
    if workload is None or workload.template is None:
        return BufferFailure(
            reason=SCALABLE_REF_NOT_FOUND,
            message=f'{ref.kind.lower()}s.{_APPS} "{ref.name}" not found',
        )
    replicas = 1 if workload.replicas is None else workload.replicas
    return _sized(buffer, workload.template, replicas, burst_replicas)


def _sized(
    buffer: CapacityBuffer,
    shape: PodShape,
    scalable_replicas: int | None,
    burst_replicas: int | None,
    template: PodTemplateView | None = None,
) -> ResolvedBuffer:
    wanted = buffer_size(
        buffer,
        shape.requests,
        scalable_replicas=scalable_replicas,
        burst_replicas=burst_replicas,
    )
    return ResolvedBuffer(
        shape=shape,
        replicas=min(wanted, MAX_VIRTUAL_PODS),
        wanted=wanted,
        pod_template=template,
    )


def buffer_size(
    buffer: CapacityBuffer,
    requests: Mapping[str, int],
    *,
    scalable_replicas: int | None,
    burst_replicas: int | None,
) -> int:
    """Return the number of pods of a buffer whose pods have these requests.

    Upstream's rule: the greater of `replicas` and the percentage, at most what `limits` allow.
    """
    spec = buffer.spec
    sizes = [size for size in (spec.replicas, burst_replicas) if size is not None]
    if spec.percentage is not None and scalable_replicas:
        sizes.append(percentage_replicas(scalable_replicas, spec.percentage))
    allowed = None if spec.limits is None else limit_replicas(spec.limits, requests)
    if not sizes:
        return allowed or 0
    return max(sizes) if allowed is None else min(max(sizes), allowed)


def percentage_replicas(replicas: int, percentage: int) -> int:
    """Return a percentage of replicas, rounded up; at least one if both are positive."""
    return -(-replicas * percentage // 100)


def limit_replicas(limits: Mapping[str, Quantity], requests: Mapping[str, int]) -> int | None:
    """Return how many pods fit into limits; None if they limit nothing that the pods request."""
    fitting = [
        amount // requests[name]
        for name, amount in parse_resources(limits).items()
        if name != PODS and requests.get(name, 0) > 0
    ]
    return min(max(min(fitting), 0), _INT32_MAX) if fitting else None


def buffer_source(buffer: CapacityBuffer) -> VirtualSource:
    """Return the buffer as the source of its virtual pods."""
    return VirtualSource(
        api_version=buffer.resource.api_version,
        kind=buffer.resource.kind,
        namespace=buffer.namespace,
        name=buffer.name,
        uid=buffer.uid,
    )


def buffer_pods(buffer: CapacityBuffer, shape: PodShape, replicas: int) -> tuple[PodView, ...]:
    """Return the virtual pods of a buffer; names and UIDs count from 1 and never change.

    They are as the template says, except that they have no volumes (no claim of theirs exists), no
    gates, and the lowest priority.
    """
    import msgspec

    virtual = msgspec.structs.replace(
        shape,
        annotations={},
        volumes=(),
        scheduling_gates=(),
        priority=LOWEST_PRIORITY,
        priority_class_name="",
        virtual_source=buffer_source(buffer),
    )
    return tuple(
        PodView(
            uid=f"{buffer.uid}-{number}",
            name=f"capacity-buffer-{buffer.name}-{number}",
            shape=virtual,
            created=buffer.metadata.creation_timestamp,
            unschedulable=True,
        )
        for number in range(1, replicas + 1)
    )


def undeclared_buffers(snapshot: Snapshot) -> tuple[CapacityBuffer, ...]:
    """Return the buffers whose virtual pods are not known yet, because the process has just started.

    Unknown is not none: nodes are not disrupted before all are known.
    """
    return tuple(
        buffer
        for buffer in snapshot.capacity_buffers.values()
        if is_active(buffer)
        and not buffer.is_deleting
        and buffer_source(buffer) not in snapshot.virtual_pods
    )
