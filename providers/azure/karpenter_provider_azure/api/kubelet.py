"""Model of the kubelet settings that users can configure."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import Model
from karpenter_core.api.cel import CEL
from karpenter_core.api.durations import parse_duration
from karpenter_core.api.facets import Facets
from karpenter_provider_azure.api.os_config import SIZE_PATTERN, mebibytes

__all__ = ["IMAGE_GC_HIGH", "IMAGE_GC_LOW", "KubeletConfiguration"]

IMAGE_GC_HIGH: Final = 85
IMAGE_GC_LOW: Final = 80
"""Defaults of AKS, in percent."""
_GC_DISTANCE: Final = IMAGE_GC_HIGH - IMAGE_GC_LOW
_FULL_PERCENT: Final = 100
_SYSCTL: Final = re.compile(
    r"kernel[./]sem\*?|(?:kernel[./](?:shm|msg)|fs[./]mqueue[./]|net[./])[a-z0-9._/-]*[a-z0-9*]"
)
"""A sysctl that the kubelet knows to be one of a pod alone, or the beginning of some."""
_USUAL_QUOTA_PERIOD: Final = timedelta(milliseconds=100)
_PERCENT: Final = Facets(format="int32", minimum=0, maximum=100)


class KubeletConfiguration(Model):
    """Settings of the kubelet.

    There are none for reserved resources, eviction and DNS: they follow from size and cluster.
    """

    cel: ClassVar = (
        CEL(
            "!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) || "
            "self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent",
            "imageGCHighThresholdPercent must be above imageGCLowThresholdPercent",
        ),
    )

    cpu_manager_policy: Annotated[str, Facets(enum=("none", "static"))] = "none"
    """Policy of the CPU manager; static gives containers of Guaranteed pods CPUs of their own."""
    cpu_cfs_quota: Annotated[bool, Field(alias="cpuCFSQuota")] = True
    """Whether limits of CPU are enforced."""
    cpu_cfs_quota_period: Annotated[
        str,
        Facets(max_length=32),
        CEL(
            "self.matches('^([0-9]+(\\\\.[0-9]+)?(ns|us|ms|s|m|h))+$') && "
            "duration(self) >= duration('1ms') && duration(self) <= duration('1s')",
            "cpuCFSQuotaPeriod must be from 1ms to 1s",
        ),
        Field(alias="cpuCFSQuotaPeriod"),
    ] = "100ms"
    """Period over which limits of CPU are enforced, from 1ms to 1s."""
    image_gc_high_threshold_percent: Annotated[
        int | None, _PERCENT, Field(alias="imageGCHighThresholdPercent")
    ] = None
    """Disk usage in percent at which the removal of unused images starts."""
    image_gc_low_threshold_percent: Annotated[
        int | None, _PERCENT, Field(alias="imageGCLowThresholdPercent")
    ] = None
    """Disk usage in percent at which the removal of unused images ends."""
    topology_manager_policy: Annotated[
        str, Facets(enum=("restricted", "best-effort", "none", "single-numa-node"))
    ] = "none"
    """Policy that aligns CPUs and devices of a pod to NUMA nodes."""
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    """Unsafe sysctls that pods may set, such as net.core.somaxconn or kernel.msg*."""
    container_log_max_size: Annotated[str, Facets(pattern=SIZE_PATTERN)] = "50Mi"
    """Size at which the log of a container is rotated, such as 50Mi."""
    container_log_max_files: Annotated[int, Facets(format="int32", minimum=2)] = 5
    """Maximum number of log files of a container."""
    pod_pids_limit: Annotated[int | None, Facets(format="int64")] = None
    """Maximum number of processes in a pod; unset means no limit."""
    fail_swap_on: bool | None = None
    """Whether the kubelet refuses to start on a node with swap."""

    @property
    def unusable_sysctls(self) -> tuple[str, ...]:
        """Sysctls with which no kubelet starts: they are not those of a pod alone."""
        return tuple(name for name in self.allowed_unsafe_sysctls if not _SYSCTL.fullmatch(name))

    @property
    def image_gc_thresholds(self) -> tuple[int, int] | None:
        """The high and the low threshold in percent; None if neither is set.

        One that is not set is the default, unless it contradicts the other. Two that contradict each
        other stay as they are: the API server refuses them, and may have another CRD.
        """
        high, low = self.image_gc_high_threshold_percent, self.image_gc_low_threshold_percent
        if high is not None:
            return high, min(IMAGE_GC_LOW, max(0, high - _GC_DISTANCE)) if low is None else low
        if low is not None:
            return max(IMAGE_GC_HIGH, min(_FULL_PERCENT, low + _GC_DISTANCE)), low
        return None

    @property
    def has_usual_quota_period(self) -> bool:
        """Whether limits of CPU are enforced over the period that every kubelet takes."""
        try:
            return parse_duration(self.cpu_cfs_quota_period) == _USUAL_QUOTA_PERIOD
        except ValueError:
            return False

    @property
    def container_log_max_mib(self) -> int | None:
        """The size at which a log is rotated, in MiB; None if it cannot be read."""
        return mebibytes(self.container_log_max_size)
