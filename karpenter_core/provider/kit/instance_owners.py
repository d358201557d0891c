"""Finds the claims of instances whose tags do not name them.

Tags say of a group which claims it was made for, and an order deals one to the other. When an instance
of the group vanishes the order is another one, so what has been written down goes before it: NodeClaims
that name their instance, and what this process has launched itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.recent_launches import ClaimRef

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.kit.recent_launches import RecentLaunches

__all__ = ["InstanceOwners"]


@final
class InstanceOwners:
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
