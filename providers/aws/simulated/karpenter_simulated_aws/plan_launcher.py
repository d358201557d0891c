"""Creates the instances of a plan, as many as capacity allows."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ON_DEMAND, RESERVED, SPOT
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_simulated_aws.instances import SimulatedInstance
from karpenter_simulated_aws.interfaces import addresses_wanted, interfaces_for
from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.selection import check_tags
from karpenter_simulated_aws.type_catalogue import zone_ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.provider.kit.simulated.faults import CloudError
    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.capacity import CapacityLimits
    from karpenter_simulated_aws.images import Images
    from karpenter_simulated_aws.instances import Instances
    from karpenter_simulated_aws.networks import Networks, SimulatedSubnet
    from karpenter_simulated_aws.placement import PlacementGroup, PlacementGroups
    from karpenter_simulated_aws.plans import InstancePlan
    from karpenter_simulated_aws.profiles import SimulatedProfiles
    from karpenter_simulated_aws.reservations import Reservation, Reservations

__all__ = ["PlanLauncher"]


@final
class PlanLauncher:
    """Makes instances."""

    def __init__(
        self,
        account: Account,
        *,
        instances: Instances,
        capacity: CapacityLimits,
        networks: Networks,
        images: Images,
        profiles: SimulatedProfiles,
        reservations: Reservations,
        groups: PlacementGroups,
    ) -> None:
        self._account: Final = account
        self._instances: Final = instances
        self._capacity: Final = capacity
        self._networks: Final = networks
        self._images: Final = images
        self._profiles: Final = profiles
        self._reservations: Final = reservations
        self._groups: Final = groups

    def capacity_left(self, plan: InstancePlan, wanted: int) -> tuple[int, CloudError | None]:
        """Return how many of `wanted` can be had, and why not the rest."""
        subnet = self._networks.subnets()[plan.subnet_id]
        free = subnet.usable - self._instances.used_addresses().get(subnet.id, 0)
        limits: list[tuple[int | None, CloudError | None]] = [
            (
                max(0, free) // max(1, addresses_wanted(plan.data)),
                AwsError(
                    "InsufficientFreeAddressesInSubnet",
                    f"There are not enough free addresses in subnet '{subnet.id}' to satisfy the"
                    " requested number of instances.",
                ),
            )
        ]
        if group := self._placement_group(plan):
            limits.append(self._groups.capacity_left(group, subnet.zone))
        if plan.reserved_only or plan.market:
            limits.append((self._reserved_capacity_left(plan, subnet), _exceeded()))
        else:
            pool = self._pool(plan, subnet)
            limits.append(self._capacity.allowed(pool))
            if self._open_reservation(plan, subnet) is None:
                limits.append((self._capacity.left(pool), self._capacity.sold_out(pool)))
        had = wanted
        why: CloudError | None = None
        for limit, error in limits:
            if limit is not None and limit < had:
                had, why = max(0, limit), error
        return had, why

    def launch(
        self,
        plan: InstancePlan,
        count: int,
        *,
        launch_id: str,
        tags: Mapping[str, str],
        volume_tags: Mapping[str, str],
        interface_tags: Mapping[str, str],
        fleet_id: str = "",
        client_token: str = "",
    ) -> list[SimulatedInstance]:
        """Make so many instances; `room` has said that there is room for them."""
        check_tags({k: v for k, v in tags.items() if not k.startswith("aws:")})
        subnet = self._networks.subnets()[plan.subnet_id]
        known_groups = self._networks.groups()
        taken = {
            interface.address
            for each in self._instances.living
            if each.subnet_id == subnet.id
            for interface in each.interfaces
        }
        addresses = (each for each in subnet.addresses() if each not in taken)
        made: list[SimulatedInstance] = []
        first_slow = count - self._instances.slow_of(count)
        for number in range(count):
            group = self._placement_group(plan)
            placement = plan.data.get("Placement", {})
            reservation = self._reservation(plan, subnet)
            profile = self._profiles.all().get(
                plan.data.get("IamInstanceProfile", {}).get("Name", "")
            )
            image = self._images.get(plan.image_id)
            root = image.root_device if image else "/dev/xvda"
            instance = SimulatedInstance(
                id=self._account.ids.new("i"),
                launch_id=launch_id,
                pool=InstancePool(
                    capacity_type=_capacity_type(plan, reservation),
                    instance_type=plan.instance_type,
                    zone=subnet.zone,
                ),
                architecture=image.architecture if image else "x86_64",
                image_id=plan.image_id,
                windows=image is not None and image.windows,
                vpc_id=subnet.vpc_id,
                subnet_id=subnet.id,
                zone_id=zone_ids(self._account)[subnet.zone],
                market="spot" if plan.spot else plan.market,
                spot_request_id=self._account.ids.new("sir")[:12] if plan.spot else "",
                capacity_reservation_id=reservation.id if reservation else "",
                data=plan.data,
                user_data=b64decode(plan.data.get("UserData", "")),
                profile_arn=profile.arn if profile else "",
                profile_id=profile.id if profile else "",
                interfaces=interfaces_for(
                    plan.data,
                    subnet=subnet,
                    groups=known_groups,
                    addresses=addresses,
                    ids=self._account.ids,
                    tags=interface_tags,
                ),
                placement_group_id=group.id if group else "",
                placement_group_name=group.name if group else "",
                partition=self._groups.partition(group, placement.get("PartitionNumber", 0))
                if group
                else 0,
                fleet_id=fleet_id,
                client_token=client_token,
                launched_at=self._account.clock(),
                tags=dict(tags),
                volume_tags=volume_tags,
                volumes=tuple(
                    (device, self._account.ids.new("vol"))
                    for device in {
                        root: None,
                        **{
                            mapping.get("DeviceName", ""): None
                            for mapping in plan.data.get("BlockDeviceMappings", ())
                        },
                    }
                ),
                root_device=root,
                is_slow=number >= first_slow,
                is_protected=plan.data.get("DisableApiTermination", False),
            )
            self._instances.add(instance)
            made.append(instance)
        return made

    def _pool(self, plan: InstancePlan, subnet: SimulatedSubnet) -> InstancePool:
        return InstancePool(
            capacity_type=SPOT if plan.spot else ON_DEMAND,
            instance_type=plan.instance_type,
            zone=subnet.zone,
        )

    def _placement_group(self, plan: InstancePlan) -> PlacementGroup | None:
        group_id, name = plan.placement_group
        return self._groups.find(group_id=group_id, name=name) if group_id or name else None

    def _open_reservation(self, plan: InstancePlan, subnet: SimulatedSubnet) -> Reservation | None:
        """Return the reservation that an instance takes up although the plan does not name it."""
        if not plan.takes_open_reservations:
            return None
        return self._reservations.open_for(plan.instance_type, subnet.zone)

    def _reservation(self, plan: InstancePlan, subnet: SimulatedSubnet) -> Reservation | None:
        if plan.reservation_id:
            return self._reservations.get(plan.reservation_id)
        if plan.market or plan.reserved_only:
            return self._reservations.open_for(plan.instance_type, subnet.zone)
        return self._open_reservation(plan, subnet)

    def _reserved_capacity_left(self, plan: InstancePlan, subnet: SimulatedSubnet) -> int:
        reservation = self._reservation(plan, subnet)
        if (
            reservation is None
            or reservation.market != plan.market
            or (reservation.instance_type, reservation.zone) != (plan.instance_type, subnet.zone)
            or reservation.state(self._account.clock()) != "active"
        ):
            return 0
        return self._reservations.available()[reservation.id]


def _capacity_type(plan: InstancePlan, reservation: Reservation | None) -> str:
    if plan.spot:
        return SPOT
    return RESERVED if reservation else ON_DEMAND


def _exceeded() -> AwsError:
    return AwsError(
        "ReservationCapacityExceeded",
        "The requested reservation does not have sufficient compatible and available capacity for"
        " this request.",
    )
