"""Holds offerings of the catalogue, and requests and outcomes of launches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.records import Resources
    from karpenter_core.errors import InsufficientCapacityError
    from karpenter_core.scheduling.instance_types import InstanceType, Offering

__all__ = ["CatalogueOffering", "LaunchOutcome", "LaunchRequest", "LaunchedInstance"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CatalogueOffering:
    """One offering of the catalogue, for the hooks that change prices and risks."""

    provider: str
    instance_type: InstanceType
    offering: Offering


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchRequest:
    """One instance to launch. `instance_types` is filtered and sorted by price, cheapest first.

    `token` is the claim's UID, for use as the cloud's idempotency token.
    """

    node_claim: NodeClaim
    node_class: NodeClass
    instance_types: tuple[InstanceType, ...]

    @property
    def token(self) -> str:
        """The cloud's idempotency token."""
        return self.node_claim.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedInstance:
    """An instance that was launched now, or earlier for the same token."""

    provider_id: str
    instance_type: str
    zone: str
    capacity_type: str
    capacity: Resources
    allocatable: Resources
    image_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    shortages: tuple[InsufficientCapacityError, ...] = ()
    """Shortages that the launch met before it succeeded; their offerings become unavailable at once."""
    existed: bool = field(default=False, compare=False)
    """Whether an earlier launch for the same token made the instance: its NodeClass may have changed since.
    Outcomes of one instance are equal in any case."""


LaunchOutcome: TypeAlias = LaunchedInstance | CloudProviderError
