"""Finds the claims of instances whose tags do not name them.

The tags of a launch call name all its claims, and a fixed order assigns the instances to them. That
assignment changes when an instance of the call vanishes. So recorded assignments have precedence: the
provider IDs of NodeClaims, and the launches of this process.
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
    """Finds the claims of instances by instance id.

    Call it from threads that may wait for the core, such as those of hooks.
    """

    def __init__(
        self,
        instance_id_of: Callable[[str], str],
        *,
        recent: RecentLaunches,
        read_claims: Callable[[], Mapping[str, NodeClaim]],
    ) -> None:
        """`instance_id_of` returns the instance id of a provider ID, "" for other providers' ids.

        `read_claims` is `ProviderContext.read_claims`.
        """
        self._instance_id_of: Final = instance_id_of
        self._recent: Final = recent
        self._read_claims: Final = read_claims

    def __call__(self) -> Mapping[str, ClaimRef]:
        """Return the known claims by instance id, without a call to the cloud."""
        owners = dict(self._recent.owners())
        for claim in self._read_claims().values():
            instance_id = self._instance_id_of(claim.status.provider_id)
            if instance_id:
                owners[instance_id] = ClaimRef(name=claim.name, uid=claim.uid)
        return owners
