"""The kinds of array that the columnar state is made of."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Amounts", "Columns", "Floats", "Mask"]

Amounts: TypeAlias = NDArray[np.int64]
"""Quantities in the unit of their resource: milli-CPU, bytes, pieces."""
Columns: TypeAlias = NDArray[np.intp]
"""Numbers of columns, rows or whatever else an array is indexed by."""
Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
