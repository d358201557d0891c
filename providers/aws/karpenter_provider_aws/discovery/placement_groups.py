"""Finds the placement group that a NodeClass selects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import DescribePlacementGroupsRequestTypeDef

    from karpenter_core.clock import Clock
    from karpenter_provider_aws.api.nodeclass import PlacementGroupSelector
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["DescribedPlacementGroup", "PlacementGroupReader", "placement_group_request"]

FIELD: Final = "spec.placementGroupSelector"
TTL: Final = timedelta(minutes=1)
LAST_GOOD_TTL: Final = timedelta(hours=24)

# Asked for by id or name outside of filters, EC2 refuses what does not exist.
_UNKNOWN: Final = frozenset(
    {
        "InvalidPlacementGroup.Unknown",
        "InvalidPlacementGroupId.Unknown",
        "InvalidPlacementGroupId.Malformed",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPlacementGroup:
    """A placement group as EC2 describes it."""

    id: str
    name: str
    strategy: str
    """`cluster`, `partition` or `spread`."""
    partitions: int
    """0 unless the strategy is `partition`."""
    spread_level: str
    """`rack` or `host`, of a group with the strategy `spread`."""


def placement_group_request(
    selector: PlacementGroupSelector,
) -> DescribePlacementGroupsRequestTypeDef:
    """Return the call that finds the group."""
    request: DescribePlacementGroupsRequestTypeDef = {
        "Filters": [{"Name": "state", "Values": ["available"]}]
    }
    if selector.id:
        request["GroupIds"] = [selector.id]
    else:
        request["GroupNames"] = [selector.name]
    return request


@final
class PlacementGroupReader:
    """Reads placement groups; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock) -> None:
        self._clients: Final = clients
        # A result is kept as a tuple, so that "there is none" is kept as well.
        self._cache: Final[TtlCache[str, tuple[DescribedPlacementGroup, ...]]]
        self._cache = TtlCache(clock, TTL)
        self._last_good: Final[TtlCache[str, DescribedPlacementGroup]]
        self._last_good = TtlCache(clock, LAST_GOOD_TTL)

    def find(self, selector: PlacementGroupSelector | None) -> DescribedPlacementGroup | None:
        """Return the group that is selected; None when there is none, or none is selected.

        Raises:
            CloudProviderError: EC2 refused or did not answer; `last_good` may know the group.
        """
        if selector is None:
            return None
        key = _key(selector)
        placement_group = self._cache.get(key)
        if placement_group is None:
            placement_group = self._describe(selector)
            self._cache.put(key, placement_group)
            for group in placement_group:
                self._last_good.put(key, group)
        return placement_group[0] if placement_group else None

    def last_good(self, selector: PlacementGroupSelector | None) -> DescribedPlacementGroup | None:
        """Return what was found last, for as long as a day, without asking."""
        return None if selector is None else self._last_good.get(_key(selector))

    def found_or_last(
        self, selector: PlacementGroupSelector | None
    ) -> DescribedPlacementGroup | None:
        """Return the group, or the last one that was found while EC2 cannot be asked.

        Raises:
            CloudProviderError: it cannot be asked, and nothing was found in the last day.
        """
        try:
            return self.find(selector)
        except CloudProviderError:
            last = self.last_good(selector)
            if last is None:
                raise
            return last

    def _describe(self, selector: PlacementGroupSelector) -> tuple[DescribedPlacementGroup, ...]:
        try:
            with core_errors_of("ec2:DescribePlacementGroups"):
                answer = self._clients.ec2.describe_placement_groups(
                    **placement_group_request(selector)
                )
        except CloudProviderError as error:
            failure = refusal_behind(error)
            if failure is not None and failure.code in _UNKNOWN:
                return ()
            raise
        groups = (
            DescribedPlacementGroup(
                id=item.get("GroupId", ""),
                name=item.get("GroupName", ""),
                strategy=item.get("Strategy", ""),
                partitions=item.get("PartitionCount", 0),
                spread_level=item.get("SpreadLevel", ""),
            )
            for item in answer["PlacementGroups"]
        )
        return tuple(sorted(groups, key=lambda group: group.id))[:1]


def _key(selector: PlacementGroupSelector) -> str:
    return f"id/{selector.id}" if selector.id else f"name/{selector.name}"
