"""Compares the instances of NodeClaims with their NodeClass.

What is not known is not drift: an instance that the cloud does not show yet has none, and a NodeClass
that has not resolved what there is to compare with is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from karpenter_core.api.labels import CAPACITY_TYPE, NODE_POOL, RESERVED
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import DriftFinding
from karpenter_core.provider.kit.instances.described import Described, ManagedInstance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.contract import DriftOutcome
    from karpenter_core.provider.kit.instances.cluster_instances import FoundInstances

__all__ = [
    "InstanceFinder",
    "detect_drift",
    "has_left_reservation",
    "require_described",
    "require_resolved",
]


class InstanceFinder(Protocol[Described]):
    """Finds instances (`ClusterInstances`)."""

    def instance_id(self, provider_id: str) -> str:
        """Return the id of an instance of this cloud; raise CloudProviderError for another text."""
        ...

    def find(self, instance_ids: Iterable[str]) -> FoundInstances[Described]:
        """Look instances up by one reading."""
        ...


def detect_drift(
    node_claims: Sequence[NodeClaim],
    instances: InstanceFinder[Described],
    compare: Callable[[NodeClaim, Described], str | None],
) -> list[DriftOutcome]:
    """Return for each claim, in their order, a finding, an error, or None.

    `compare` returns the first reason for drift, in CamelCase, or None; it raises CloudProviderError
    if it cannot tell. A claim without a NodePool never drifts.

    Raises:
        CloudProviderError: the instances cannot be read.
    """
    ids: dict[str, str] = {}
    outcomes: dict[str, DriftOutcome] = {}
    for claim in node_claims:
        if NODE_POOL not in claim.metadata.labels:
            continue
        said = claim.status.provider_id
        try:
            ids[claim.name] = instances.instance_id(said)
        except CloudProviderError:
            outcomes[claim.name] = CloudProviderError(
                f'NodeClaim "{claim.name}": status.providerID is '
                + (f'"{said}"' if said else "empty")
            )
    found = instances.find(ids.values())
    for claim in node_claims:
        name = ids.get(claim.name, "")
        if not name or name in found.hidden:
            continue
        if name not in found.present:
            outcomes[claim.name] = found.absence_error(name)
            continue
        try:
            reason = compare(claim, found.present[name])
        except CloudProviderError as error:
            outcomes[claim.name] = error
        else:
            outcomes[claim.name] = None if reason is None else DriftFinding(reason=reason)
    return [outcomes.get(claim.name) for claim in node_claims]


def require_resolved(node_class: str, **fields: Collection[object]) -> None:
    """Check that status fields, given by their JSON names, are not empty.

    Raises:
        CloudProviderError: one is; `node_class` is kind and name, for its message.
    """
    for name, values in fields.items():
        if not values:
            raise CloudProviderError(f"{node_class}: status.{name} is empty")


def require_described(instance: ManagedInstance, **facts: object) -> None:
    """Check that the cloud describes what is to be compared; every instance has it.

    Raises:
        CloudProviderError: a part of the description is missing.
    """
    for name, fact in facts.items():
        if not fact:
            raise CloudProviderError(f"instance {instance.id} is described without its {name}")


def has_left_reservation(
    claim: NodeClaim, instance: ManagedInstance, reservation_ids: Collection[str]
) -> bool:
    """Whether a reserved instance uses none of these reservations.

    An instance whose reservation has ended is described as on-demand, and has not drifted for that.
    """
    is_reserved = claim.metadata.labels.get(CAPACITY_TYPE) == RESERVED == instance.capacity_type
    return is_reserved and instance.reservation_id not in reservation_ids
