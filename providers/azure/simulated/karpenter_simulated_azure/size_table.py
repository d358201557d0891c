"""VM sizes for the families of Azure, with hourly prices in US dollars.

Numbers are those of Azure's size pages and price list for one region, rounded where they differ between
regions; sizes with a note are changed on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SIZE_TABLE", "SizeRow"]

_GIB: Final = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """One VM size."""

    name: str
    family: str
    """The quota family."""
    cpus: int
    memory_gib: float
    price_per_hour: float
    arm: bool = False
    generations: str = "V1,V2"
    """`HyperVGenerations`."""
    cache_gib: int = 0
    temporary_gib: int = 0
    nvme_mib: int = 0
    placements: str = ""
    """`SupportedEphemeralOSDiskPlacements`; empty where the API does not tell."""
    gpus: int = 0
    premium: bool = True
    accelerated: bool = True
    encryption: bool = True
    spot: bool = True
    trusted_launch: bool = True
    zonal: bool = True
    ultra_zones: tuple[str, ...] = ()
    restricted_zones: tuple[str, ...] = ()
    restricted_location: bool = False

    @property
    def cached_bytes(self) -> int:
        """`CachedDiskBytes`."""
        return self.cache_gib * _GIB


_ALL: Final = ("1", "2", "3")


def _row(
    name: str, family: str, cpus: int, memory_gib: float, price: float, **rest: object
) -> SizeRow:
    return SizeRow(
        name=f"Standard_{name}",
        family=family,
        cpus=cpus,
        memory_gib=memory_gib,
        price_per_hour=price,
        **rest,  # pyright: ignore[reportArgumentType] - checked by the dataclass's users, the rows below
    )


_GEN1: Final = {"generations": "V1", "trusted_launch": False}
_OLD: Final = {**_GEN1, "premium": False, "accelerated": False, "encryption": False}
_GEN2: Final = {"generations": "V2"}
_ARM: Final = {"arm": True, "generations": "V2"}
_BURSTABLE: Final = {"accelerated": False, "spot": False}

SIZE_TABLE: Final = (
    # Burstable: B1ms has one vCPU, B20ms is the largest with a cache disk of 30 GiB.
    _row("B1ms", "standardBSFamily", 1, 2, 0.0207, temporary_gib=4, cache_gib=4, **_BURSTABLE),
    _row("B2s", "standardBSFamily", 2, 4, 0.0416, temporary_gib=8, cache_gib=8, **_BURSTABLE),
    _row("B2ms", "standardBSFamily", 2, 8, 0.0832, temporary_gib=16, cache_gib=16, **_BURSTABLE),
    _row("B4ms", "standardBSFamily", 4, 16, 0.166, temporary_gib=32, cache_gib=30, **_BURSTABLE),
    _row("B20ms", "standardBSFamily", 20, 80, 0.832, temporary_gib=160, cache_gib=30, spot=False),
    _row("B2as_v2", "standardBasv2Family", 2, 8, 0.0752, spot=False),
    _row("B2pls_v2", "standardBplsv2Family", 2, 4, 0.0336, spot=False, **_ARM),
    # Old sizes: generation 1 alone, no premium disks; A2 has 3.5 GiB.
    _row("A2", "standardA0_A7Family", 2, 3.5, 0.12, temporary_gib=135, **_OLD, zonal=False),
    _row("A2_v2", "standardAv2Family", 2, 4, 0.091, temporary_gib=20, **_OLD),
    _row("F1s", "standardFSFamily", 1, 2, 0.0497, temporary_gib=4, cache_gib=12),
    _row("DS3", "standardDSFamily", 4, 14, 0.308, temporary_gib=28, cache_gib=172, zonal=False, **_GEN1),
    _row("DS3_v2", "standardDSv2Family", 4, 14, 0.293, temporary_gib=28, cache_gib=172),
    # D: the quota families of the acceptance cases are standardDSv5Family and standardDSv3Family.
    _row("D2_v3", "standardDv3Family", 2, 8, 0.096, temporary_gib=50, **_OLD),
    _row("D2s_v3", "standardDSv3Family", 2, 8, 0.096, temporary_gib=16, cache_gib=50, ultra_zones=_ALL),
    _row("D4s_v3", "standardDSv3Family", 4, 16, 0.192, temporary_gib=32, cache_gib=100, ultra_zones=_ALL),
    _row("D8s_v3", "standardDSv3Family", 8, 32, 0.384, temporary_gib=64, cache_gib=200, ultra_zones=_ALL),
    _row("D16s_v3", "standardDSv3Family", 16, 64, 0.768, temporary_gib=128, cache_gib=400, ultra_zones=_ALL),
    _row("D64s_v3", "standardDSv3Family", 64, 256, 3.072, temporary_gib=512, cache_gib=1600, ultra_zones=_ALL),
    _row("D2s_v4", "standardDSv4Family", 2, 8, 0.096, restricted_location=True),
    _row("D2s_v5", "standardDSv5Family", 2, 8, 0.096, ultra_zones=("1", "2")),
    _row("D4s_v5", "standardDSv5Family", 4, 16, 0.192, ultra_zones=("1", "2")),
    _row("D8s_v5", "standardDSv5Family", 8, 32, 0.384, ultra_zones=("1", "2")),
    _row("D16s_v5", "standardDSv5Family", 16, 64, 0.768, ultra_zones=("1", "2")),
    _row("D32s_v5", "standardDSv5Family", 32, 128, 1.536, ultra_zones=("1", "2")),
    _row("D48s_v5", "standardDSv5Family", 48, 192, 2.304, ultra_zones=("1", "2")),
    _row("D2ds_v5", "standardDDSv5Family", 2, 8, 0.113, temporary_gib=75, cache_gib=50),
    _row("D4ds_v5", "standardDDSv5Family", 4, 16, 0.226, temporary_gib=150, cache_gib=100),
    _row("D8ds_v5", "standardDDSv5Family", 8, 32, 0.452, temporary_gib=300, cache_gib=200),
    _row("D4as_v5", "standardDASv5Family", 4, 16, 0.172),
    _row("D8ads_v5", "standardDADSv5Family", 8, 32, 0.412, temporary_gib=300, cache_gib=200),
    _row("D4ps_v5", "standardDPSv5Family", 4, 16, 0.154, **_ARM),
    _row("D4pds_v5", "standardDPDSv5Family", 4, 16, 0.181, temporary_gib=150, cache_gib=100, **_ARM),
    _row("D16plds_v5", "standardDPLDSv5Family", 16, 32, 0.63, temporary_gib=600, cache_gib=400, **_ARM),
    _row("D2as_v6", "standardDav6Family", 2, 8, 0.0908, **_GEN2),
    _row("D4as_v6", "standardDav6Family", 4, 16, 0.182, **_GEN2),
    _row("D4s_v6", "standardDSv6Family", 4, 16, 0.202, **_GEN2),
    _row("D4ds_v6", "standardDDSv6Family", 4, 16, 0.237, nvme_mib=225280, placements="NvmeDisk", **_GEN2),
    _row("D128ds_v6", "standardDDSv6Family", 128, 512, 7.59, nvme_mib=7208960, placements="NvmeDisk", **_GEN2),
    _row("D4pls_v6", "standardDplsv6Family", 4, 8, 0.136, **_ARM),
    _row("D4pds_v6", "standardDpdsv6Family", 4, 16, 0.183, nvme_mib=225280, placements="NvmeDisk", **_ARM),
    _row("D4s_v99", "standardDSv99Family", 4, 16, 0.05, **_GEN2),  # newer than every list of sizes
    # F, E and M: more CPU, more memory; E8s_v5 is restricted in one zone, E64i_v3 is isolated.
    _row("F2s_v2", "standardFSv2Family", 2, 4, 0.0846, temporary_gib=16, cache_gib=32),
    _row("F4s_v2", "standardFSv2Family", 4, 8, 0.169, temporary_gib=32, cache_gib=64),
    _row("F8s_v2", "standardFSv2Family", 8, 16, 0.338, temporary_gib=64, cache_gib=128),
    _row("F16s_v2", "standardFSv2Family", 16, 32, 0.677, temporary_gib=128, cache_gib=256),
    _row("F4as_v6", "standardFasv6Family", 4, 16, 0.196, **_GEN2),
    _row("E2s_v3", "standardESv3Family", 2, 16, 0.126, temporary_gib=32, cache_gib=50),
    _row("E64i_v3", "standardEIv3Family", 64, 432, 4.032, temporary_gib=1600, **_OLD),
    _row("E4s_v5", "standardESv5Family", 4, 32, 0.252),
    _row("E8s_v5", "standardESv5Family", 8, 64, 0.504, restricted_zones=("2",)),
    _row("E8ds_v5", "standardEDSv5Family", 8, 64, 0.576, temporary_gib=300, cache_gib=200),
    _row("E4as_v5", "standardEASv5Family", 4, 32, 0.226),
    _row("E4ps_v5", "standardEPSv5Family", 4, 32, 0.202, **_ARM),
    _row("E4ads_v6", "standardEadv6Family", 4, 32, 0.274, nvme_mib=225280, placements="NvmeDisk", **_GEN2),
    _row("M8ms", "standardMSFamily", 8, 218.75, 1.54, temporary_gib=256, cache_gib=793),
    _row("M8-2ms", "standardMSFamily", 8, 218.75, 1.54, temporary_gib=256, cache_gib=793),
    _row("M416s_8_v2", "standardMSv2Family", 416, 7600, 70.0, temporary_gib=4096, generations="V2", trusted_launch=False, spot=False),
    # L: local NVMe disks that are no place for an OS disk.
    _row("L8s_v3", "standardLSv3Family", 8, 64, 0.696, temporary_gib=80, nvme_mib=1831055, placements="ResourceDisk"),
    _row("L8as_v3", "standardLASv3Family", 8, 64, 0.624, temporary_gib=80, nvme_mib=1831055, placements="ResourceDisk"),
    # GPUs of NVIDIA and AMD.
    _row("NC6s_v3", "standardNCSv3Family", 6, 112, 3.06, temporary_gib=736, cache_gib=100, gpus=1, accelerated=False, trusted_launch=False),
    _row("NC4as_T4_v3", "Standard NCASv3_T4 Family", 4, 28, 0.526, temporary_gib=176, cache_gib=32, gpus=1),
    _row("NC24ads_A100_v4", "StandardNCADSA100v4Family", 24, 220, 3.673, temporary_gib=64, cache_gib=256, gpus=1, **_GEN2),
    _row("NV6ads_A10_v5", "StandardNVADSA10v5Family", 6, 55, 0.454, temporary_gib=180, cache_gib=50, gpus=1),
    _row("NV36ads_A10_v5", "StandardNVADSA10v5Family", 36, 440, 3.2, temporary_gib=1440, cache_gib=300, gpus=1),
    _row("ND96isr_H100_v5", "standardNDSH100v5Family", 96, 1900, 98.32, temporary_gib=1000, cache_gib=2600, gpus=8, zonal=False, **_GEN2),
    _row("ND96isr_MI300X_v5", "standardNDISRMI300Xv5Family", 96, 1850, 48.0, temporary_gib=1000, cache_gib=2600, gpus=8, zonal=False, **_GEN2),
    _row("NV4ads_V710_v5", "standardNVadsV710v5Family", 4, 28, 0.402, temporary_gib=150, gpus=1, **_GEN2),
    # Confidential sizes.
    _row("DC8s_v3", "standardDCSv3Family", 8, 64, 0.768, encryption=False, **_GEN2),
    _row("EC4as_v5", "standardECASv5Family", 4, 32, 0.252, **_GEN2),
)  # fmt: skip
