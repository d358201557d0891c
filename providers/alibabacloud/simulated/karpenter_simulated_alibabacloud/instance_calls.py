"""Handles calls about instances: describe, stop, start, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.account import to_minutes
from karpenter_simulated_alibabacloud.instances import SimulatedInstanceState
from karpenter_simulated_alibabacloud.paging import (
    numbered_page,
    tags_match,
    token_page,
)
from karpenter_simulated_alibabacloud.tokens import ClientTokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.behaviour import CloudBehaviour
    from karpenter_simulated_alibabacloud.instances import Instances, SimulatedInstance
    from karpenter_simulated_alibabacloud.parameters import RequestParameters
    from karpenter_simulated_alibabacloud.reservations import Reservations
    from karpenter_simulated_alibabacloud.type_catalogue import TypeCatalogue

__all__ = ["InstanceCalls"]

_FORBIDDEN: Final = 403
_DEFAULT_PAGE: Final = 10
_LARGEST_PAGE: Final = 100
_MOST_IDS: Final = 100
_MOST_BY_TAG: Final = 1000
_MIB_PER_GIB: Final = 1024
_NEVER: Final = "2099-12-31T15:59Z"


@final
class InstanceCalls:
    """Handles the calls about existing instances."""

    def __init__(
        self,
        account: Account,
        instances: Instances,
        *,
        behaviour: CloudBehaviour,
        catalogue: TypeCatalogue,
        reservations: Reservations,
    ) -> None:
        self._account: Final = account
        self._instances: Final = instances
        self._behaviour: Final = behaviour
        self._catalogue: Final = catalogue
        self._reservations: Final = reservations
        self._deletions: Final = ClientTokens(account, behaviour)

    def clear(self) -> None:
        """Forget the tokens of earlier calls."""
        self._deletions.clear()

    # Reading.

    def describe(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeInstances: by tokens of 10 to 100, or by page numbers.

        Of what tags alone select, no more than 1,000 are ever found, as ECS documents it.
        """
        request.required("RegionId")
        ids = request.json_texts("InstanceIds", most=_MOST_IDS)
        found = [
            each
            for each in self._instances.visible
            if (ids is None or each.id in ids) and self._matches(each, request)
        ]
        if "Tag" in request and ids is None:
            found = found[:_MOST_BY_TAG]
        reply: dict[str, object]
        if "MaxResults" in request or "NextToken" in request:
            page, token = token_page(
                found,
                request,
                key=lambda each: each.id,
                default=_DEFAULT_PAGE,
                least=_DEFAULT_PAGE,
                most=min(_LARGEST_PAGE, self._behaviour.instances_per_page),
            )
            reply = {"NextToken": token, "TotalCount": len(found)}
        else:
            page, numbers = numbered_page(found, request, most=_LARGEST_PAGE)
            reply = {**numbers, "NextToken": ""}
        return {"Instances": {"Instance": [self._described(each) for each in page]}, **reply}

    def _matches(self, instance: SimulatedInstance, request: RequestParameters) -> bool:
        asked = {
            "InstanceType": instance.pool.instance_type,
            "InstanceTypeFamily": instance.family,
            "ZoneId": instance.pool.zone,
            "VpcId": instance.vpc_id,
            "VSwitchId": instance.vswitch_id,
            "ImageId": instance.image_id,
            "InstanceName": instance.name,
            "Status": str(self._instances.state_of(instance)),
            "ResourceGroupId": instance.resource_group_id,
            "InstanceChargeType": "PostPaid",
            "HttpTokens": instance.http_tokens,
        }
        group, lock = request.text("SecurityGroupId"), request.text("LockReason")
        return (
            all(request.text(name) in {"", value} for name, value in asked.items())
            and (not group or group in instance.security_groups)
            and (
                not lock
                or lock.lower() in {each.lower() for each in self._instances.locks(instance)}
            )
            and tags_match(instance.tags, request)
        )

    def describe_status(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeInstanceStatus."""
        request.required("RegionId")
        ids = request.texts("InstanceId", most=_MOST_IDS)
        found = [each for each in self._instances.visible if not ids or each.id in ids]
        page, reply = numbered_page(found, request)
        return {
            "InstanceStatuses": {
                "InstanceStatus": [
                    {"InstanceId": each.id, "Status": str(self._instances.state_of(each))}
                    for each in page
                ]
            },
            **reply,
        }

    def _described(self, each: SimulatedInstance) -> Mapping[str, object]:
        type_info = self._catalogue.type_info(each.pool.instance_type)
        return {
            "InstanceId": each.id,
            "InstanceName": each.name,
            "HostName": f"iZ{each.id.removeprefix('i-')}Z",
            "Description": "",
            "InstanceType": each.pool.instance_type,
            "InstanceTypeFamily": each.family,
            "Cpu": type_info.vcpus if type_info else 0,
            "Memory": int(type_info.memory_gib * _MIB_PER_GIB) if type_info else 0,
            "GPUAmount": type_info.gpus if type_info else 0,
            "GPUSpec": type_info.gpu_spec if type_info else "",
            "ImageId": each.image_id,
            "OSType": "linux",
            "RegionId": self._account.region,
            "ZoneId": each.pool.zone,
            "Status": str(self._instances.state_of(each)),
            "StoppedMode": "Not-applicable",
            "InstanceChargeType": "PostPaid",
            "InstanceNetworkType": "vpc",
            "SpotStrategy": each.spot_strategy,
            "SpotPriceLimit": each.spot_price_limit,
            "SpotDuration": each.spot_duration if each.is_spot else 0,
            "SpotInterruptionBehavior": "Terminate" if each.is_spot else "",
            "CreationTime": to_minutes(each.launched_at),
            "StartTime": to_minutes(self._instances.running_since(each)),
            "ExpiredTime": _NEVER,
            "AutoReleaseTime": "",
            "DeletionProtection": each.deletion_protection,
            "KeyPairName": each.key_pair,
            "ResourceGroupId": each.resource_group_id,
            "DeploymentSetId": each.deployment_set_id,
            "SecurityGroupIds": {"SecurityGroupId": list(each.security_groups)},
            "VpcAttributes": {
                "VpcId": each.vpc_id,
                "VSwitchId": each.vswitch_id,
                "NatIpAddress": "",
                "PrivateIpAddress": {"IpAddress": [each.address]},
            },
            "PublicIpAddress": {"IpAddress": ["203.0.113.10"] if each.public else []},
            "InnerIpAddress": {"IpAddress": []},
            "MetadataOptions": {
                "HttpEndpoint": each.http_endpoint,
                "HttpTokens": each.http_tokens,
                "HttpPutResponseHopLimit": each.http_hops,
            },
            "EcsCapacityReservationAttr": self._reservation_of(each),
            "OperationLocks": {
                "LockReason": [
                    {"LockReason": reason, "LockMsg": f"simulated {reason}"}
                    for reason in self._instances.locks(each)
                ]
            },
            "Tags": {
                "Tag": [{"TagKey": key, "TagValue": value} for key, value in each.tags.items()]
            },
        }

    def _reservation_of(self, instance: SimulatedInstance) -> Mapping[str, object]:
        reservation = self._reservations.get(instance.reservation_id)
        if reservation is None:
            return {"CapacityReservationId": "", "CapacityReservationPreference": "none"}
        return {
            "CapacityReservationId": reservation.id,
            "CapacityReservationPreference": reservation.criteria.lower(),
        }

    # Ending.

    def delete_one(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DeleteInstance."""
        instance = self._instances.existing(request.required("InstanceId"))
        self._check_deletion([instance], request)
        self._instances.end(instance)
        return {}

    def delete(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DeleteInstances: all that are named, or none when one cannot be."""
        request.required("RegionId")
        return self._deletions.once(request, lambda: self._delete(request))

    def _delete(self, request: RequestParameters) -> Mapping[str, object]:
        ids = request.texts("InstanceId", most=_MOST_IDS)
        if not ids:
            request.required("InstanceId")
        found = [self._instances.existing(each) for each in ids]
        self._check_deletion(found, request)
        for instance in found:
            self._instances.end(instance)
        return {}

    def _check_deletion(
        self, instances: Sequence[SimulatedInstance], request: RequestParameters
    ) -> None:
        force = request.flag("Force") or request.flag("ForceStop")
        for instance in instances:
            if instance.deletion_protection:
                raise CloudError(
                    "InvalidOperation.DeletionProtection",
                    "The operation is not allowed due to deletion protection.",
                    status=_FORBIDDEN,
                )
            state = self._instances.state_of(instance)
            if state in {SimulatedInstanceState.PENDING, SimulatedInstanceState.STARTING}:
                raise CloudError(
                    "IncorrectInstanceStatus.Initializing",
                    f"The specified instance {instance.id} is {state}.",
                    status=_FORBIDDEN,
                )
            if state is not SimulatedInstanceState.STOPPED and not force:
                raise _wrong_state(instance, state)
        if request.flag("DryRun"):
            raise CloudError(
                "DryRunOperation", "Request validation has been passed with DryRun flag set."
            )

    # Stopping and starting.

    def stop_one(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer StopInstance."""
        self._stop(self._instances.existing(request.required("InstanceId")))
        return {}

    def start_one(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer StartInstance."""
        self._start(self._instances.existing(request.required("InstanceId")))
        return {}

    def stop(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer StopInstances."""
        return self._each(request, stopping=True)

    def start(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer StartInstances."""
        return self._each(request, stopping=False)

    def _each(self, request: RequestParameters, *, stopping: bool) -> Mapping[str, object]:
        request.required("RegionId")
        found = [
            self._instances.existing(each) for each in request.texts("InstanceId", most=_MOST_IDS)
        ]
        rows: list[Mapping[str, object]] = []
        for instance in found:
            before = self._instances.state_of(instance)
            (self._stop if stopping else self._start)(instance)
            rows.append(
                {
                    "InstanceId": instance.id,
                    "Code": "200",
                    "Message": "success",
                    "PreviousStatus": str(before),
                    "CurrentStatus": str(self._instances.state_of(instance)),
                }
            )
        return {"InstanceResponses": {"InstanceResponse": rows}}

    def _stop(self, instance: SimulatedInstance) -> None:
        state = self._instances.state_of(instance)
        if state is not SimulatedInstanceState.RUNNING:
            raise _wrong_state(instance, state)
        instance.stops_at = self._account.clock()

    def _start(self, instance: SimulatedInstance) -> None:
        state = self._instances.state_of(instance)
        if state is not SimulatedInstanceState.STOPPED:
            raise _wrong_state(instance, state)
        instance.stops_at = None


def _wrong_state(instance: SimulatedInstance, state: SimulatedInstanceState) -> CloudError:
    return CloudError(
        "IncorrectInstanceStatus",
        f"The status of the specified instance {instance.id} is {state}: it does not support this"
        " operation.",
        status=_FORBIDDEN,
    )
