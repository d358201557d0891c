"""Defines the array types of the solver, by unit, and widens arrays.

An alias names the unit and the number type of an array. The docstring of the attribute or function
says its shape, one word or letter for each dimension (`resources x nodes`); where a module uses
letters, the class or module says what they count.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Amounts",
    "Columns",
    "Counts",
    "FloatAmounts",
    "FloatCounts",
    "Floats",
    "Mask",
    "Numbers",
    "Prices",
    "TypeCounts",
    "UnitValues",
    "grown",
]

_Kind = TypeVar("_Kind", bound=np.generic)

Amounts: TypeAlias = NDArray[np.int64]
"""Amounts of resources, in the unit of their resource: milli-CPU, bytes, pieces."""
FloatAmounts: TypeAlias = NDArray[np.float64]
"""Amounts of resources for arithmetic with fractions; whole numbers unless scaled."""
Counts: TypeAlias = NDArray[np.int64]
"""Numbers of pods or nodes."""
FloatCounts: TypeAlias = NDArray[np.float64]
"""Numbers of pods or nodes, with fractions where a linear program gives them."""
TypeCounts: TypeAlias = NDArray[np.intp]
"""Numbers of instance types."""
Prices: TypeAlias = NDArray[np.float64]
"""Prices per hour in the currency of the problem; inf: not for sale."""
UnitValues: TypeAlias = NDArray[np.float64]
"""Prices per hour that one more unit, pod or node is worth."""
Floats: TypeAlias = NDArray[np.float64]
"""Numbers without a unit, or of mixed units: weights, shares, coefficients."""
Columns: TypeAlias = NDArray[np.intp]
"""Indices of columns, rows or whatever else an array is indexed by."""
Numbers: TypeAlias = NDArray[np.int64]
"""Numbers that name signatures, catalogue rows or slots; negative ones stand for none."""
Mask: TypeAlias = NDArray[np.bool_]


def grown(array: NDArray[_Kind], size: int, fill: int = 0) -> NDArray[_Kind]:
    """Return an array with as many columns as `size`, the new ones filled.

    What `np.pad` does, at a tenth of its time for the small arrays of a what-if.
    """
    larger = np.full((*array.shape[:-1], size), fill, dtype=array.dtype)
    larger[..., : array.shape[-1]] = array
    return larger
