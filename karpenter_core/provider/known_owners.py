"""Whose instances are that were launched together, by what their tags say and beyond that.

Tags say of a group which claims it was made for, and an order that anybody can repeat deals one to the
other. When an instance of the group vanishes the order is another one, so what has been written down
goes before it: NodeClaims that name their instance, and what this process has launched itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.recent_launches import ClaimRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.recent_launches import RecentLaunches

__all__ = ["GroupMember", "KnownOwners", "deal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """What the tags of an instance say: the claims that its group was made for, and its own."""

    id: str
    claims: tuple[ClaimRef, ...]
    own: str
    """The name of its own claim; empty while no tag tells."""


def deal(
    members: Iterable[GroupMember], known: Mapping[str, ClaimRef] | None = None
) -> dict[str, ClaimRef]:
    """Return whose each instance of one group is, by instance id.

    What is known beyond the tags (`known`, by instance id, here or not) counts first: a claim has no
    other instance than that. Then comes what an instance's own tag says. The others, sorted by id,
    are dealt to the claims that are left, sorted by UID; an instance beyond the last claim is nobody's.
    For the same instances everybody deals alike.
    """
    known = known or {}
    settled = {claim.uid for claim in known.values() if claim.uid}
    dealt: dict[str, ClaimRef] = {}
    waiting: list[str] = []
    claims: dict[str, ClaimRef] = {}
    for member in sorted(members, key=lambda member: member.id):
        claims |= {claim.uid: claim for claim in member.claims if claim.uid}
        if member.id in known:
            dealt[member.id] = known[member.id]
        elif member.own:
            named = next((claim for claim in member.claims if claim.name == member.own), None)
            if named is None or named.uid not in settled:
                dealt[member.id] = named or ClaimRef(name=member.own, uid="")
        else:
            waiting.append(member.id)
    taken = settled | {claim.uid for claim in dealt.values()}
    left = [claims[uid] for uid in sorted(claims) if uid not in taken]
    dealt.update(zip(waiting, left, strict=False))
    return {key: dealt[key] for key in sorted(dealt)}


@final
class KnownOwners:
    """Tells owners by instance id.

    To be called from threads that may wait for the core: those of hooks.
    """

    def __init__(
        self,
        instance_id_of: Callable[[str], str],
        *,
        recent: RecentLaunches,
        read_claims: Callable[[], Mapping[str, NodeClaim]],
    ) -> None:
        """`instance_id_of` reads a provider id, and gives "" for one of somebody else.

        `read_claims` is `ProviderContext.read_claims`.
        """
        self._instance_id_of: Final = instance_id_of
        self._recent: Final = recent
        self._read_claims: Final = read_claims

    def __call__(self) -> Mapping[str, ClaimRef]:
        """Return whose instances are, as far as it is known; never a call of the cloud."""
        owners = dict(self._recent.owners())
        for claim in self._read_claims().values():
            instance_id = self._instance_id_of(claim.status.provider_id)
            if instance_id:
                owners[instance_id] = ClaimRef(name=claim.name, uid=claim.uid)
        return owners
