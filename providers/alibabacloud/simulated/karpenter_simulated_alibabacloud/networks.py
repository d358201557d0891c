"""VPCs, vSwitches with their addresses, and security groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_alibabacloud.account import to_seconds
from karpenter_simulated_alibabacloud.paging import (
    numbered_page,
    tags_match,
    token_page,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["Networks", "SecurityGroup", "VSwitch", "Vpc"]

_KEPT_ADDRESSES: Final = 4
"""The first and the last three addresses of a vSwitch are the system's."""
_GROUPS_PAGE: Final = 100
_DEFAULT_PAGE: Final = 10


@dataclass(slots=True, kw_only=True, eq=False)
class Vpc:
    """A VPC."""

    id: str
    cidr: str
    name: str = ""
    tags: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True, kw_only=True, eq=False)
class VSwitch:
    """A vSwitch."""

    id: str
    vpc_id: str
    zone: str
    cidr: str
    name: str = ""
    tags: dict[str, str] = field(default_factory=dict[str, str])
    status: str = "Available"
    """`Pending` while it is made."""
    taken: int = 0
    """Addresses that others than instances have."""

    @property
    def size(self) -> int:
        """Number of addresses for instances, free or not."""
        return IPv4Network(self.cidr).num_addresses - _KEPT_ADDRESSES

    def address(self, number: int) -> str:
        """Return its nth address, from 0."""
        return str(IPv4Address(int(IPv4Network(self.cidr).network_address) + 1 + number))


@dataclass(slots=True, kw_only=True, eq=False)
class SecurityGroup:
    """A security group."""

    id: str
    name: str
    vpc_id: str
    kind: str = "normal"
    """`normal` (basic) or `enterprise`."""
    tags: dict[str, str] = field(default_factory=dict[str, str])


@final
class Networks:
    """The networks of an account in a region."""

    def __init__(self, account: Account, used_addresses: Callable[[], Mapping[str, int]]) -> None:
        """Keep networks; `used_addresses` counts those of the instances, by vSwitch."""
        self._account: Final = account
        self._used_addresses: Final = used_addresses
        self._vpcs: Final[dict[str, Vpc]] = {}
        self._vswitches: Final[dict[str, VSwitch]] = {}
        self._groups: Final[dict[str, SecurityGroup]] = {}

    def clear(self) -> None:
        """Forget all networks."""
        self._vpcs.clear()
        self._vswitches.clear()
        self._groups.clear()

    def add_vpc(self, *, cidr: str, name: str = "") -> Vpc:
        """Make a VPC."""
        vpc = Vpc(id=self._account.ids.new("vpc"), cidr=cidr, name=name)
        self._vpcs[vpc.id] = vpc
        return vpc

    def add_vswitch(
        self,
        vpc_id: str,
        *,
        zone: str,
        cidr: str,
        name: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> VSwitch:
        """Make a vSwitch."""
        made = VSwitch(
            id=self._account.ids.new("vsw"),
            vpc_id=vpc_id,
            zone=zone,
            cidr=cidr,
            name=name,
            tags=dict(tags or {}),
        )
        self._vswitches[made.id] = made
        return made

    def add_security_group(
        self,
        vpc_id: str,
        *,
        name: str,
        kind: str = "normal",
        tags: Mapping[str, str] | None = None,
    ) -> SecurityGroup:
        """Make a security group."""
        made = SecurityGroup(
            id=self._account.ids.new("sg"),
            name=name,
            vpc_id=vpc_id,
            kind=kind,
            tags=dict(tags or {}),
        )
        self._groups[made.id] = made
        return made

    def remove(self, named: str) -> None:
        """Take a vSwitch or a security group away."""
        self._vswitches.pop(named, None)
        self._groups.pop(named, None)

    def vswitch(self, vswitch_id: str) -> VSwitch | None:
        """Return a vSwitch; None when there is no such one."""
        return self._vswitches.get(vswitch_id)

    @property
    def vswitches(self) -> Sequence[VSwitch]:
        """Every vSwitch, in the order in which they were made."""
        return list(self._vswitches.values())

    def security_group(self, group_id: str) -> SecurityGroup | None:
        """Return a security group; None when there is no such one."""
        return self._groups.get(group_id)

    @property
    def security_groups(self) -> Sequence[SecurityGroup]:
        """Every security group, in the order in which they were made."""
        return list(self._groups.values())

    def free_addresses(self, vswitch: VSwitch) -> int:
        """Return how many addresses a vSwitch has left."""
        used = vswitch.taken + self._used_addresses().get(vswitch.id, 0)
        return max(0, vswitch.size - used)

    def leave_addresses(self, vswitch_id: str, number: int) -> None:
        """Let others have all addresses of a vSwitch but so many of those that are free."""
        vswitch = self._vswitches[vswitch_id]
        vswitch.taken = 0
        vswitch.taken = max(0, self.free_addresses(vswitch) - number)

    # Answers to API calls.

    def describe_vswitches(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeVSwitches of the VPC API."""
        ids = [each for each in request.text("VSwitchId").split(",") if each]
        used = self._used_addresses()
        found = [
            each
            for each in self._vswitches.values()
            if (not ids or each.id in ids)
            and request.text("VpcId") in {"", each.vpc_id}
            and request.text("ZoneId") in {"", each.zone}
            and request.text("VSwitchName") in {"", each.name}
            and tags_match(each.tags, request)
        ]
        page, reply = numbered_page(found, request)
        rows = [
            {
                "VSwitchId": each.id,
                "VSwitchName": each.name,
                "VpcId": each.vpc_id,
                "ZoneId": each.zone,
                "CidrBlock": each.cidr,
                "Status": each.status,
                "AvailableIpAddressCount": max(0, each.size - each.taken - used.get(each.id, 0)),
                "IsDefault": False,
                "Description": "",
                "CreationTime": self._made_at,
                "OwnerId": self._account.id,
                "Tags": {"Tag": [{"Key": key, "Value": value} for key, value in each.tags.items()]},
            }
            for each in page
        ]
        return {"VSwitches": {"VSwitch": rows}, **reply}

    def describe_vpcs(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeVpcs of the VPC API."""
        found = [
            each
            for each in self._vpcs.values()
            if request.text("VpcId") in {"", each.id} and tags_match(each.tags, request)
        ]
        page, reply = numbered_page(found, request)
        rows = [
            {
                "VpcId": each.id,
                "VpcName": each.name,
                "CidrBlock": each.cidr,
                "RegionId": self._account.region,
                "Status": "Available",
                "IsDefault": False,
                "CreationTime": self._made_at,
                "OwnerId": self._account.id,
                "VSwitchIds": {
                    "VSwitchId": [
                        vswitch.id
                        for vswitch in self._vswitches.values()
                        if vswitch.vpc_id == each.id
                    ]
                },
            }
            for each in page
        ]
        return {"Vpcs": {"Vpc": rows}, **reply}

    def describe_security_groups(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeSecurityGroups, by tokens or, as in old programs, by page numbers."""
        request.required("RegionId")
        ids = set(request.json_texts("SecurityGroupIds", most=100) or ())
        if one := request.text("SecurityGroupId"):
            ids.add(one)
        found = [
            each
            for each in self._groups.values()
            if (not ids or each.id in ids)
            and request.text("SecurityGroupName") in {"", each.name}
            and request.text("SecurityGroupType") in {"", each.kind}
            and request.text("VpcId") in {"", each.vpc_id}
            and tags_match(each.tags, request)
        ]
        reply: dict[str, object] = {"RegionId": self._account.region}
        if "MaxResults" in request or "NextToken" in request:
            page, token = token_page(
                found,
                request,
                key=lambda each: each.id,
                default=_DEFAULT_PAGE,
                most=_GROUPS_PAGE,
            )
            reply["NextToken"] = token
        else:
            page, numbers = numbered_page(found, request, most=_GROUPS_PAGE)
            reply |= numbers
        rows = [
            {
                "SecurityGroupId": each.id,
                "SecurityGroupName": each.name,
                "SecurityGroupType": each.kind,
                "VpcId": each.vpc_id,
                "Description": "",
                "CreationTime": self._made_at,
                "ResourceGroupId": "",
                "ServiceManaged": False,
                "Tags": {
                    "Tag": [{"TagKey": key, "TagValue": value} for key, value in each.tags.items()]
                },
            }
            for each in page
        ]
        return {"SecurityGroups": {"SecurityGroup": rows}, **reply}

    @property
    def _made_at(self) -> str:
        return to_seconds(self._account.clock() - timedelta(days=30))
