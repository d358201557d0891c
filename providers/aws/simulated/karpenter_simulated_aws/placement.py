"""Placement groups: cluster, partition and spread."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.selection import check_tags, filter_items, tag_list, tags_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from types_boto3_ec2.type_defs import (
        CreatePlacementGroupRequestTypeDef,
        DeletePlacementGroupRequestTypeDef,
        DescribePlacementGroupsRequestTypeDef,
    )

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.instances import Instances, SimulatedInstance
    from karpenter_simulated_aws.selection import RequestFilter, TagSpecification

__all__ = ["PlacementGroup", "PlacementGroups"]

_SPREAD_LIMIT: Final = 7  # instances of a spread group in one zone
_DEFAULT_PARTITIONS: Final = 2


@dataclass(slots=True, kw_only=True)
class PlacementGroup:
    """A placement group."""

    id: str
    name: str
    strategy: str
    partitions: int
    state: str
    tags: dict[str, str]


@final
class PlacementGroups:
    """The placement groups of an account."""

    def __init__(self, account: Account, instances: Instances) -> None:
        self._account: Final = account
        self._instances: Final = instances
        self._groups: dict[str, PlacementGroup] = {}

    def add(
        self,
        name: str,
        *,
        strategy: str = "cluster",
        partitions: int = 0,
        tags: Mapping[str, str] | None = None,
    ) -> PlacementGroup:
        """Make a placement group."""
        group = PlacementGroup(
            id=self._account.ids.new("pg"),
            name=name,
            strategy=strategy,
            partitions=(partitions or _DEFAULT_PARTITIONS) if strategy == "partition" else 0,
            state="available",
            tags=dict(tags or {}),
        )
        self._groups[group.id] = group
        return group

    def clear(self) -> None:
        """Forget all placement groups."""
        self._groups.clear()

    def find(self, *, group_id: str = "", name: str = "") -> PlacementGroup:
        """Return a group by id or name; refuse when there is none."""
        for group in self._groups.values():
            if group.id == group_id or (not group_id and group.name == name):
                return group
        raise AwsError(
            "InvalidPlacementGroup.Unknown", f"The Placement Group '{group_id or name}' is unknown."
        )

    def capacity_left(self, group: PlacementGroup, zone: str) -> tuple[int | None, AwsError]:
        """Return how many more instances may be in a zone of the group, and what is said then.

        None stands for as many as there are.
        """
        members = self._members(group)
        if group.strategy == "spread":
            return _SPREAD_LIMIT - sum(each.zone == zone for each in members), AwsError(
                "InsufficientInstanceCapacity",
                "You've reached the limit of instances in this spread placement group. A spread"
                " placement group can have up to seven instances per Availability Zone.",
            )
        if group.strategy == "cluster" and any(each.zone != zone for each in members):
            return 0, AwsError(
                "InsufficientInstanceCapacity",
                "We currently do not have sufficient capacity in the cluster placement group.",
            )
        return None, AwsError("InsufficientInstanceCapacity", "")

    def partition(self, group: PlacementGroup, wanted: int) -> int:
        """Return the partition of the next instance: the one wanted, else the emptiest."""
        if group.strategy != "partition":
            return 0
        if wanted:
            return wanted
        filled = Counter(each.partition for each in self._members(group))
        return min(range(1, group.partitions + 1), key=lambda number: (filled[number], number))

    def _members(self, group: PlacementGroup) -> Sequence[SimulatedInstance]:
        return [each for each in self._instances.living if each.placement_group_id == group.id]

    def create(self, request: CreatePlacementGroupRequestTypeDef) -> Mapping[str, object]:
        """Answer CreatePlacementGroup."""
        name = request.get("GroupName", "")
        if any(group.name == name for group in self._groups.values()):
            raise AwsError(
                "InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists."
            )
        tags = tags_for(
            "placement-group",
            cast("Sequence[TagSpecification]", request.get("TagSpecifications", ())),
        )
        check_tags(tags)
        group = self.add(
            name,
            strategy=request.get("Strategy", "cluster"),
            partitions=request.get("PartitionCount", 0),
            tags=tags,
        )
        return {"PlacementGroup": self._described(group)}

    def delete(self, request: DeletePlacementGroupRequestTypeDef) -> Mapping[str, object]:
        """Answer DeletePlacementGroup."""
        group = self.find(name=request["GroupName"])
        if self._members(group):
            raise AwsError(
                "InvalidPlacementGroup.InUse",
                f"The placement group '{group.name}' is in use and may not be deleted.",
            )
        del self._groups[group.id]
        return {}

    def describe(self, request: DescribePlacementGroupsRequestTypeDef) -> Mapping[str, object]:
        """Answer DescribePlacementGroups."""
        names: Sequence[str] = request.get("GroupNames", ())
        ids: Sequence[str] = request.get("GroupIds", ())
        wanted = [self.find(group_id=each) for each in ids] + [self.find(name=n) for n in names]

        def values(group: PlacementGroup, name: str) -> Sequence[str] | None:
            return {
                "group-name": (group.name,),
                "group-id": (group.id,),
                "state": (group.state,),
                "strategy": (group.strategy,),
            }.get(name)

        found = filter_items(
            wanted if names or ids else list(self._groups.values()),
            cast("Sequence[RequestFilter]", request.get("Filters", ())),
            values=values,
            tags=lambda group: group.tags,
        )
        return {"PlacementGroups": [self._described(group) for group in found]}

    def tagged(self, group_id: str) -> dict[str, str] | None:
        """Return the tags of a group, to be changed in place."""
        found = self._groups.get(group_id)
        return None if found is None else found.tags

    def _described(self, group: PlacementGroup) -> Mapping[str, object]:
        return {
            "GroupId": group.id,
            "GroupName": group.name,
            "GroupArn": self._account.arn("ec2", f"placement-group/{group.name}"),
            "Strategy": group.strategy,
            "PartitionCount": group.partitions or None,
            "State": group.state,
            "Tags": tag_list(group.tags),
        }
