"""Chooses the GPU driver that the first boot of a node installs.

Versions are those of the driver images that AKS publishes for its node images (Azure/AgentBaker).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["GpuDriver", "gpu_driver"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDriver:
    """A driver of NVIDIA."""

    type: str
    """`cuda`, `cuda-lts`, `grid` or `grid-v20`."""
    version: str
    image_suffix: str
    """Date of the driver image, the end of its tag."""
    needs_fabric_manager: bool = False
    """Whether the GPUs are connected by NVSwitch, which a service of its own starts."""

    @property
    def is_grid(self) -> bool:
        """Whether it is a driver for virtual GPUs and graphics."""
        return self.type.startswith("grid")


_DEFAULT: Final = ("cuda-lts", "580.159.04", "20260629214430")
_LEGACY_CUDA: Final = ("cuda", "470.82.01", "20260629214430")
_BY_SIZE: Final = (
    (re.compile(r"standard_nv\d+adm?s_a10_v5"), ("grid", "570.211.01", "20260522192315")),
    (re.compile(r"standard_nc\d+ads_a10_v4"), ("grid", "570.211.01", "20260522192315")),
    (
        re.compile(r"standard_nc\d+l?ds_xl_rtxpro6000bse_v6"),
        ("grid-v20", "595.58.03", "20260609172331"),
    ),
    (re.compile(r"standard_nc\d+r?(_promo)?"), _LEGACY_CUDA),
)
_WITH_NVSWITCH: Final = re.compile(r"standard_nd\d+[a-z]*(_[a-z0-9]+)*_v[45]")
"""HGX servers with A100, H100 and H200."""


def gpu_driver(size: str) -> GpuDriver:
    """Return the driver for a size with GPUs of NVIDIA."""
    name = size.lower()
    found = next((row for pattern, row in _BY_SIZE if pattern.fullmatch(name)), _DEFAULT)
    driver_type, version, suffix = found
    return GpuDriver(
        type=driver_type,
        version=version,
        image_suffix=suffix,
        needs_fabric_manager=_WITH_NVSWITCH.fullmatch(name) is not None,
    )
