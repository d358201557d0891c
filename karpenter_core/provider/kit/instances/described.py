"""Declares how a cloud describes its instances to the kit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.launch.cloud import DescribedInstance
from karpenter_core.provider.kit.launch.instance_claims import TaggedInstance

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.provider.kit.recent_launches import ClaimRef

__all__ = [
    "DescribedInstances",
    "InstanceReader",
    "ManagedInstance",
    "OwnerReader",
    "TaggedManagedInstance",
    "require_id_and_zone",
]


class ManagedInstance(DescribedInstance, Protocol):
    """An instance with all that the core asks of it."""

    @property
    def instance_type(self) -> str:
        """The name of its type."""
        ...

    @property
    def zone(self) -> str:
        """Its zone, as in the label of its node."""
        ...

    @property
    def capacity_type(self) -> str:
        """`on-demand`, `spot` or `reserved`."""
        ...

    @property
    def image_id(self) -> str:
        """The image that it was launched from."""
        ...

    @property
    def reservation_id(self) -> str:
        """The reservation whose capacity it uses; empty for none."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether the cloud describes it although it exists no more."""
        ...


class TaggedManagedInstance(ManagedInstance, TaggedInstance, Protocol):
    """An instance with tags, and all that the core asks of it."""


Described = TypeVar("Described", bound=ManagedInstance)
Described_contra = TypeVar("Described_contra", bound=ManagedInstance, contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedInstances(Generic[Described]):
    """The instances of a cluster, as far as they could be read."""

    instances: tuple[Described, ...]
    problem: str = ""
    """Reason why the listing is incomplete; empty when it is complete."""
    as_of: datetime | None = None
    """The time that a cached listing shows (`InstanceListing.as_of`); None: when it was read.

    The delay of new instances is no reason to set it: `shown_within` of `ClusterInstances` says it, and the
    launches of this process are remembered.
    """


def require_id_and_zone(instance: Described, *, action: str) -> Described:
    """Return an instance of an answer; without its name it could be kept, and never be ended.

    Raises:
        CloudProviderError: the answer does not say which instance it is; names the `action`.
    """
    if not (instance.id and instance.zone):
        raise CloudProviderError(
            f"{action}: the answer has an instance without id or zone "
            f'(id "{instance.id}", zone "{instance.zone}")'
        )
    return instance


class InstanceReader(Protocol[Described]):
    """Reads instances from a cloud; raises CloudProviderError if it refuses or does not answer."""

    def of_ids(self, ids: Iterable[str]) -> Mapping[str, Described]:
        """Return the instances with these ids; those that the cloud does not show are left out."""
        ...

    def of_cluster(self) -> DescribedInstances[Described]:
        """Return all instances of the cluster; raise only if none of them could be read."""
        ...

    def is_ours(self, instance: Described) -> bool:
        """Whether an instance was launched for a claim of this cluster."""
        ...

    def instance_id(self, provider_id: str) -> str:
        """Return the id of an instance of this cloud; raise CloudProviderError for another text."""
        ...

    def provider_id(self, instance: Described) -> str:
        """Return the name of an instance in Kubernetes."""
        ...


class OwnerReader(Protocol[Described_contra]):
    """Tells which claims instances belong to (`TaggedClaims`, `SingleClaims`)."""

    def owners(self, instances: Sequence[Described_contra]) -> Mapping[str, ClaimRef]:
        """Return the claim of each instance of a listing, by instance id."""
        ...

    def claims_of_call(self, instance: Described_contra) -> tuple[Hashable, Sequence[ClaimRef]]:
        """Return what identifies the call that launched an instance, and that call's claims."""
        ...

    def known_owners(self) -> Mapping[str, ClaimRef]:
        """Return claims of instances that are known without their tags, by instance id."""
        ...
