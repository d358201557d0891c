"""Sums the resource requests of a pod as the Kubernetes scheduler does.

KEP-753 (sidecars), KEP-2837 (pod-level resources), KEP-1287 (in-place resize), RuntimeClass
overhead. Amounts are integers in fixed units when they leave this module.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CPU, MEMORY, PODS
from karpenter_core.api.quantities import LARGEST_AMOUNT, parse_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

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

__all__ = ["amounts", "pod_limits", "pod_requests", "resized_containers"]

_HUGE_PAGES: Final = "hugepages-"


def pod_requests(
    spec: RawPodSpec,
    statuses: Mapping[str, RawContainerStatus] | None = None,
    *,
    resize_infeasible: bool,
) -> dict[str, int]:
    """Return a pod's requests, `pods: 1` included.

    A limit without a request becomes the request, as the API server does for pods; for a
    DaemonSet's template nobody has done that yet. `statuses` are those of `resized_containers`.
    """
    resized = statuses or {}

    def of_container(container: RawContainer) -> dict[str, int]:
        container_requests = _requests_of(container)
        status = resized.get(container.name)
        if status is None or status.resources is None:
            return container_requests
        held = _maximum(amounts(status.resources.requests), amounts(status.allocated_resources))
        return held if resize_infeasible else _maximum(container_requests, held)

    total = _over_containers(spec, of_container, _requests_of)
    if spec.resources is not None:
        total |= _pod_level(_with_defaults(spec.resources, total))
    for name, amount in amounts(spec.overhead).items():
        total[name] = total.get(name, 0) + amount
    total[PODS] = 1
    if max(total.values()) > LARGEST_AMOUNT:
        return {name: min(amount, LARGEST_AMOUNT) for name, amount in total.items()}
    return total


def pod_limits(spec: RawPodSpec) -> dict[str, int]:
    """Return a pod's limits, `pods: 1` included; its status is not used."""

    def of_container(container: RawContainer) -> dict[str, int]:
        return amounts(container.resources.limits) if container.resources else {}

    total = _over_containers(spec, of_container, of_container)
    if spec.resources is not None:
        total |= _pod_level(amounts(spec.resources.limits))
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
                if counts and _differs(entry, container):
                    resized = {} if resized is None else resized
                    resized[entry.name] = entry
                break
    return resized


def amounts(written: Amounts | None) -> dict[str, int]:
    """Read a ResourceList into fixed units."""
    return {name: _amount(name, value) for name, value in written.items()} if written else {}


@lru_cache(maxsize=16_384)
def _amount(name: str, value: Amount) -> int:
    try:
        return parse_amount(name, value)
    except ValueError as error:
        raise ValueError(f"resource {name}: {error}") from error


def _differs(status: RawContainerStatus, container: RawContainer) -> bool:
    container_requests = (container.resources.requests if container.resources else None) or {}
    held = (status.resources.requests if status.resources else None) or {}
    allocated = status.allocated_resources
    return held != container_requests or bool(allocated and allocated != container_requests)


def _requests_of(container: RawContainer) -> dict[str, int]:
    if container.resources is None:
        return {}
    return amounts(container.resources.limits) | amounts(container.resources.requests)


def _over_containers(
    spec: RawPodSpec,
    of_lasting: _PerContainer,
    of_passing: _PerContainer,
) -> dict[str, int]:
    """Sum the containers that run together, and take the maximum over the start-up.

    Init containers run one after the other; each restartable one stays and is added to all that
    come after it.
    """
    total = _sum(of_lasting(container) for container in spec.containers or ())
    running: dict[str, int] = {}
    start_up: dict[str, int] = {}
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            share = of_lasting(container)
            running = _sum((running, share))
            total = _sum((total, share))
            moment = running
        else:
            moment = _sum((running, of_passing(container)))
        start_up = _maximum(start_up, moment)
    return _maximum(total, start_up)


def _with_defaults(pod_level: RawResources, from_containers: Mapping[str, int]) -> dict[str, int]:
    """Let a pod-level limit stand in for a request that no container makes either."""
    limits = amounts(pod_level.limits)
    missing = {name: amount for name, amount in limits.items() if name not in from_containers}
    return missing | amounts(pod_level.requests)


def _pod_level(written: Mapping[str, int]) -> dict[str, int]:
    """Keep the resources that pod-level resources may replace."""
    return {
        name: amount
        for name, amount in written.items()
        if name in {CPU, MEMORY} or name.startswith(_HUGE_PAGES)
    }


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _maximum(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    result = dict(left)
    for name, amount in right.items():
        if amount > result.get(name, amount - 1):
            result[name] = amount
    return result
