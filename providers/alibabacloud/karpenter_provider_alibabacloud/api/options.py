"""Models of the spot and metadata options in the spec."""

from __future__ import annotations

from typing import Annotated, Final

from karpenter_core.api.base import Model
from karpenter_core.api.cel import CEL
from karpenter_core.api.facets import Facets

__all__ = ["ALLOCATION_STRATEGIES", "CAPACITY_OPTIMIZED", "MetadataOptions", "SpotOptions"]

CAPACITY_OPTIMIZED: Final = "capacity-optimized"
ALLOCATION_STRATEGIES: Final = ("lowest-price", "diversified", CAPACITY_OPTIMIZED)
"""Strategies by which a provisioning group chooses types and zones."""


class SpotOptions(Model):
    """Options of spot instances."""

    price_limit: Annotated[
        float | None,
        Facets(maximum=100_000),
        CEL("double(self) > 0.0", "a price limit is above zero"),
        CEL(
            "double(self) * 1000.0 - double(int(double(self) * 1000.0 + 0.5)) < 0.000001 && "
            "double(int(double(self) * 1000.0 + 0.5)) - double(self) * 1000.0 < 0.000001",
            "a price limit has three decimals at most",
        ),
    ] = None
    """Maximum price per hour, in the currency of the account; unset, the market price is paid."""
    duration_hours: Annotated[int | None, Facets(format="int32", minimum=0, maximum=1)] = None
    """Hours in which ECS does not reclaim an instance: 1, or 0, which is often cheaper; unset means 1."""
    allocation_strategy: Annotated[str, Facets(enum=ALLOCATION_STRATEGIES)] = "lowest-price"
    """Strategy that chooses between instance types and zones."""
    interruption_behavior: Annotated[str, Facets(enum=("terminate",))] = "terminate"
    """Action on an instance that ECS reclaims; a stopped instance would never be deleted."""


class MetadataOptions(Model):
    """The instance metadata service; what is left out is as the account has it."""

    http_tokens: Annotated[str, Facets(enum=("optional", "required"))] = ""
    """Whether a token is required."""
    http_endpoint: Annotated[str, Facets(enum=("enabled", "disabled"))] = ""
    """Whether the service is enabled."""
    http_put_response_hop_limit: Annotated[
        int | None, Facets(format="int32", minimum=1, maximum=64)
    ] = None
    """Maximum number of hops of a response: with 1, pods in their own network get no token."""
