"""Holds the VM sizes with GPUs that AKS supports.

A size with GPUs that is not listed has no driver, or no tested one. The lists are those of AKS's node
images (Azure/AgentBaker, drivers by size) and of Karpenter's provider for Azure.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from karpenter_provider_azure.labels import AMD, NVIDIA, OS_SKU_AZURE_LINUX, OS_SKU_UBUNTU

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GpuSize", "gpu_size"]

_UBUNTU: Final = frozenset({OS_SKU_UBUNTU})
_BOTH: Final = frozenset({OS_SKU_UBUNTU, OS_SKU_AZURE_LINUX})

_NVIDIA_UBUNTU: Final = """
nc8ads_a10_v4 nc16ads_a10_v4 nc32ads_a10_v4
nv6ads_a10_v5 nv12ads_a10_v5 nv18ads_a10_v5 nv36ads_a10_v5 nv36adms_a10_v5 nv72ads_a10_v5
nc6 nc12 nc24 nc24r
nc6s_v2 nc12s_v2 nc24s_v2 nc24rs_v2
nd6s nd12s nd24s nd24rs
nv6 nv12 nv24 nv24r nv12s_v3 nv24s_v3 nv48s_v3
nd128isr_ndr_gb200_v6 nd128isr_gb300_v6
nc24lds_xl_rtxpro6000bse_v6 nc36ds_xl_rtxpro6000bse_v6 nc36lds_xl_rtxpro6000bse_v6
nc72ds_xl_rtxpro6000bse_v6 nc72lds_xl_rtxpro6000bse_v6 nc128ds_xl_rtxpro6000bse_v6
nc128lds_xl_rtxpro6000bse_v6 nc144ds_xl_rtxpro6000bse_v6 nc144lds_xl_rtxpro6000bse_v6
nc256ds_xl_rtxpro6000bse_v6 nc256lds_xl_rtxpro6000bse_v6 nc288ds_xl_rtxpro6000bse_v6
nc288lds_xl_rtxpro6000bse_v6 nc320ds_xl_rtxpro6000bse_v6 nc320lds_xl_rtxpro6000bse_v6
"""
_NVIDIA_BOTH: Final = """
nc24ads_a100_v4 nc48ads_a100_v4 nc96ads_a100_v4
nc4as_t4_v3 nc8as_t4_v3 nc16as_t4_v3 nc64as_t4_v3
nc40ads_h100_v5 nc80adis_h100_v5
nc6s_v3 nc12s_v3 nc24s_v3 nc24rs_v3
nd40rs_v2 nd40s_v3
nd96asr_v4 nd112asr_a100_v4 nd120asr_a100_v4
nd96amsr_a100_v4 nd112amsr_a100_v4 nd120amsr_a100_v4
nd96ams_v4 nd96ams_a100_v4 nd96ams_a100_flex_v4 nd96amsf_a100_v4 nd96amsrf_a100_v4
nd96isr_h100_v5 nd96is_h100_v5 nd96is_noib_h100_v5 nd96is_flex_h100_v5
nd96isf_h100_v5 nd96isrf_h100_v5
nd96isr_h200_v5 nd96is_h200_v5 nd96isf_h200_v5 nd96isrf_h200_v5
"""
_AMD_UBUNTU: Final = """
nv4ads_v710_v5 nv8ads_v710_v5 nv12ads_v710_v5 nv24ads_v710_v5 nv28adms_v710_v5
nd96isr_mi300x_v5 nd96is_mi300x_v5
"""


class GpuSize(NamedTuple):
    """The support of AKS for a size with GPUs."""

    manufacturer: str
    """`nvidia` or `amd`."""
    operating_systems: frozenset[str]
    """`Ubuntu`, `AzureLinux`."""

    @property
    def has_managed_driver(self) -> bool:
        """Whether AKS installs the driver."""
        return self.manufacturer == NVIDIA


def gpu_size(name: str) -> GpuSize | None:
    """Return the support for a size (`Standard_NC6s_v3`); None if it is not supported.

    A promotion (`_Promo`) is the size without that suffix.
    """
    return _gpu_sizes().get(name.lower().removeprefix("standard_").removesuffix("_promo"))


@cache
def _gpu_sizes() -> Mapping[str, GpuSize]:
    groups = (
        (_NVIDIA_UBUNTU, GpuSize(NVIDIA, _UBUNTU)),
        (_NVIDIA_BOTH, GpuSize(NVIDIA, _BOTH)),
        (_AMD_UBUNTU, GpuSize(AMD, _UBUNTU)),
    )
    return {name: support for names, support in groups for name in names.split()}
