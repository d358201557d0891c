"""Represents sets of catalogue rows as integers and as numpy masks.

A catalogue has hundreds of instance types and a pass asks thousands of times which of them remain;
one arbitrary-precision integer per set makes that a machine instruction per 64 types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.scheduling.arrays import Columns, Mask


__all__ = ["bits_of", "bits_of_mask", "mask_of", "rows_of"]


def bits_of(rows: Iterable[int]) -> int:
    """Return the set of these rows."""
    bits = 0
    for row in rows:
        bits |= 1 << row
    return bits


def bits_of_mask(mask: Mask) -> int:
    """Return the set of the rows that are true."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def mask_of(bits: int, size: int) -> Mask:
    """Return a set as a mask of `size` rows."""
    packed = np.frombuffer(bits.to_bytes((size + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=size, bitorder="little").astype(np.bool_)


def rows_of(bits: int, size: int) -> Columns:
    """Return the rows of a set, ascending."""
    return np.flatnonzero(mask_of(bits, size))
