"""Finds the instance of a claim without provider ID in its provider's listing.

A process that ends between a launch and the write of the provider ID leaves a claim without one. If the
claim is deleted before another launch call, which would find the instance by its token, the instance
would remain until garbage collection, which takes many of them for a mistake. So the listing is checked
before such a claim is finished.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.contract import InstanceListing
    from karpenter_core.provider.host.facade import Providers

__all__ = ["InstanceLookup"]


@final
class InstanceLookup:
    """Finds instances by the UID of their claim; concurrent look-ups share a listing."""

    def __init__(self, providers: Providers) -> None:
        self._providers: Final = providers
        self._locks: Final[dict[str, asyncio.Lock]] = {}
        self._next: Final[dict[str, asyncio.Task[InstanceListing]]] = {}

    async def provider_id(self, claim: NodeClaim) -> str:
        """Return the id of the instance that was launched for a claim; empty if there is none.

        Raises:
            CloudProviderError: the provider could not list all its instances, or its listing is from
                a time before the claim was deleted.
        """
        name = self._providers.provider_of(claim.spec.node_class_ref)
        listing = await self._listed(name)
        found = next((item for item in listing.instances if item.token == claim.uid), None)
        if found is None and not listing.complete:
            raise CloudProviderError(
                f"NodeClaim {claim.name} may have an instance: {listing.problem}"
            )
        if found is None and listing.as_of is not None:
            deleted = claim.metadata.deletion_timestamp  # nothing is launched afterwards
            if deleted is None or listing.as_of <= deleted:
                raise CloudProviderError(
                    f"NodeClaim {claim.name} may have an instance: the listing shows the instances "
                    f"of {listing.as_of.isoformat()}"
                )
        return "" if found is None else found.provider_id

    async def _listed(self, provider: str) -> InstanceListing:
        """Return a listing that starts after this call; calls before its start share it."""
        if provider not in self._next:
            self._next[provider] = asyncio.create_task(
                self._list(provider), name=f"list the instances of {provider}"
            )
            self._next[provider].add_done_callback(_retrieve_error)
        return await asyncio.shield(self._next[provider])

    async def _list(self, provider: str) -> InstanceListing:
        try:
            async with self._locks.setdefault(provider, asyncio.Lock()):
                del self._next[provider]
                return await self._providers.list_instances(provider)
        finally:
            if self._next.get(provider) is asyncio.current_task():
                del self._next[provider]


def _retrieve_error(listing: asyncio.Task[InstanceListing]) -> None:
    """Mark the error of a listing as seen; all who waited for it may have been cancelled."""
    if not listing.cancelled():
        listing.exception()
