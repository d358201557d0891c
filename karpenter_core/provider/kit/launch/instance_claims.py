"""Finds the NodeClaims that instances belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from karpenter_core.provider.kit.launch.cloud import DescribedInstance, LaunchCall
from karpenter_core.provider.kit.recent_launches import ClaimRef

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from karpenter_core.provider.kit.claim_tags import ClaimTags
    from karpenter_core.provider.kit.instance_owners import InstanceOwners

__all__ = ["InstanceClaims", "SingleClaims", "TaggedCall", "TaggedClaims", "TaggedInstance"]

Described_contra = TypeVar("Described_contra", bound=DescribedInstance, contravariant=True)
Call_contra = TypeVar("Call_contra", bound=LaunchCall, contravariant=True)


class TaggedInstance(DescribedInstance, Protocol):
    """An instance with tags."""

    @property
    def tags(self) -> Mapping[str, str]:
        """Its tags."""
        ...


class TaggedCall(LaunchCall, Protocol):
    """A call that tags its instances."""

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of its instances."""
        ...


class InstanceClaims(Protocol[Described_contra, Call_contra]):
    """Tells which claims instances belong to; callable from any thread."""

    def owners(self, instances: Sequence[Described_contra]) -> Mapping[str, ClaimRef]:
        """Return the claim of each instance of a listing, by instance id."""
        ...

    def claims_of_call(self, instance: Described_contra) -> tuple[Hashable, Sequence[ClaimRef]]:
        """Return what identifies the call that launched an instance, and that call's claims."""
        ...

    def known_owners(self) -> Mapping[str, ClaimRef]:
        """Return claims of instances that are known beside the listing, by instance id.

        It is read before a call is repeated: some of the call's claims may have instances by now.
        """
        ...

    def assign(
        self, call: Call_contra, instance_ids: Sequence[str], known: Mapping[str, ClaimRef]
    ) -> Mapping[str, ClaimRef]:
        """Return the claim of each instance that a call has launched, by instance id.

        `known` is what `known_owners` returned before a repetition; empty for a first attempt.
        """
        ...


@final
class TaggedClaims:
    """Claims of instances whose call wrote all its claims on each of them (`ClaimTags`)."""

    def __init__(self, tags: ClaimTags, known_owners: InstanceOwners) -> None:
        self._tags: Final = tags
        self._known_owners: Final = known_owners

    def owners(self, instances: Sequence[TaggedInstance]) -> Mapping[str, ClaimRef]:
        """Return the claim of each instance of a listing, by instance id."""
        tags = {instance.id: instance.tags for instance in instances}
        return self._tags.owners_of(tags, self._known_owners())

    def claims_of_call(self, instance: TaggedInstance) -> tuple[Hashable, Sequence[ClaimRef]]:
        """Return what identifies the call that launched an instance, and that call's claims."""
        tags = instance.tags
        return self._tags.call_of(instance.id, tags), self._tags.claims_of(tags)

    def known_owners(self) -> Mapping[str, ClaimRef]:
        """Return the claims of instances that NodeClaims and recent launches name."""
        return self._known_owners()

    def assign(
        self, call: TaggedCall, instance_ids: Sequence[str], known: Mapping[str, ClaimRef]
    ) -> Mapping[str, ClaimRef]:
        """Return the claim of each instance that a call has launched, by instance id.

        Any other process that reads the tags comes to the same result.
        """
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

    def known_owners(self) -> Mapping[str, ClaimRef]:
        """Return nothing: each instance says itself whose it is."""
        return {}

    def assign(
        self, call: LaunchCall, instance_ids: Sequence[str], known: Mapping[str, ClaimRef]
    ) -> Mapping[str, ClaimRef]:
        """Return the call's claim for its instance."""
        del known
        claims = (
            ClaimRef(name=request.node_claim.name, uid=token)
            for token, request in call.requests.items()
        )
        return dict(zip(instance_ids, claims, strict=False))
