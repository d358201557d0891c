"""Sizes of files in the spec: their pattern, and their value in MiB."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SIZE_PATTERN", "mebibytes"]

SIZE_PATTERN: Final = r"^\d+(E|P|T|G|M|K|Ei|Pi|Ti|Gi|Mi|Ki)$"
"""Digits and a suffix; unlike other quantities of Kubernetes, with a capital K."""

_MIB: Final = 2**20
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def mebibytes(size: str) -> int | None:
    """Return the size in MiB, rounded to the nearest: 50 for `50Mi`, 48 for `50M`.

    None for a text that the API server would refuse: it may be stored already.
    """
    match = re.fullmatch(r"([0-9]+)([KMGTPE])(i?)", size)
    if match is None:
        return None
    number, suffix, binary = match.groups()
    size_bytes = int(number) * (1024 if binary else 1000) ** _POWERS[suffix]
    return (size_bytes + _MIB // 2) // _MIB
