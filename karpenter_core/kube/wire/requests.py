"""Sums the resource requests of a pod as the Kubernetes scheduler does.

KEP-753 (sidecars), KEP-2837 (pod-level resources), KEP-1287 (in-place resize), RuntimeClass
overhead. Amounts are integers in fixed units when they leave this module.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from karpenter_core.api.container_requests import (
    keep_pod_level,
    larger_amounts,
    sum_containers,
)
from karpenter_core.api.labels import PODS
from karpenter_core.api.quantities import LARGEST_AMOUNT, parse_amount
from karpenter_core.api.records import ContainerRequests, ContainerStage, PodRequestParts
from karpenter_core.kube.wire.raw import RawHeldResources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from karpenter_core.api.container_requests import ContainerAmounts
    from karpenter_core.kube.wire.raw import (
        Amount,
        Amounts,
        RawContainer,
        RawContainerStatus,
        RawPodSpec,
        RawPodStatus,
        RawResources,
    )

    _PerContainer: TypeAlias = Callable[[RawContainer], Mapping[str, int]]

__all__ = [
    "amounts",
    "pod_limits",
    "pod_requests",
    "request_parts",
    "resized_containers",
    "resized_pod_level",
]


def pod_requests(
    spec: RawPodSpec,
    statuses: Mapping[str, RawContainerStatus] | None,
    *,
    pod_level: RawHeldResources | None,
    resize_infeasible: bool,
) -> dict[str, int]:
    """Return a pod's requests, `pods: 1` included.

    A limit without a request becomes the request, as the API server does for pods; for a
    DaemonSet's template the API server has not done that yet. `statuses` are those of `resized_containers`, and
    `pod_level` is that of `resized_pod_level`.
    """
    resized = statuses or {}

    def of_container(container: RawContainer) -> dict[str, int]:
        return _effective(
            _requests_of(container), resized.get(container.name), infeasible=resize_infeasible
        )

    total = sum_containers(_containers(spec, of_container, _requests_of))
    if spec.resources is not None:
        wanted = keep_pod_level(_with_defaults(spec.resources, total))
        effective = _effective(wanted, pod_level, infeasible=resize_infeasible)
        total |= {name: effective[name] for name in wanted if name in effective}
    for name, amount in amounts(spec.overhead).items():
        total[name] = total.get(name, 0) + amount
    total[PODS] = 1
    if max(total.values()) > LARGEST_AMOUNT:
        return {name: min(amount, LARGEST_AMOUNT) for name, amount in total.items()}
    return total


def request_parts(spec: RawPodSpec) -> PodRequestParts:
    """Return the summands of a pod's requests, as its spec has them."""
    stages = [ContainerStage.MAIN] * len(spec.containers or ()) + [
        ContainerStage.SIDECAR if one.restart_policy == "Always" else ContainerStage.START_UP
        for one in spec.init_containers or ()
    ]
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    resources = spec.resources
    return PodRequestParts(
        containers=tuple(
            ContainerRequests(name=one.name, stage=stage, requests=_requests_of(one))
            for one, stage in zip(containers, stages, strict=True)
        ),
        overhead=amounts(spec.overhead),
        pod_level_requests=amounts(resources.requests if resources else None),
        pod_level_limits=amounts(resources.limits if resources else None),
    )


def pod_limits(spec: RawPodSpec) -> dict[str, int]:
    """Return a pod's limits, `pods: 1` included; its status is not used."""

    def of_container(container: RawContainer) -> dict[str, int]:
        return amounts(container.resources.limits) if container.resources else {}

    total = sum_containers(_containers(spec, of_container, of_container))
    if spec.resources is not None:
        total |= keep_pod_level(amounts(spec.resources.limits))
    for name, amount in amounts(spec.overhead).items():
        if total.get(name):  # overhead widens a limit, it does not make one
            total[name] += amount
    total[PODS] = 1
    return total


def resized_containers(
    spec: RawPodSpec, status: RawPodStatus | None
) -> dict[str, RawContainerStatus] | None:
    """Return the container statuses that say something else than the spec, by name.

    A running pod reports the resources it holds; nearly always they are what it asked for. Only
    where they differ (a resize is under way) do they matter, and only then may two pods of one
    template differ.
    """
    if status is None:
        return None
    resized: dict[str, RawContainerStatus] | None = None
    pairs = (
        (status.container_statuses, spec.containers, False),
        (status.init_container_statuses, spec.init_containers, True),
    )
    for reported, containers, only_sidecars in pairs:
        for entry in reported or ():
            if entry.resources is None:
                continue
            for container in containers or ():
                if container.name != entry.name:
                    continue
                counts = not only_sidecars or container.restart_policy == "Always"
                if counts and _differs(entry, container.resources):
                    resized = {} if resized is None else resized
                    resized[entry.name] = entry
                break
    return resized


def resized_pod_level(spec: RawPodSpec, status: RawPodStatus | None) -> RawHeldResources | None:
    """Return the pod-level resources that a pod has, if its spec says something else."""
    if status is None or status.resources is None or spec.resources is None:
        return None
    held = RawHeldResources(
        resources=status.resources, allocated_resources=status.allocated_resources
    )
    return held if _differs(held, spec.resources) else None


def amounts(written: Amounts | None) -> dict[str, int]:
    """Read a ResourceList into fixed units."""
    return {name: _amount(name, value) for name, value in written.items()} if written else {}


@lru_cache(maxsize=16_384)
def _amount(name: str, value: Amount) -> int:
    try:
        return parse_amount(name, value)
    except ValueError as error:
        raise ValueError(f"resource {name}: {error}") from error


def _effective(
    wanted: dict[str, int], status: RawHeldResources | None, *, infeasible: bool
) -> dict[str, int]:
    """Return the requests that the scheduler counts while a resize is under way."""
    if status is None or status.resources is None:
        return wanted
    held = larger_amounts(amounts(status.resources.requests), amounts(status.allocated_resources))
    return held if infeasible else larger_amounts(wanted, held)


def _differs(status: RawHeldResources, resources: RawResources | None) -> bool:
    wanted = (resources.requests if resources else None) or {}
    held = (status.resources.requests if status.resources else None) or {}
    allocated = status.allocated_resources
    return held != wanted or bool(allocated and allocated != wanted)


def _requests_of(container: RawContainer) -> dict[str, int]:
    if container.resources is None:
        return {}
    return amounts(container.resources.limits) | amounts(container.resources.requests)


def _containers(
    spec: RawPodSpec,
    of_lasting: _PerContainer,
    of_passing: _PerContainer,
) -> Iterator[ContainerAmounts]:
    for container in spec.containers or ():
        yield ContainerStage.MAIN, of_lasting(container)
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            yield ContainerStage.SIDECAR, of_lasting(container)
        else:
            yield ContainerStage.START_UP, of_passing(container)


def _with_defaults(pod_level: RawResources, from_containers: Mapping[str, int]) -> dict[str, int]:
    """Let a pod-level limit stand in for a request that no container makes either."""
    limits = amounts(pod_level.limits)
    missing = {name: amount for name, amount in limits.items() if name not in from_containers}
    return missing | amounts(pod_level.requests)
