"""Finds a NodeClass's subnets, and chooses one per zone for a launch.

A launch asks for `zonal_subnets`, passes the hold that it gets to `note_launched` once the cloud
has answered (or to `restore`, when there was no answer or no instance), and reports a subnet in
which EC2 found no free address to `note_exhausted`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.node_class.discovery import (
    DiscoveryReader,
    DiscoveryResult,
    QueryTerm,
    tag_text,
)
from karpenter_core.provider.kit.subnet_addresses import (
    AddressHold,
    SubnetAddresses,
    least_addresses_by_zone,
)
from karpenter_provider_aws.discovery.call_errors import core_errors_of
from karpenter_provider_aws.discovery.queries import DescribeFilter, DiscoveryQuery, tag_filters
from karpenter_provider_aws.paging import ending_pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from types_boto3_ec2.type_defs import SubnetTypeDef

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass, Subnet, SubnetTerm
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["DescribedSubnet", "SubnetReader", "least_pods", "order_subnets", "subnet_queries"]

FIELD: Final = "spec.subnetSelectorTerms"
PAGE_SIZE: Final = 500
COUNT_TTL: Final = timedelta(minutes=5)
"""Longest validity of a count of free addresses; longer where subnets are read less often."""
COUNT_TTL_BEYOND_READING: Final = timedelta(minutes=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSubnet:
    """A subnet as EC2 describes it."""

    id: str
    zone: str
    zone_id: str
    free_addresses: int


def subnet_queries(terms: Iterable[SubnetTerm]) -> tuple[DiscoveryQuery, ...]:
    """Return one query for each term with tags, and one for all ids."""
    queries: list[DiscoveryQuery] = []
    named: list[QueryTerm] = []
    for index, term in enumerate(terms):
        where = f"{FIELD}[{index}]"
        if term.id:
            named.append(QueryTerm(f'{where}.id "{term.id}"', term.id))
        elif term.tags:
            part = QueryTerm(f"{where}.tags {tag_text(term.tags)}")
            queries.append(DiscoveryQuery(filters=tag_filters(term.tags), terms=(part,)))
    if named:
        ids = tuple(dict.fromkeys(part.pattern for part in named))
        queries.append(
            DiscoveryQuery(filters=(DescribeFilter("subnet-id", ids),), terms=tuple(named))
        )
    return tuple(queries)


def order_subnets(subnets: Iterable[DescribedSubnet]) -> tuple[DescribedSubnet, ...]:
    """Return each subnet once, those with most free addresses first, then by id."""
    unique = {subnet.id: subnet for subnet in subnets}
    return tuple(sorted(unique.values(), key=lambda s: (-s.free_addresses, s.id)))


def least_pods(instance_types: Iterable[InstanceType], capacity_type: str) -> dict[str, int]:
    """Return by zone the number of pods of the smallest available type: each has an address."""
    return least_addresses_by_zone(
        instance_types, capacity_type, lambda each: each.capacity.get("pods", 0)
    )


@final
class SubnetReader:
    """Reads subnets and keeps count of their addresses; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock, *, refresh_interval: timedelta) -> None:
        self._clients: Final = clients
        self._book: Final = SubnetAddresses(
            clock, max(COUNT_TTL, refresh_interval + COUNT_TTL_BEYOND_READING)
        )
        self._reader: Final = DiscoveryReader(
            clock,
            refresh_interval,
            describe=self._describe,
            keys=lambda subnet: (subnet.id,),
            order=order_subnets,
            observe=lambda found: self._book.record({s.id: s.free_addresses for s in found}),
        )

    def find(self, terms: Sequence[SubnetTerm]) -> DiscoveryResult[DescribedSubnet]:
        """Return the subnets that the terms mean.

        Raises:
            CloudProviderError: EC2 refused or did not answer (`discovery.call_errors`).
        """
        return self._reader.find(subnet_queries(terms))

    def zonal_subnets(
        self,
        node_class: EC2NodeClass,
        *,
        instance_types: Iterable[InstanceType],
        capacity_type: str,
        instances: int,
    ) -> AddressHold[Subnet]:
        """Choose for each zone of the NodeClass's status the subnet for a launch, and keep addresses.

        It is the one with most free addresses, launches under way counted; of equals the first of
        the status. `instance_types` are those that the launch may become.
        """
        return self._book.hold(
            node_class.status.subnets,
            addresses_each=least_pods(instance_types, capacity_type),
            instances=instances,
        )

    def note_launched(self, hold: AddressHold[Subnet], launched: Mapping[str, int]) -> None:
        """Give back the addresses that a launch did not take.

        `launched` counts the instances that came of it, by subnet id.
        """
        self._book.release(hold, launched)

    def restore(self, hold: AddressHold[Subnet]) -> None:
        """Give back all addresses of a launch that brought no instance."""
        self._book.release(hold, {})

    def note_exhausted(self, subnet_id: str) -> None:
        """Record that EC2 found no free address in a subnet."""
        self._book.record_exhausted(subnet_id)

    def expected_addresses(self, subnet_id: str) -> int:
        """Return how many addresses are left to new launches."""
        return self._book.expected(subnet_id)

    def _describe(self, query: DiscoveryQuery) -> list[DescribedSubnet]:
        with core_errors_of("ec2:DescribeSubnets"):
            pages = self._clients.ec2.get_paginator("describe_subnets").paginate(
                Filters=query.filters_to_api(), PaginationConfig={"PageSize": PAGE_SIZE}
            )
            return [_read(item) for page in ending_pages(pages) for item in page["Subnets"]]


def _read(item: SubnetTypeDef) -> DescribedSubnet:
    return DescribedSubnet(
        id=item.get("SubnetId", ""),
        zone=item.get("AvailabilityZone", ""),
        zone_id=item.get("AvailabilityZoneId", ""),
        free_addresses=item.get("AvailableIpAddressCount", 0),
    )
