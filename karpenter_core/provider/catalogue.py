"""Re-exports the types that a provider builds its catalogue from.

Providers import these names from here, because the core's own modules may move.
"""

from __future__ import annotations

from karpenter_core.api.prices import DEFAULT_CURRENCY, Price
from karpenter_core.scheduling.instance_types import InstanceType, Offering, Overhead
from karpenter_core.scheduling.offerings import (
    cheapest_offering,
    cheapest_price,
    compatible_offerings,
    offering_price,
    order_by_price,
    worst_launch_price,
)
from karpenter_core.scheduling.requirements import Requirement, Requirements

__all__ = [
    "DEFAULT_CURRENCY",
    "InstanceType",
    "Offering",
    "Overhead",
    "Price",
    "Requirement",
    "Requirements",
    "cheapest_offering",
    "cheapest_price",
    "compatible_offerings",
    "offering_price",
    "order_by_price",
    "worst_launch_price",
]
