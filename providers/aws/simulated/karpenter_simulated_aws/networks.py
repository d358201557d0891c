"""Serves subnets and security groups from moto, with pages and addresses."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast, final

from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.selection import list_page, tag_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from types_boto3_ec2.type_defs import (
        DescribeSecurityGroupsRequestTypeDef,
        DescribeSubnetsRequestTypeDef,
    )

    from karpenter_simulated_aws.account import Account

__all__ = ["Networks", "SecurityGroup", "SimulatedSubnet"]

T = TypeVar("T")

_PAGE: Final = 1000
_SMALLEST_PAGE: Final = 5
_FIRST_USABLE: Final = 4  # AWS keeps the first four addresses of a subnet, and the last


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSubnet:
    """A subnet, without what is used of it."""

    id: str
    vpc_id: str
    zone: str
    zone_id: str
    cidr: str
    usable: int
    """Addresses that are free when nothing runs there."""
    public: bool
    default: bool
    ipv6: tuple[str, ...]
    tags: Mapping[str, str]

    def addresses(self) -> Iterable[str]:
        """Addresses that instances may have, lowest first."""
        network = IPv4Network(self.cidr)
        first = int(network.network_address) + _FIRST_USABLE
        last = int(network.broadcast_address) - 1
        return (str(type(network.network_address)(number)) for number in range(first, last + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityGroup:
    """A security group."""

    id: str
    name: str
    description: str
    vpc_id: str
    tags: Mapping[str, str]


class _Subnet(Protocol):
    id: str
    vpc_id: str
    availability_zone: str
    availability_zone_id: str
    cidr_block: str
    available_ip_address_count: int
    map_public_ip_on_launch: bool
    default_for_az: bool
    ipv6_cidr_block_associations: Mapping[str, Mapping[str, object]]


class _Group(Protocol):
    id: str
    name: str
    description: str
    vpc_id: str | None


class _Backend(Protocol):
    subnets: Mapping[str, Mapping[str, _Subnet]]
    groups: Mapping[str, Mapping[str, _Group]]
    tags: Mapping[str, Mapping[str, str]]


@final
class Networks:
    """The networks of an account."""

    def __init__(self, account: Account, used: Callable[[], Mapping[str, int]]) -> None:
        """Make it; `used` returns how many addresses instances have, by subnet."""
        self._account: Final = account
        self._used: Final = used

    def _backend(self) -> _Backend:
        from moto.ec2.models import ec2_backends

        return cast("_Backend", ec2_backends[self._account.id][self._account.region])

    def subnets(self) -> dict[str, SimulatedSubnet]:
        """Return every subnet by its id."""
        backend = self._backend()
        return {
            subnet.id: SimulatedSubnet(
                id=subnet.id,
                vpc_id=subnet.vpc_id,
                zone=subnet.availability_zone,
                zone_id=subnet.availability_zone_id,
                cidr=subnet.cidr_block,
                usable=subnet.available_ip_address_count,
                public=subnet.map_public_ip_on_launch is True,
                default=subnet.default_for_az is True,
                ipv6=tuple(
                    str(association["ipv6CidrBlock"])
                    for association in subnet.ipv6_cidr_block_associations.values()
                ),
                tags=dict(backend.tags.get(subnet.id, {})),
            )
            for by_id in list(backend.subnets.values())
            for subnet in list(by_id.values())
        }

    def groups(self) -> dict[str, SecurityGroup]:
        """Return every security group by its id."""
        backend = self._backend()
        return {
            group.id: SecurityGroup(
                id=group.id,
                name=group.name,
                description=group.description,
                vpc_id=group.vpc_id or "",
                tags=dict(backend.tags.get(group.id, {})),
            )
            for by_id in list(backend.groups.values())
            for group in list(by_id.values())
        }

    def describe_subnets(self, request: DescribeSubnetsRequestTypeDef) -> Mapping[str, object]:
        """Answer DescribeSubnets."""
        subnets = self.subnets()
        used = self._used()
        wanted = _wanted(request.get("SubnetIds", ()), subnets, "InvalidSubnetID", "subnet ID")

        def values(subnet: SimulatedSubnet, name: str) -> Sequence[str] | None:
            match name:
                case "subnet-id":
                    return (subnet.id,)
                case "vpc-id":
                    return (subnet.vpc_id,)
                case "availability-zone" | "availabilityZone":
                    return (subnet.zone,)
                case "availability-zone-id" | "availabilityZoneId":
                    return (subnet.zone_id,)
                case "cidr-block" | "cidr" | "cidrBlock":
                    return (subnet.cidr,)
                case "state":
                    return ("available",)
                case "default-for-az" | "defaultForAz":
                    return (str(subnet.default).lower(),)
                case "owner-id":
                    return (self._account.id,)
                case _:
                    return None

        shown, token = list_page(
            request,
            wanted,
            values=values,
            tags=lambda subnet: subnet.tags,
            maximum=_PAGE,
            minimum=_SMALLEST_PAGE,
        )
        return {
            "Subnets": [self._subnet(subnet, used.get(subnet.id, 0)) for subnet in shown],
            "NextToken": token,
        }

    def _subnet(self, subnet: SimulatedSubnet, used: int) -> Mapping[str, object]:
        return {
            "SubnetId": subnet.id,
            "SubnetArn": self._account.arn("ec2", f"subnet/{subnet.id}"),
            "VpcId": subnet.vpc_id,
            "OwnerId": self._account.id,
            "State": "available",
            "AvailabilityZone": subnet.zone,
            "AvailabilityZoneId": subnet.zone_id,
            "CidrBlock": subnet.cidr,
            "AvailableIpAddressCount": max(0, subnet.usable - used),
            "DefaultForAz": subnet.default,
            "MapPublicIpOnLaunch": subnet.public,
            "AssignIpv6AddressOnCreation": False,
            "Ipv6CidrBlockAssociationSet": [
                {"Ipv6CidrBlock": block, "Ipv6CidrBlockState": {"State": "associated"}}
                for block in subnet.ipv6
            ],
            "Tags": tag_list(subnet.tags),
        }

    def describe_security_groups(
        self,
        request: DescribeSecurityGroupsRequestTypeDef,
    ) -> Mapping[str, object]:
        """Answer DescribeSecurityGroups; rules are left out."""
        groups = self.groups()
        wanted = _wanted(request.get("GroupIds", ()), groups, "InvalidGroup", "security group")

        def values(group: SecurityGroup, name: str) -> Sequence[str] | None:
            match name:
                case "group-id":
                    return (group.id,)
                case "group-name":
                    return (group.name,)
                case "vpc-id":
                    return (group.vpc_id,)
                case "description":
                    return (group.description,)
                case "owner-id":
                    return (self._account.id,)
                case _:
                    return None

        shown, token = list_page(
            request,
            wanted,
            values=values,
            tags=lambda group: group.tags,
            maximum=_PAGE,
            minimum=_SMALLEST_PAGE,
        )
        return {
            "SecurityGroups": [
                {
                    "GroupId": group.id,
                    "GroupName": group.name,
                    "Description": group.description,
                    "VpcId": group.vpc_id,
                    "OwnerId": self._account.id,
                    "SecurityGroupArn": self._account.arn("ec2", f"security-group/{group.id}"),
                    "Tags": tag_list(group.tags),
                }
                for group in shown
            ],
            "NextToken": token,
        }


def _wanted(ids: Sequence[str], items: Mapping[str, T], code: str, kind: str) -> list[T]:
    absent = [wanted for wanted in ids if wanted not in items]
    if absent:
        raise AwsError(f"{code}.NotFound", f"The {kind} '{', '.join(absent)}' does not exist")
    return [items[wanted] for wanted in ids or sorted(items)]
