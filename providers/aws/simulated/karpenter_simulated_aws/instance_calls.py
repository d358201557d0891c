"""Handles calls about instances: describe, terminate, status, events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, final

from karpenter_simulated_aws.denials import denied
from karpenter_simulated_aws.instances import SimulatedInstanceState
from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.selection import filter_items, list_page, slice_page, tag_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from types_boto3_ec2.type_defs import (
        DescribeInstancesRequestTypeDef,
        DescribeInstanceStatusRequestTypeDef,
        ModifyInstanceAttributeRequestTypeDef,
        TerminateInstancesRequestTypeDef,
    )

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.instances import InstanceInterface, Instances, SimulatedInstance
    from karpenter_simulated_aws.selection import RequestFilter

__all__ = ["InstanceCalls"]

_PAGE: Final = 1000
_SMALLEST_PAGE: Final = 5
_USER_END: Final = "Client.UserInitiatedShutdown"


@final
class InstanceCalls:
    """Answers about the instances of an account."""

    def __init__(self, account: Account, instances: Instances) -> None:
        self._account: Final = account
        self._instances: Final = instances

    def describe(self, request: DescribeInstancesRequestTypeDef) -> Mapping[str, object]:
        """Answer DescribeInstances: one reservation for each request that launched."""
        found = self._found(request)
        shown, token = slice_page(
            found,
            size=request.get("MaxResults"),
            token=request.get("NextToken"),
            maximum=_PAGE,
            minimum=_SMALLEST_PAGE,
            given=self._instances.per_page,
        )
        now = self._account.clock()
        launches: dict[str, list[SimulatedInstance]] = {}
        for instance in shown:
            launches.setdefault(instance.launch_id, []).append(instance)
        return {
            "Reservations": [
                {
                    "ReservationId": launch_id,
                    "OwnerId": self._account.id,
                    "Groups": [],
                    "Instances": [self._described(instance, now) for instance in instances],
                }
                for launch_id, instances in launches.items()
            ],
            "NextToken": token,
        }

    def _found(self, request: DescribeInstancesRequestTypeDef) -> list[SimulatedInstance]:
        ids: Sequence[str] = request.get("InstanceIds", ())
        if ids and request.get("MaxResults") is not None:
            raise AwsError(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        now = self._account.clock()

        def values(instance: SimulatedInstance, name: str) -> Sequence[str] | None:
            return _values(instance, name, self._instances.state_of(instance, now))

        return filter_items(
            self._instances.named(ids),
            cast("Sequence[RequestFilter]", request.get("Filters", ())),
            values=values,
            tags=lambda instance: instance.tags,
        )

    def terminate(self, request: TerminateInstancesRequestTypeDef) -> Mapping[str, object]:
        """Answer TerminateInstances: all of them or none.

        A protected instance refuses the call as well, but ends those of other zones.
        """
        instances = self._instances.named(request["InstanceIds"])
        self._check_permission(instances)
        now = self._account.clock()
        answers: list[Mapping[str, object]] = []
        protected = [instance for instance in instances if instance.is_protected]
        closed_zones = {instance.zone for instance in protected}
        for instance in instances:
            if instance.zone in closed_zones:
                continue
            before = self._instances.state_of(instance, now)
            self._instances.end(instance, reason=_USER_END)
            after = (
                SimulatedInstanceState.TERMINATED
                if before is SimulatedInstanceState.TERMINATED
                else SimulatedInstanceState.SHUTTING_DOWN
            )
            answers.append(
                {
                    "InstanceId": instance.id,
                    "PreviousState": {"Name": before.value, "Code": before.code},
                    "CurrentState": {"Name": after.value, "Code": after.code},
                }
            )
        if protected:
            raise AwsError(
                "OperationNotPermitted",
                f"The instance '{protected[0].id}' may not be terminated. Modify its"
                " 'disableApiTermination' instance attribute and try again.",
            )
        return {"TerminatingInstances": answers}

    def modify_attribute(
        self, request: ModifyInstanceAttributeRequestTypeDef
    ) -> Mapping[str, object]:
        """Answer ModifyInstanceAttribute of termination protection; of others it is not asked."""
        (instance,) = self._instances.named([request["InstanceId"]])
        wanted = request.get("DisableApiTermination", {}).get("Value")
        if wanted is None:
            raise AwsError("InvalidParameterCombination", "No attributes specified.")
        instance.is_protected = wanted
        return {}

    def _check_permission(self, instances: Sequence[SimulatedInstance]) -> None:
        """Refuse a call about an instance whose tags no policy goes by; nothing of it is done."""
        forbidden = next((instance for instance in instances if instance.is_forbidden), None)
        if forbidden is None:
            return
        name = "ec2:TerminateInstances"
        arn = f"arn:aws:ec2:{self._account.region}:{self._account.id}:instance/{forbidden.id}"
        because = f" on resource: {arn} because no identity-based policy allows the {name} action"
        raise denied("ec2", name, because=because)

    def describe_status(
        self, request: DescribeInstanceStatusRequestTypeDef
    ) -> Mapping[str, object]:
        """Answer DescribeInstanceStatus; without IncludeAllInstances, of running ones only."""
        now = self._account.clock()
        ids: Sequence[str] = request.get("InstanceIds", ())
        candidates = [
            instance
            for instance in self._instances.named(ids)
            if request.get("IncludeAllInstances")
            or self._instances.state_of(instance, now) is SimulatedInstanceState.RUNNING
        ]

        def values(instance: SimulatedInstance, name: str) -> Sequence[str] | None:
            checks = {
                "instance-status.status": _check(instance, "instance"),
                "system-status.status": _check(instance, "system"),
                "attached-ebs-status.status": _check(instance, "ebs"),
            }
            if name in checks:
                return (checks[name],)
            if name == "event.code":
                return [str(event["Code"]) for event in instance.events]
            if name in {"instance-state-name", "instance-state-code", "availability-zone"}:
                return _values(instance, name, self._instances.state_of(instance, now))
            return None

        shown, token = list_page(
            request,
            candidates,
            values=values,
            tags=lambda instance: instance.tags,
            maximum=_PAGE,
            minimum=_SMALLEST_PAGE,
        )
        return {
            "InstanceStatuses": [self._status(instance, now) for instance in shown],
            "NextToken": token,
        }

    def _status(self, instance: SimulatedInstance, now: datetime) -> Mapping[str, object]:
        state = self._instances.state_of(instance, now)
        return {
            "InstanceId": instance.id,
            "AvailabilityZone": instance.zone,
            "AvailabilityZoneId": instance.zone_id,
            "InstanceState": {"Name": state.value, "Code": state.code},
            "InstanceStatus": _summary(instance, "instance"),
            "SystemStatus": _summary(instance, "system"),
            "AttachedEbsStatus": _summary(instance, "ebs"),
            "Events": instance.events,
        }

    def _described(self, instance: SimulatedInstance, now: datetime) -> Mapping[str, object]:
        state = self._instances.state_of(instance, now)
        data = instance.data
        ended = state in {SimulatedInstanceState.SHUTTING_DOWN, SimulatedInstanceState.TERMINATED}
        address = "" if state is SimulatedInstanceState.TERMINATED else instance.private_address
        return {
            "InstanceId": instance.id,
            "InstanceType": instance.instance_type,
            "ImageId": instance.image_id,
            "Architecture": instance.architecture,
            "AmiLaunchIndex": 0,
            "ClientToken": instance.client_token,
            "State": {"Name": state.value, "Code": state.code},
            "StateReason": {"Code": instance.end_reason, "Message": instance.end_reason}
            if ended
            else None,
            "LaunchTime": instance.launched_at,
            "Placement": {
                "AvailabilityZone": instance.zone,
                "AvailabilityZoneId": instance.zone_id,
                "Tenancy": data.get("Placement", {}).get("Tenancy", "default"),
                "GroupName": instance.placement_group_name,
                "GroupId": instance.placement_group_id or None,
                "PartitionNumber": instance.partition or None,
            },
            "SubnetId": instance.subnet_id
            if state is not SimulatedInstanceState.TERMINATED
            else None,
            "VpcId": instance.vpc_id if state is not SimulatedInstanceState.TERMINATED else None,
            "PrivateIpAddress": address or None,
            "PrivateDnsName": private_dns_name(self._account.region, address),
            "PublicDnsName": "",
            "SecurityGroups": [
                {"GroupId": group_id, "GroupName": name} for group_id, name in instance.groups
            ],
            "NetworkInterfaces": []
            if state is SimulatedInstanceState.TERMINATED
            else [self._interface(instance, interface) for interface in instance.interfaces],
            "IamInstanceProfile": {"Arn": instance.profile_arn, "Id": instance.profile_id}
            if instance.profile_arn
            else None,
            "Monitoring": {
                "State": "enabled" if data.get("Monitoring", {}).get("Enabled") else "disabled"
            },
            "InstanceLifecycle": instance.market or None,
            "SpotInstanceRequestId": instance.spot_request_id or None,
            "CapacityReservationId": instance.capacity_reservation_id or None,
            "CapacityReservationSpecification": _reservation_choice(data),
            "MetadataOptions": {"State": "applied", **data.get("MetadataOptions", {})},
            "EnclaveOptions": data.get("EnclaveOptions", {"Enabled": False}),
            "CpuOptions": data.get("CpuOptions"),
            "RootDeviceName": instance.root_device,
            "RootDeviceType": "ebs",
            "BlockDeviceMappings": [
                {
                    "DeviceName": device,
                    "Ebs": {
                        "VolumeId": volume_id,
                        "Status": "attached",
                        "DeleteOnTermination": True,
                        "AttachTime": instance.launched_at,
                    },
                }
                for device, volume_id in instance.volumes
            ],
            "Platform": "windows" if instance.windows else None,
            "Hypervisor": "xen",
            "VirtualizationType": "hvm",
            "EnaSupport": True,
            "Tags": tag_list(instance.tags),
        }

    def _interface(
        self, instance: SimulatedInstance, interface: InstanceInterface
    ) -> Mapping[str, object]:
        return {
            "NetworkInterfaceId": interface.id,
            "InterfaceType": interface.kind,
            "SubnetId": instance.subnet_id,
            "VpcId": instance.vpc_id,
            "OwnerId": self._account.id,
            "Status": "in-use",
            "PrivateIpAddress": interface.address or None,
            "Attachment": {
                "AttachmentId": interface.attachment_id,
                "DeviceIndex": interface.device,
                "NetworkCardIndex": interface.card,
                "DeleteOnTermination": True,
                "Status": "attached",
                "AttachTime": instance.launched_at,
            },
            "Groups": [
                {"GroupId": group_id, "GroupName": name} for group_id, name in interface.groups
            ],
            "Ipv4Prefixes": [
                {"Ipv4Prefix": f"prefix-{number}/28"} for number in range(interface.ipv4_prefixes)
            ],
            "Ipv6Addresses": [
                {
                    "Ipv6Address": f"2600:1f18::{interface.id[-4:]}:{number}",
                    "IsPrimaryIpv6": not number,
                }
                for number in range(interface.ipv6_addresses)
            ],
            "Ipv6Prefixes": [
                {"Ipv6Prefix": f"prefix-{number}/80"} for number in range(interface.ipv6_prefixes)
            ],
        }


def private_dns_name(region: str, address: str) -> str:
    """Return the name by which an instance, and its node, goes inside the VPC."""
    if not address:
        return ""
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return f"ip-{address.replace('.', '-')}.{domain}"


def _reservation_choice(data: Mapping[str, object]) -> Mapping[str, object]:
    wanted = cast("Mapping[str, object]", data.get("CapacityReservationSpecification", {}))
    return {
        "CapacityReservationPreference": wanted.get("CapacityReservationPreference", "open"),
        "CapacityReservationTarget": wanted.get("CapacityReservationTarget"),
    }


def _check(instance: SimulatedInstance, check: str) -> str:
    return "impaired" if check in instance.impaired else "ok"


def _summary(instance: SimulatedInstance, check: str) -> Mapping[str, object]:
    since = instance.impaired.get(check)
    return {
        "Status": _check(instance, check),
        "Details": [
            {
                "Name": "reachability",
                "Status": "passed" if since is None else "failed",
                "ImpairedSince": since,
            }
        ],
    }


def _values(
    instance: SimulatedInstance, name: str, state: SimulatedInstanceState
) -> Sequence[str] | None:
    known: Mapping[str, Sequence[str]] = {
        "instance-id": (instance.id,),
        "instance-type": (instance.instance_type,),
        "instance-state-name": (state.value,),
        "instance-state-code": (str(state.code),),
        "instance-lifecycle": (instance.market,) if instance.market else (),
        "image-id": (instance.image_id,),
        "subnet-id": (instance.subnet_id,),
        "vpc-id": (instance.vpc_id,),
        "availability-zone": (instance.zone,),
        "availability-zone-id": (instance.zone_id,),
        "architecture": (instance.architecture,),
        "client-token": (instance.client_token,) if instance.client_token else (),
        "capacity-reservation-id": (instance.capacity_reservation_id,),
        "instance.group-id": [group_id for group_id, _ in instance.groups],
        "iam-instance-profile.arn": (instance.profile_arn,),
        "placement-group-name": (instance.placement_group_name,),
        "private-ip-address": (instance.private_address,),
        "reservation-id": (instance.launch_id,),
        "spot-instance-request-id": (instance.spot_request_id,),
    }
    return known.get(name)
