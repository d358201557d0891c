"""Model of the kubelet settings that users can configure."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import Model
from karpenter_core.api.cel import CEL
from karpenter_core.api.facets import Facets

__all__ = ["EVICTION_SIGNALS", "RESERVABLE", "KubeletConfiguration"]

RESERVABLE: Final = ("cpu", "memory", "ephemeral-storage", "pid")
"""Resources that can be reserved for the system."""
EVICTION_SIGNALS: Final = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
"""Eviction signals."""

_NUMBER: Final = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_QUANTITY: Final = rf"{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?"
_AMOUNT: Final = Facets(pattern=rf"^(\+|-)?{_QUANTITY}$")
_THRESHOLD: Final = Facets(
    pattern=rf"^(([0-9]{{1,2}}(\.[0-9]{{1,2}})?|100(\.0{{1,2}})?)%|(\+|-)?{_QUANTITY})$"
)
_PERIOD: Final = Facets(pattern=r"^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$")
_COUNT: Final = Facets(format="int32", minimum=0)
_PERCENT: Final = Facets(format="int32", minimum=0, maximum=100)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _keys_among(names: tuple[str, ...]) -> CEL:
    return CEL(f"self.all(k, k in [{_listed(names)}])", f"keys are among {', '.join(names)}")


def _matching(one: str, other: str) -> CEL:
    return CEL(
        f"!has(self.{one}) || self.{one}.all(k, has(self.{other}) && k in self.{other})",
        f"each key of {one} needs one in {other}",
    )


_NOT_NEGATIVE: Final = CEL(
    "self.all(k, !self[k].startsWith('-'))", "what is reserved may not be negative"
)
_Reserved = Annotated[
    dict[str, Annotated[str, _AMOUNT]],
    Facets(max_properties=len(RESERVABLE)),
    _keys_among(RESERVABLE),
    _NOT_NEGATIVE,
]
_Thresholds = Annotated[
    dict[str, Annotated[str, _THRESHOLD]],
    Facets(max_properties=len(EVICTION_SIGNALS)),
    _keys_among(EVICTION_SIGNALS),
]
_Periods = Annotated[
    dict[str, Annotated[str, _PERIOD]],
    Facets(max_properties=len(EVICTION_SIGNALS)),
    _keys_among(EVICTION_SIGNALS),
]


class KubeletConfiguration(Model):
    """Settings of the kubelet; ACK's settings hold for fields that are left out."""

    cel: ClassVar = (
        CEL(
            "!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) || "
            "self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent",
            "imageGCHighThresholdPercent must be above imageGCLowThresholdPercent",
        ),
        _matching("evictionSoft", "evictionSoftGracePeriod"),
        _matching("evictionSoftGracePeriod", "evictionSoft"),
    )

    cluster_dns: Annotated[tuple[str, ...], Field(alias="clusterDNS")] = ()
    """Addresses of the cluster's name servers."""
    max_pods: Annotated[int | None, _COUNT] = None
    """Maximum number of pods on a node."""
    pods_per_core: Annotated[int | None, _COUNT] = None
    """Maximum number of pods per core of the node, limited by maxPods."""
    system_reserved: _Reserved = Field(default_factory=dict)
    """Resources that the node reserves for the system."""
    kube_reserved: _Reserved = Field(default_factory=dict)
    """Resources that the node reserves for Kubernetes."""
    eviction_hard: _Thresholds = Field(default_factory=dict)
    """Thresholds of immediate eviction, by signal: an amount, or a share such as 5%."""
    eviction_soft: _Thresholds = Field(default_factory=dict)
    """Thresholds of eviction after a grace period, by signal: an amount, or a share such as 5%."""
    eviction_soft_grace_period: _Periods = Field(default_factory=dict)
    """Grace periods of evictionSoft, by signal."""
    eviction_max_pod_grace_period: Annotated[int | None, Facets(format="int32")] = None
    """Maximum number of seconds that pods get to terminate in an eviction by evictionSoft."""
    image_gc_high_threshold_percent: Annotated[
        int | None, _PERCENT, Field(alias="imageGCHighThresholdPercent")
    ] = None
    """Disk usage in percent at which the removal of unused images starts."""
    image_gc_low_threshold_percent: Annotated[
        int | None, _PERCENT, Field(alias="imageGCLowThresholdPercent")
    ] = None
    """Disk usage in percent at which the removal of unused images ends."""
    cpu_cfs_quota: Annotated[bool | None, Field(alias="cpuCFSQuota")] = None
    """Whether limits of CPU are enforced."""

    def as_set(self) -> dict[str, object]:
        """Return what the user has set, under the kubelet's own names."""
        dumped = self.model_dump(mode="json", exclude_defaults=True)
        return dict(sorted(dumped.items()))
