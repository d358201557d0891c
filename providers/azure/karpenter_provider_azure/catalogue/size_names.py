"""Parses the names of VM sizes (`Standard_NC24ads_A100_v4`).

The grammar is Azure's naming convention for virtual machine sizes: a family letter, up to two letters of
the sub-family, the number of vCPUs, constrained vCPUs, feature letters, accelerator or markers, version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["SizeName", "read_size_name"]

_NAME: Final = re.compile(
    r"(?:Standard|Basic)_"
    r"(?P<family>[A-Z])(?P<subfamily>[A-Z]{0,2})(?P<cpus>\d+)(?:-(?P<early>\d+))?"
    # Some sizes of family M have the constrained vCPUs after the features.
    r"(?P<features>[a-zP]*)(?:-(?P<late>\d+))?"
    r"(?P<marks>(?:_[A-Za-z0-9]+)*?)"
    r"(?:_v(?P<version>\d+))?(?P<promo>_Promo)?"
)
_ACCELERATOR: Final = re.compile(r"[A-Z]+[0-9][A-Z0-9]*")
"""`A100`, `T4`, `RTXPRO6000BSE`; markers have no digits (`cc`, `xl`, `noIB`, `NDR`) or only digits."""

_ACCELERATOR_BY_SERIES: Final = {
    "NCs_v3": "V100",
    "NCrs_v3": "V100",
    "NDrs_v2": "V100",
    "NDasr_v4": "A100",
    "NDams_v4": "A100",
    "NVs_v3": "M60",
    "NVas_v4": "MI25",
}
"""Accelerators of the series whose names do not have one."""
_NO_VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeName:
    """The parts of a size's name; a missing part is empty."""

    family: str
    """One capital letter: `N`."""
    subfamily: str
    """`C`; two letters at most."""
    cpus: int
    """vCPUs that the name states."""
    constrained_cpus: int | None
    """The vCPUs left of them in a size with constrained vCPUs (`M8-2ms`)."""
    features: str
    """`ads`, as written."""
    accelerator: str
    """`A100`; also of series whose names leave it out."""
    version: str
    """Digits without `v`; `1` when the name has none."""
    series: str
    """`NCads_v4`: family, sub-family, features and version."""

    @property
    def is_constrained(self) -> bool:
        """Whether vCPUs are disabled."""
        return self.constrained_cpus is not None

    @property
    def is_confidential(self) -> bool:
        """Whether the size is for confidential computing (families DC and EC)."""
        return self.family in {"D", "E"} and self.subfamily.startswith("C")


def read_size_name(name: str) -> SizeName:
    """Parse the name of a size.

    Raises:
        ValueError: the name does not follow the convention.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        message = f'VM size "{name}": the name does not follow the naming convention'
        raise ValueError(message)
    version = match["version"] or ""
    features = match["features"]
    series = f"{match['family']}{match['subfamily']}{features}" + (
        f"_v{version}" if version else ""
    )
    accelerators = [mark for mark in match["marks"].split("_") if _ACCELERATOR.fullmatch(mark)]
    constrained = match["early"] or match["late"]
    return SizeName(
        family=match["family"],
        subfamily=match["subfamily"],
        cpus=int(match["cpus"]),
        constrained_cpus=None if constrained is None else int(constrained),
        features=features,
        accelerator=accelerators[-1] if accelerators else _ACCELERATOR_BY_SERIES.get(series, ""),
        version=version or _NO_VERSION,
        series=series,
    )
