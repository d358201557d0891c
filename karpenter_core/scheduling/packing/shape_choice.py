"""Chooses the cheapest shape for a content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from karpenter_core.scheduling.arrays import Amounts, Columns, FloatAmounts, Prices

__all__ = ["cheapest_shapes"]


def cheapest_shapes(
    needed: Amounts | FloatAmounts, capacity: Amounts | FloatAmounts, price: Prices
) -> tuple[Prices, Columns]:
    """Return price and number of the cheapest of S shapes that holds each of C contents.

    `needed` is R x C, what the pods of each content ask for; `capacity` R x S. The price is inf where no
    shape holds the content.
    """
    fits = np.logical_and.reduce(needed[:, :, None] <= capacity[:, None, :])
    prices = np.where(fits, price, np.inf)
    shapes = prices.argmin(axis=1)
    return prices[np.arange(len(shapes)), shapes], shapes
