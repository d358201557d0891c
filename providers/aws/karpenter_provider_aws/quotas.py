"""Finds the vCPU quota class of an instance type.

EC2 has a quota (Service Quotas, "Amazon EC2") for each class, and for each of on-demand and spot.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

__all__ = ["quota_class"]

_FAMILY: Final = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d*)")
_SHARED: Final = {"gr": "g", "vt": "g"}
"""Classes of several names: "All G and VT Spot Instance Requests"."""
_OWN: Final = frozenset({"dl", "f", "g", "hpc", "inf", "p", "trn", "u", "x"})
_STANDARD: Final = "standard"
"""A, C, D, H, I, M, R, T and Z: "All Standard Spot Instance Requests"."""
_NEWER_P: Final = 5
"""From this generation on, P has quotas apart from that of P2, P3 and P4."""


@cache
def quota_class(instance_type: str) -> str:
    """Return the class of types that share a quota with this one."""
    match = _FAMILY.match(instance_type)
    if match is None:
        return _STANDARD
    letters = match["letters"]
    letters = _SHARED.get(letters, letters)
    if letters == "p" and int(match["generation"] or 0) >= _NEWER_P:
        return f"p{match['generation']}"
    return letters if letters in _OWN else _STANDARD
