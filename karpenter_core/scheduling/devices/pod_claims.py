"""Resolves pods' ResourceClaims, and allocations at the start of a pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.devices.requests import DeviceRefusal, read_claim
from karpenter_core.scheduling.devices.usage import UsageLayer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.devices import AllocatedDevice, ResourceClaimView
    from karpenter_core.api.records import NodeSelectorTerm, PodView
    from karpenter_core.scheduling.devices.inventory import DeviceInventory
    from karpenter_core.scheduling.devices.pools import PublishedPools
    from karpenter_core.scheduling.devices.requests import ClaimRequests

__all__ = ["AllocatedClaim", "ClaimTable", "claim_keys"]

MAX_CONSUMERS: Final = 256
"""The most consumers of one claim (API constant ResourceClaimReservedForMaxSize)."""


def claim_keys(pod: PodView) -> tuple[str, ...] | DeviceRefusal:
    """Return the claims of a pod (`namespace/name`).

    A generated claim is named by the pod's status; one that the status says is not needed is left
    out. A refusal says which claim is not generated yet.
    """
    keys: list[str] = []
    for name in pod.shape.resource_claims:
        claim = pod.shape.resource_claim_names.get(name)
        if claim is None:
            if name not in pod.resource_claim_statuses:
                return DeviceRefusal(message=f'the resourceclaim of "{name}" is not generated yet')
            claim = pod.resource_claim_statuses[name]
            if not claim:
                continue
        keys.append(f"{pod.namespace}/{claim}")
    return tuple(dict.fromkeys(keys))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedClaim:
    """A claim that has its devices: every one of `terms` must select a pod's node.

    `column` is the planned or existing node that it is bound to, for devices of one node that has
    no published name yet.
    """

    key: str
    terms: tuple[tuple[NodeSelectorTerm, ...], ...]
    column: int | None = None
    consumers: int = 0
    """The pods that the claim is reserved for, and those that this pass has placed."""


@final
class ClaimTable:
    """The claims of a pass: those to allocate, and those that have their devices.

    `moving` are the UIDs of running pods that are placed anew. A claim that only such pods use
    gives its devices back and is allocated again.
    """

    def __init__(
        self, inventory: DeviceInventory, published: PublishedPools, moving: Iterable[str]
    ) -> None:
        self._inventory: Final = inventory
        self._moving: Final = frozenset(moving)
        self._requests: Final = dict[str, "ClaimRequests | DeviceRefusal"]()
        self._kinds: Final = dict[object, int]()
        self.allocated: Final = dict[str, AllocatedClaim]()
        """By key; grows while the pass allocates more."""
        self.layer: Final = UsageLayer()
        """Devices of the claims that were allocated when the pass began."""
        for key, claim in sorted(inventory.claims.items()):
            if claim.is_allocated and not self._is_released(claim):
                self.allocated[key] = AllocatedClaim(
                    key=key,
                    terms=(claim.node_terms,) if claim.node_terms else (),
                    consumers=len(claim.reserved_for),
                )
                self._use(claim, published)

    def _is_released(self, claim: ResourceClaimView) -> bool:
        return bool(claim.reserved_for) and all(
            consumer.is_pod and consumer.uid in self._moving for consumer in claim.reserved_for
        )

    def _use(self, claim: ResourceClaimView, published: PublishedPools) -> None:
        for one in claim.devices:
            if one.admin_access:
                continue
            device_id = (one.driver, one.pool, one.device)
            self.layer.take(
                device_id,
                published.device(*device_id),
                one.consumed,
                counts=device_id not in self.layer.users,
            )

    def kind_of(self, claims: Iterable[ClaimRequests]) -> int:
        """Return a number that is the same for claims that ask for the same."""
        key = tuple(
            (claim.requests, claim.constraints)
            for claim in (self._inventory.claims[one.claim] for one in claims)
        )
        return self._kinds.setdefault(key, len(self._kinds))

    def local_devices(self, node_name: str) -> list[AllocatedDevice]:
        """Return the devices of one node that claims had when the pass began."""
        return [
            one
            for key, claim in sorted(self._inventory.claims.items())
            if key in self.allocated and _is_bound_to(claim, node_name)
            for one in claim.devices
            if not one.admin_access
        ]

    def resolve(
        self, pod: PodView
    ) -> tuple[tuple[ClaimRequests, ...], tuple[AllocatedClaim, ...]] | DeviceRefusal:
        """Return the claims of a pod to allocate, and those that have devices already."""
        keys = claim_keys(pod)
        if isinstance(keys, DeviceRefusal):
            return keys
        open_claims: list[ClaimRequests] = []
        settled: list[AllocatedClaim] = []
        for key in keys:
            claim = self._inventory.claims.get(key)
            if claim is None:
                return DeviceRefusal(message=f'resourceclaim "{key}" not found')
            if claim.deletion_timestamp is not None and pod.uid not in self._moving:
                return DeviceRefusal(message=f'resourceclaim "{key}" is being deleted')
            allocated = self.allocated.get(key)
            if allocated is not None:
                if allocated.consumers >= MAX_CONSUMERS and not _is_reserved(claim, pod):
                    return DeviceRefusal(
                        message=f'resourceclaim "{key}" has {MAX_CONSUMERS} consumers already'
                    )
                settled.append(allocated)
                continue
            requests = self._requests.get(key)
            if requests is None:
                requests = self._requests[key] = read_claim(claim, self._inventory.classes)
            if isinstance(requests, DeviceRefusal):
                return requests
            open_claims.append(requests)
        return tuple(open_claims), tuple(settled)

    def add_consumer(self, key: str, pod: PodView) -> None:
        """Count a pod that was placed among those of an allocated claim, once."""
        if not _is_reserved(self._inventory.claims[key], pod):
            allocated = self.allocated[key]
            self.allocated[key] = replace(allocated, consumers=allocated.consumers + 1)


def _is_bound_to(claim: ResourceClaimView, node_name: str) -> bool:
    return claim.is_allocated and any(
        node_name in field.values for term in claim.node_terms for field in term.match_fields
    )


def _is_reserved(claim: ResourceClaimView, pod: PodView) -> bool:
    return any(consumer.uid == pod.uid for consumer in claim.reserved_for)
