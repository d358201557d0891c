"""Computes a node's overhead: resources that its pods cannot use."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CPU, EPHEMERAL_STORAGE, MEMORY
from karpenter_core.provider.catalogue import Overhead
from karpenter_core.provider.kit.kubelet_reserved import (
    eviction_threshold_of_field,
    reserved_amounts,
    reserved_by_brackets,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.records import Resources

__all__ = ["overhead_of"]

MIB: Final = 2**20
_FIELD: Final = "spec.kubelet"
GIB: Final = 2**30

_CPU_BRACKETS: Final = ((1000, 0.06), (2000, 0.01), (4000, 0.005), (inf, 0.0025))
"""Milli-cores and what the kubelet and its runtime take of them; Bottlerocket's own rule."""
_MEMORY_MIB_PER_POD: Final = 11
_MEMORY_MIB_BASE: Final = 255
_STORAGE_BYTES: Final = GIB

# Signals of evictionHard, the resource each guards, and its default threshold
_EVICTION: Final = (
    ("memory.available", MEMORY, "100Mi"),
    ("nodefs.available", EPHEMERAL_STORAGE, "10%"),
)


def overhead_of(
    capacity: Resources,
    *,
    pods_reserved_for: int,
    kube_reserved: Mapping[str, str],
    system_reserved: Mapping[str, str],
    eviction_hard: Mapping[str, str],
) -> Overhead:
    """Return the three parts of a node's overhead.

    The user's quantities stand in place of single defaults. Soft thresholds keep nothing: pods may
    use what lies above the hard ones.

    Raises:
        ValueError: a quantity or threshold cannot be read; names field and value.
    """
    millicores = reserved_by_brackets(capacity[CPU], _CPU_BRACKETS, whole_slices=True)
    default = {
        CPU: int(millicores),
        MEMORY: (_MEMORY_MIB_PER_POD * pods_reserved_for + _MEMORY_MIB_BASE) * MIB,
        EPHEMERAL_STORAGE: _STORAGE_BYTES,
    }
    return Overhead(
        kube_reserved=default | reserved_amounts(kube_reserved, field=f"{_FIELD}.kubeReserved"),
        system_reserved=reserved_amounts(system_reserved, field=f"{_FIELD}.systemReserved"),
        eviction_threshold={
            resource: eviction_threshold_of_field(
                eviction_hard.get(signal, usual),
                capacity[resource],
                field=f"{_FIELD}.evictionHard.{signal}",
            )
            for signal, resource, usual in _EVICTION
        },
    )
