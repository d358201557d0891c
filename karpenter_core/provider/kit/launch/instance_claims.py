"""Finds the NodeClaims that instances belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from karpenter_core.provider.kit.launch.cloud import DescribedInstance
from karpenter_core.provider.kit.recent_launches import ClaimRef

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from karpenter_core.provider.kit.claim_tags import ClaimTags
    from karpenter_core.provider.kit.instance_owners import InstanceOwners
    from karpenter_core.provider.kit.launch.cloud import LaunchCall

__all__ = ["InstanceClaims", "SingleClaims", "TaggedClaims"]

Described_contra = TypeVar("Described_contra", bound=DescribedInstance, contravariant=True)


class InstanceClaims(Protocol[Described_contra]):
    """Tells which claims instances belong to; callable from any thread."""

    def owners(self, instances: Sequence[Described_contra]) -> Mapping[str, ClaimRef]:
        """Return the claim of each instance of a listing, by instance id."""
        ...

    def claims_of_call(self, instance: Described_contra) -> tuple[Hashable, Sequence[ClaimRef]]:
        """Return what identifies the call that launched an instance, and that call's claims."""
        ...

    def assign(
        self, call: LaunchCall, instance_ids: Sequence[str], *, is_repeated: bool
    ) -> Mapping[str, ClaimRef]:
        """Return the claim of each instance that a call has launched, by instance id."""
        ...


@final
class TaggedClaims:
    """Claims of instances whose call wrote all its claims on each of them (`ClaimTags`)."""

    def __init__(self, tags: ClaimTags, known_owners: InstanceOwners) -> None:
        self._tags: Final = tags
        self._known_owners: Final = known_owners

    def owners(self, instances: Sequence[DescribedInstance]) -> Mapping[str, ClaimRef]:
        """Return the claim of each instance of a listing, by instance id."""
        tags = {instance.id: instance.tags for instance in instances}
        return self._tags.owners_of(tags, self._known_owners())

    def claims_of_call(self, instance: DescribedInstance) -> tuple[Hashable, Sequence[ClaimRef]]:
        """Return what identifies the call that launched an instance, and that call's claims."""
        tags = instance.tags
        return self._tags.call_of(instance.id, tags), self._tags.claims_of(tags)

    def assign(
        self, call: LaunchCall, instance_ids: Sequence[str], *, is_repeated: bool
    ) -> Mapping[str, ClaimRef]:
        """Return the claim of each instance that a call has launched, by instance id.

        Any other process that reads the tags comes to the same result.
        """
        known: Mapping[str, ClaimRef] = self._known_owners() if is_repeated else {}
        return self._tags.assign_owners(dict.fromkeys(instance_ids, call.tags), known)


@final
class SingleClaims(Generic[Described_contra]):
    """Claims of instances that are launched one by one, each by a call for its claim alone."""

    def __init__(self, claim_of: Callable[[Described_contra], ClaimRef | None]) -> None:
        """`claim_of` reads the claim from an instance's tags or name; None for no claim's."""
        self._claim_of: Final = claim_of

    def owners(self, instances: Sequence[Described_contra]) -> Mapping[str, ClaimRef]:
        """Return the claim of each instance of a listing, by instance id."""
        claims = {instance.id: self._claim_of(instance) for instance in instances}
        return {key: claim for key, claim in claims.items() if claim is not None}

    def claims_of_call(self, instance: Described_contra) -> tuple[Hashable, Sequence[ClaimRef]]:
        """Return the instance's own id and its claim: no other instance comes of its call."""
        claim = self._claim_of(instance)
        return instance.id, () if claim is None else (claim,)

    def assign(
        self, call: LaunchCall, instance_ids: Sequence[str], *, is_repeated: bool
    ) -> Mapping[str, ClaimRef]:
        """Return the call's claim for its instance."""
        del is_repeated
        (request,) = call.requests.values()
        claim = ClaimRef(name=request.node_claim.name, uid=request.token)
        return dict.fromkeys(instance_ids, claim)
