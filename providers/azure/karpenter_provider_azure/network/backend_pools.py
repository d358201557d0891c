"""Finds the backend pools of the cluster's load balancers, which interfaces of nodes belong to."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.shared_answer import AnswerRevision, SharedAnswer
from karpenter_provider_azure.arm.reads import NETWORK_API_VERSION, properties_of
from karpenter_provider_azure.resource_ids import resource_group_path

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.clock import Clock
    from karpenter_provider_azure.arm.reads import ArmReads

    BackendPools: TypeAlias = AnswerRevision[tuple[str, ...]]

__all__ = ["BackendPoolReader", "backend_pool_ids", "refers_to_missing_pool"]

TTL: Final = timedelta(hours=2)
_LOAD_BALANCERS: Final = frozenset({"kubernetes", "kubernetes-internal"})
_IPV6_POOLS: Final = frozenset({"aksoutboundbackendpool-ipv6", "kubernetes-ipv6"})
_MISSING_REFERENCE: Final = "InvalidResourceReference"


def backend_pool_ids(load_balancers: Iterable[JsonMapping]) -> tuple[str, ...]:
    """Return the ids of the pools that interfaces of nodes belong to, sorted.

    Only the load balancers of AKS count. Pools for IPv6, and pools whose members are addresses and
    not interfaces, are left out.
    """
    return tuple(
        sorted(
            str(pool["id"])
            for balancer in load_balancers
            if str(balancer.get("name") or "").lower() in _LOAD_BALANCERS
            for pool in _items(balancer, "backendAddressPools")
            if str(pool.get("name") or "").lower() not in _IPV6_POOLS
            and not any(
                properties_of(address).get("ipAddress")
                for address in _items(pool, "loadBalancerBackendAddresses")
            )
        )
    )


def _items(resource: JsonMapping, name: str) -> list[JsonMapping]:
    return cast("list[JsonMapping]", properties_of(resource).get(name) or [])


def refers_to_missing_pool(codes: Iterable[str], text: str, pools: Iterable[str]) -> bool:
    """Whether Azure refused an interface because one of its pools does not exist any more.

    `codes` and `text` are those of the error (`ArmError.codes`, `ArmError.text`), `pools` the ids in
    the request. The pools are then read again, and the interface is requested once more.
    """
    said = text.lower()
    return _MISSING_REFERENCE in codes and any(pool.lower() in said for pool in pools)


@final
class BackendPoolReader:
    """Finds the backend pools; callable from any thread."""

    def __init__(self, arm: ArmReads, clock: Clock, *, node_resource_group: str) -> None:
        self._arm: Final = arm
        self._resource_group: Final = node_resource_group
        self._pools: Final = SharedAnswer(clock, TTL, self._listed)

    def current(self) -> BackendPools:
        """Return the ids of the pools (`.value`); they are read again after two hours.

        Raises:
            CloudProviderError: they were never read.
        """
        return self._pools.current()

    def newer_than(self, seen: BackendPools) -> BackendPools:
        """Return pools that were read after `seen`; callers at the same time share one read.

        Raises:
            CloudProviderError: Azure refused or did not answer.
        """
        return self._pools.newer_than(seen)

    def _listed(self) -> tuple[str, ...]:
        group = resource_group_path(self._arm.subscription_id, self._resource_group)
        return backend_pool_ids(
            self._arm.list_all(
                f"{group}/providers/Microsoft.Network/loadBalancers",
                api_version=NETWORK_API_VERSION,
                action="loadBalancers:list",
            )
        )
