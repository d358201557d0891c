"""Makes options of scheduling passes from settings, also for commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.scheduling.problem import (
    MinValuesPolicy,
    PackingPolicy,
    PreferencePolicy,
    SolveOptions,
)

if TYPE_CHECKING:
    from karpenter_core.operator.settings import Settings

__all__ = ["solve_options"]


def solve_options(settings: Settings, *, max_instance_types: int) -> SolveOptions:
    """Return how passes are computed."""
    return SolveOptions(
        packing=PackingPolicy(settings.packing),
        preferences=PreferencePolicy(settings.preference_policy),
        min_values=MinValuesPolicy(settings.min_values_policy),
        reserved_capacity=settings.feature_gates.reserved_capacity,
        max_instance_types=max_instance_types,
        currency=settings.currency,
        exchange_rates=settings.exchange_rates,
        node_fee_per_hour=settings.node_fee,
    )
