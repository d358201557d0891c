"""Plans of instances to launch, and checks that need no stock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_aws.launch_checks import launch_mistakes
from karpenter_simulated_aws.protocol import AwsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from types_boto3_ec2.type_defs import RequestLaunchTemplateDataTypeDef

    from karpenter_simulated_aws.images import Images
    from karpenter_simulated_aws.networks import Networks, SimulatedSubnet
    from karpenter_simulated_aws.placement import PlacementGroups
    from karpenter_simulated_aws.profiles import SimulatedProfiles
    from karpenter_simulated_aws.reservations import Reservations
    from karpenter_simulated_aws.type_catalogue import TypeCatalogue, TypeInfo

__all__ = ["NOT_IN_ZONE", "InstancePlan", "InstancePlanChecks"]

NOT_IN_ZONE: Final = "is not supported in your requested Availability Zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePlan:
    """The instances to launch."""

    data: RequestLaunchTemplateDataTypeDef
    instance_type: str
    image_id: str
    subnet_id: str
    zone: str
    """Wanted; empty where the subnet says it."""
    spot: bool
    market: str
    """`capacity-block` or `interruptible-capacity-reservation`, else empty."""

    @property
    def lifecycle(self) -> str:
        """Name of the market in answers."""
        return "spot" if self.spot else self.market or "on-demand"

    @property
    def reservation_id(self) -> str:
        """The reservation that is asked for; empty when none is."""
        wanted = self.data.get("CapacityReservationSpecification", {})
        return wanted.get("CapacityReservationTarget", {}).get("CapacityReservationId", "")

    @property
    def reserved_only(self) -> bool:
        """Whether nothing but reserved instances will do."""
        wanted = self.data.get("CapacityReservationSpecification", {})
        return bool(self.reservation_id) or (
            wanted.get("CapacityReservationPreference") == "capacity-reservations-only"
        )

    @property
    def takes_open_reservations(self) -> bool:
        """Whether an open reservation is used up although none is asked for."""
        wanted = self.data.get("CapacityReservationSpecification", {})
        return not self.spot and wanted.get("CapacityReservationPreference", "open") == "open"

    @property
    def placement_group(self) -> tuple[str, str]:
        """Id and name of the placement group; empty where none is asked for."""
        placement = self.data.get("Placement", {})
        return placement.get("GroupId", ""), placement.get("GroupName", "")


@final
class InstancePlanChecks:
    """Finds what is wrong with plans."""

    def __init__(
        self,
        *,
        catalogue: TypeCatalogue,
        networks: Networks,
        images: Images,
        profiles: SimulatedProfiles,
        reservations: Reservations,
        groups: PlacementGroups,
    ) -> None:
        self._catalogue: Final = catalogue
        self._networks: Final = networks
        self._images: Final = images
        self._profiles: Final = profiles
        self._reservations: Final = reservations
        self._groups: Final = groups

    def refusal(self, plan: InstancePlan) -> AwsError | None:
        """Return what is wrong with a plan; None when nothing is."""
        return next(self._wrong(plan), None)

    def _wrong(self, plan: InstancePlan) -> Iterator[AwsError]:
        type_info = self._catalogue.type_info(plan.instance_type)
        if type_info is None:
            yield AwsError(
                "InvalidParameterValue", f"Invalid value '{plan.instance_type}' for InstanceType."
            )
            return
        subnet = self._networks.subnets().get(plan.subnet_id)
        if subnet is None:
            yield AwsError(
                "InvalidSubnetID.NotFound", f"The subnet ID '{plan.subnet_id}' does not exist"
            )
            return
        if plan.zone and plan.zone != subnet.zone:
            yield AwsError(
                "InvalidParameterValue",
                f"The subnet '{subnet.id}' is not in the Availability Zone '{plan.zone}'.",
            )
        if not self._catalogue.is_offered(plan.instance_type, subnet.zone):
            yield AwsError(
                "Unsupported",
                f"Your requested instance type ({plan.instance_type}) {NOT_IN_ZONE}"
                f" ({subnet.zone}).",
            )
        usage = "spot" if plan.spot else plan.market or "on-demand"
        if usage in {"spot", "on-demand"} and usage not in type_info.usage_classes:
            yield AwsError(
                "Unsupported", f"The instance type '{plan.instance_type}' is not sold as {usage}."
            )
        yield from launch_mistakes(plan.data)
        yield from _wrong_cards(plan, type_info)
        yield from self._wrong_image(plan.image_id, type_info.architectures)
        yield from self._wrong_groups(plan, subnet)
        yield from self._wrong_profile(plan)
        yield from self._wrong_placement(plan)

    def _wrong_image(self, image_id: str, architectures: tuple[str, ...]) -> Iterator[AwsError]:
        if not image_id.startswith("ami-"):
            yield AwsError("InvalidAMIID.Malformed", f'Invalid id: "{image_id}"')
            return
        image = self._images.get(image_id)
        if image is None:
            yield AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
        elif image.architecture not in architectures:
            yield AwsError(
                "InvalidParameterValue",
                f"The architecture '{','.join(architectures)}' of the specified instance type does"
                f" not match the architecture '{image.architecture}' of the specified AMI.",
            )

    def _wrong_groups(self, plan: InstancePlan, subnet: SimulatedSubnet) -> Iterator[AwsError]:
        known = self._networks.groups()
        wanted = {
            *plan.data.get("SecurityGroupIds", ()),
            *(
                group
                for interface in plan.data.get("NetworkInterfaces", ())
                for group in interface.get("Groups", ())
            ),
        }
        for group_id in sorted(wanted):
            group = known.get(group_id)
            if group is None:
                yield AwsError(
                    "InvalidGroup.NotFound", f"The security group '{group_id}' does not exist"
                )
            elif group.vpc_id != subnet.vpc_id:
                yield AwsError(
                    "InvalidParameter",
                    f"Security group {group_id} and subnet {subnet.id} belong to different networks.",
                )

    def _wrong_profile(self, plan: InstancePlan) -> Iterator[AwsError]:
        wanted = plan.data.get("IamInstanceProfile", {})
        name = wanted.get("Name") or wanted.get("Arn", "").rpartition("/")[2]
        if name and name not in self._profiles.all():
            yield AwsError(
                "InvalidParameterValue",
                f"Value ({name}) for parameter iamInstanceProfile.name is invalid."
                " Invalid IAM Instance Profile name",
            )

    def _wrong_placement(self, plan: InstancePlan) -> Iterator[AwsError]:
        group_id, name = plan.placement_group
        try:
            if group_id or name:
                self._groups.find(group_id=group_id, name=name)
        except AwsError as error:
            yield error
        target = plan.reservation_id
        if target and self._reservations.get(target) is None:
            yield AwsError(
                "InvalidCapacityReservationId.NotFound",
                f"The capacity reservation with ID '{target}' does not exist",
            )


def _wrong_cards(plan: InstancePlan, type_info: TypeInfo) -> Iterator[AwsError]:
    for interface in plan.data.get("NetworkInterfaces", ()):
        index, device = interface.get("NetworkCardIndex", 0), interface.get("DeviceIndex", 0)
        kind = interface.get("InterfaceType", "interface")
        card = type_info.network_cards.get(index)
        if card is None:
            said = f"The instance type {type_info.name} has no network card with index {index}."
        elif device >= card.max_interfaces:
            said = (
                f"The specified number '{device}' for the device index exceeds the maximum number of network"
                f" interfaces supported by the network card at network card index {index}."
            )
        elif card.interface_types and kind not in card.interface_types:
            said = f"Network card {index} does not support interfaces of the type '{kind}'."
        else:
            continue
        yield AwsError("InvalidParameterValue", said)
