"""Finds a NodeClass's vSwitches, and chooses one per zone for a launch.

A launch asks for `zonal_vswitches`, passes the hold that it gets to `note_launched` once the cloud
has answered (or to `restore`, when there was no answer or no instance), and reports a vSwitch in
which ECS found no free address to `note_exhausted`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.node_class.discovery import (
    DiscoveryReader,
    DiscoveryResult,
    QueryTerm,
)
from karpenter_core.provider.kit.subnet_addresses import (
    AddressHold,
    SubnetAddresses,
    least_addresses_by_zone,
)
from karpenter_provider_alibabacloud.api_answers import text_of
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of
from karpenter_provider_alibabacloud.discovery.cluster import Cni
from karpenter_provider_alibabacloud.discovery.queries import (
    DiscoveryQuery,
    described,
    tag_parameters,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass, VSwitchTerm
    from karpenter_provider_alibabacloud.api_answers import ApiAnswer
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = [
    "DescribedVSwitch",
    "VSwitchReader",
    "ZonalVSwitch",
    "least_addresses",
    "order_vswitches",
    "vswitch_queries",
]

FIELD: Final = "spec.vSwitchSelectorTerms"
PAGE_SIZE: Final = 50
"""The most that DescribeVSwitches takes."""
TTL: Final = timedelta(minutes=1)
COUNT_TTL: Final = timedelta(minutes=5)
"""Longest validity of a count of free addresses."""
AVAILABLE: Final = "Available"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedVSwitch:
    """A vSwitch as VPC describes it."""

    id: str
    zone: str
    vpc_id: str
    free_addresses: int


@dataclass(frozen=True, slots=True)
class ZonalVSwitch:
    """A vSwitch to launch into."""

    id: str
    zone: str


def vswitch_queries(terms: Iterable[VSwitchTerm]) -> tuple[DiscoveryQuery, ...]:
    """Return one query for each term."""
    queries: list[DiscoveryQuery] = []
    for index, term in enumerate(terms):
        term_text = described(
            (("id", term.id), ("name", term.name), ("tags", term.tags), ("zoneId", term.zone_id))
        )
        parameters: dict[str, object] = {
            "Tag": tag_parameters(term.tags),
            "VSwitchId": term.id,
            "VSwitchName": term.name,
            "ZoneId": term.zone_id,
        }
        given = tuple(sorted((name, value) for name, value in parameters.items() if value))
        if given:
            queries.append(
                DiscoveryQuery(given, (QueryTerm(f"{FIELD}[{index}] {term_text}", term.id),))
            )
    return tuple(queries)


def order_vswitches(vswitches: Iterable[DescribedVSwitch]) -> tuple[DescribedVSwitch, ...]:
    """Return each vSwitch once, those with most free addresses first, then by id."""
    unique = {vswitch.id: vswitch for vswitch in vswitches}
    return tuple(sorted(unique.values(), key=lambda v: (-v.free_addresses, v.id)))


def least_addresses(
    instance_types: Iterable[InstanceType], capacity_type: str, cni: Cni
) -> dict[str, int]:
    """Return by zone the least number of addresses that an available type takes.

    With Terway each pod has an address of the vSwitch, so the smallest instance counts; otherwise a
    node takes one.
    """
    pods_have_addresses = cni in {Cni.TERWAY_ENIIP, Cni.TERWAY_ENI}
    return least_addresses_by_zone(
        instance_types,
        capacity_type,
        lambda each: max(1, each.capacity.get("pods", 0)) if pods_have_addresses else 1,
    )


@final
class VSwitchReader:
    """Reads vSwitches and keeps count of their addresses; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        observe: Callable[[Sequence[DescribedVSwitch]], None] = lambda _found: None,
    ) -> None:
        """`observe` gets what was read (`AlibabaCloudMetrics.observe_vswitches`)."""
        self._clients: Final = clients
        self._observe: Final = observe
        self._book: Final = SubnetAddresses(clock, COUNT_TTL)
        self._reader: Final = DiscoveryReader(
            clock,
            TTL,
            describe=self._describe,
            keys=lambda vswitch: (vswitch.id,),
            order=order_vswitches,
            caches_nothing=False,
            observe=self._note_read,
        )

    def find(self, terms: Sequence[VSwitchTerm]) -> DiscoveryResult[DescribedVSwitch]:
        """Return the vSwitches that the terms mean and that can be used.

        That there are none is not kept: it is looked at again sooner than what was found.

        Raises:
            CloudProviderError: VPC refused or did not answer (`discovery.call_errors`).
        """
        return self._reader.find(vswitch_queries(terms))

    def zonal_vswitches(
        self, node_class: ECSNodeClass, *, addresses_each: Mapping[str, int], instances: int
    ) -> AddressHold[ZonalVSwitch]:
        """Choose for each zone of the NodeClass's status the vSwitch for a launch, and keep addresses.

        It is the one with most free addresses, launches under way counted; of equals the first of
        the status. A vSwitch with too few for one instance is passed over, and a zone that has no
        other is left out. `addresses_each` is of `least_addresses`.

        Where launches under way leave no zone, what is kept for them counts as there: they keep
        addresses in all zones and take those of some, and ECS says when a vSwitch is full.
        """
        listed = [ZonalVSwitch(v.id, v.zone_id) for v in node_class.status.v_switches]
        hold = self._book.hold(
            listed, addresses_each=addresses_each, instances=instances, skips_short=True
        )
        if hold.subnets:
            return hold
        return self._book.hold(
            listed,
            addresses_each=addresses_each,
            instances=instances,
            skips_short=True,
            ignores_under_way=True,
        )

    def is_short(self, vswitch_id: str, addresses: int) -> bool:
        """Whether a vSwitch is known to have fewer free addresses, launches under way apart."""
        return self._book.is_short(vswitch_id, addresses)

    def note_launched(self, hold: AddressHold[ZonalVSwitch], launched: Mapping[str, int]) -> None:
        """Give back the addresses that a launch did not take.

        `launched` counts the instances that came of it, by vSwitch id.
        """
        self._book.release(hold, launched)

    def restore(self, hold: AddressHold[ZonalVSwitch]) -> None:
        """Give back all addresses of a launch that brought no instance."""
        self._book.release(hold, {})

    def note_exhausted(self, vswitch_id: str) -> None:
        """Record that no free address was found in a vSwitch."""
        self._book.record_exhausted(vswitch_id)

    def expected_addresses(self, vswitch_id: str) -> int:
        """Return how many addresses are left to new launches."""
        return self._book.expected(vswitch_id)

    def _note_read(self, found: Sequence[DescribedVSwitch]) -> None:
        self._book.record({vswitch.id: vswitch.free_addresses for vswitch in found})
        self._observe(found)

    def _describe(self, query: DiscoveryQuery) -> list[DescribedVSwitch]:
        with core_errors_of():
            pages = self._clients.vpc.pages(
                "DescribeVSwitches",
                {"RegionId": self._clients.region, "PageSize": PAGE_SIZE, **query.to_api()},
                items="VSwitches.VSwitch",
            )
            return [_read(item) for item in pages if item.get("Status") == AVAILABLE]


def _read(item: ApiAnswer) -> DescribedVSwitch:
    return DescribedVSwitch(
        id=text_of(item, "VSwitchId"),
        zone=text_of(item, "ZoneId"),
        vpc_id=text_of(item, "VpcId"),
        free_addresses=item.get("AvailableIpAddressCount") or 0,
    )
