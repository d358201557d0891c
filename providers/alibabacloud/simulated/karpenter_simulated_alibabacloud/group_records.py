"""Keeps the records of provisioning groups that were answered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.account import to_seconds
from karpenter_simulated_alibabacloud.paging import numbered_page, tags_match

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.instances import Instances
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["GroupRecord", "GroupRecords"]

_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group that was made."""

    id: str
    name: str
    tags: Mapping[str, str]
    made_at: datetime
    targets: Mapping[str, float]
    """Requested capacity, by capacity type."""


@final
class GroupRecords:
    """The provisioning groups of an account."""

    def __init__(self, account: Account, instances: Instances) -> None:
        self._account: Final = account
        self._instances: Final = instances
        self._groups: dict[str, GroupRecord] = {}

    def add(self, group: GroupRecord) -> None:
        """Keep the record of a group."""
        self._groups[group.id] = group

    def clear(self) -> None:
        """Forget all groups."""
        self._groups.clear()

    def get(self, group_id: str) -> GroupRecord | None:
        """Return the record of a group; None when there is none."""
        return self._groups.get(group_id)

    def describe(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeAutoProvisioningGroups."""
        request.required("RegionId")
        ids = request.texts("AutoProvisioningGroupId", most=20)
        found = [
            each
            for each in self._groups.values()
            if (not ids or each.id in ids)
            and request.text("AutoProvisioningGroupName") in {"", each.name}
            and tags_match(each.tags, request)
        ]
        page, reply = numbered_page(found, request, most=100)
        rows = [self._described(each) for each in page]
        return {"AutoProvisioningGroups": {"AutoProvisioningGroup": rows}, **reply}

    def _described(self, group: GroupRecord) -> Mapping[str, object]:
        launched = Counter(
            each.pool.capacity_type for each in self._instances.all if each.group_id == group.id
        )
        return {
            "AutoProvisioningGroupId": group.id,
            "AutoProvisioningGroupName": group.name,
            "AutoProvisioningGroupType": "instant",
            "RegionId": self._account.region,
            "Status": "fulfilled"
            if launched.total() >= sum(group.targets.values())
            else "partially-fulfilled",
            "State": "active",
            "CreationTime": to_seconds(group.made_at),
            "CapacitySpecification": {
                "PayAsYouGoCapacity": float(launched[ON_DEMAND]),
                "SpotCapacity": float(launched[SPOT]),
                "TotalCapacity": float(launched.total()),
            },
            "TargetCapacitySpecification": {
                "PayAsYouGoTargetCapacity": group.targets[ON_DEMAND],
                "SpotTargetCapacity": group.targets[SPOT],
                "TotalTargetCapacity": sum(group.targets.values()),
            },
            "Tags": {
                "Tag": [{"TagKey": key, "TagValue": value} for key, value in group.tags.items()]
            },
        }

    def delete(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DeleteAutoProvisioningGroup."""
        request.required("RegionId")
        group = self._groups.pop(request.required("AutoProvisioningGroupId"), None)
        if group is None:
            raise CloudError(
                "InvalidAutoProvisioningGroupId.NotFound",
                "The specified AutoProvisioningGroupId does not exist.",
                status=_NOT_FOUND,
            )
        if request.flag("TerminateInstances"):
            for instance in self._instances.living:
                if instance.group_id == group.id:
                    self._instances.end(instance)
        return {}
