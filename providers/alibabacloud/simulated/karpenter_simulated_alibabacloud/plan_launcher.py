"""Creates the instances of a plan, as many as capacity allows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.instances import SimulatedInstance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.behaviour import CloudBehaviour
    from karpenter_simulated_alibabacloud.capacity import CapacityLimits
    from karpenter_simulated_alibabacloud.deployment_sets import DeploymentSets
    from karpenter_simulated_alibabacloud.instance_plan import InstancePlan
    from karpenter_simulated_alibabacloud.instances import Instances
    from karpenter_simulated_alibabacloud.networks import Networks
    from karpenter_simulated_alibabacloud.parameters import RequestParameters
    from karpenter_simulated_alibabacloud.plans import InstancePlanChecks
    from karpenter_simulated_alibabacloud.reservations import Reservations
    from karpenter_simulated_alibabacloud.type_catalogue import TypeCatalogue

__all__ = ["PlanLauncher"]

_HOPS: Final = 1


@final
class PlanLauncher:
    """Launches instances of one pool at a time."""

    def __init__(
        self,
        account: Account,
        behaviour: CloudBehaviour,
        *,
        instances: Instances,
        catalogue: TypeCatalogue,
        capacity: CapacityLimits,
        networks: Networks,
        checks: InstancePlanChecks,
        deployment_sets: DeploymentSets,
        reservations: Reservations,
    ) -> None:
        self._account: Final = account
        self._behaviour: Final = behaviour
        self._instances: Final = instances
        self._catalogue: Final = catalogue
        self._capacity: Final = capacity
        self._networks: Final = networks
        self._checks: Final = checks
        self._deployment_sets: Final = deployment_sets
        self._reservations: Final = reservations

    def capacity_left(
        self, plan: InstancePlan, wanted: int, request: RequestParameters
    ) -> tuple[Sequence[tuple[str, int]], CloudError | None]:
        """Return how many of the instances that are wanted can be had and from where, and why no more.

        Where is the id of a private pool, or "" for the public one.
        """
        try:
            sources = self._reservations.sources(plan.pool, request)
        except CloudError as error:
            return (), error
        limits = (
            self._capacity.allowed(plan.pool),
            (self._addresses_left(plan), self._no_addresses(plan)),
            (self._deployment_sets.left(plan), self._deployment_sets.beyond(plan)),
        )
        had, error = wanted, None
        for limit, beyond in limits:
            if limit is not None and limit < had:
                had, error = limit, beyond
        given: list[tuple[str, int]] = []
        for source in sources:
            left = self._left(plan, source)
            number = had if left is None else min(had, left)
            if number:
                given.append((source, number))
                had -= number
        if had:
            error = self._capacity.sold_out(plan.pool)
        return given, error

    def _left(self, plan: InstancePlan, source: str) -> int | None:
        reservation = self._reservations.get(source)
        return (
            self._reservations.left(reservation) if reservation else self._capacity.left(plan.pool)
        )

    def _addresses_left(self, plan: InstancePlan) -> int:
        return self._networks.free_addresses(plan.vswitch) // self._addresses(plan)

    def _no_addresses(self, plan: InstancePlan) -> CloudError:
        return CloudError(
            self._capacity.no_addresses_code,
            f"The vSwitch {plan.vswitch.id} has not enough free addresses.",
        )

    def _addresses(self, plan: InstancePlan) -> int:
        configured = self._behaviour.addresses_per_instance
        if configured is not None:
            return max(1, configured)
        type_info = self._catalogue.type_info(plan.pool.instance_type)
        if type_info is None:
            return 1
        return 1 + (type_info.interfaces - 1) * type_info.addresses_per_interface

    def launch(
        self,
        plan: InstancePlan,
        number: int,
        *,
        source: str = "",
        group_id: str = "",
        client_token: str = "",
    ) -> Sequence[SimulatedInstance]:
        """Launch instances for which there is room."""
        used = {each.address for each in self._instances.living}
        free = (
            address
            for position in range(plan.vswitch.size)
            if (address := plan.vswitch.address(position)) not in used
        )
        made = [
            self._made(plan, next(free), source=source, group_id=group_id, token=client_token)
            for _ in range(number)
        ]
        for position, instance in enumerate(made, start=1):
            share = self._behaviour.launch_seconds * position / number
            instance.shown_at = instance.launched_at + timedelta(seconds=share)
            self._instances.add(instance)
        return made

    def _made(
        self, plan: InstancePlan, address: str, *, source: str, group_id: str, token: str
    ) -> SimulatedInstance:
        own, template = plan.template.own, plan.template
        type_info = self._catalogue.type_info(plan.pool.instance_type)
        instance_id = self._account.ids.new("i")
        return SimulatedInstance(
            id=instance_id,
            pool=plan.pool,
            family=type_info.family if type_info else "",
            image_id=plan.image.id,
            architecture=plan.image.architecture,
            vpc_id=plan.vswitch.vpc_id,
            vswitch_id=plan.vswitch.id,
            address=address,
            addresses=self._addresses(plan),
            security_groups=template.security_groups,
            user_data=template.user_data,
            system_disk=template.system_disk.of(
                self._checks.category(plan, template.system_disk) or ""
            ),
            data_disks=tuple(
                each.of(self._checks.category(plan, each) or "") for each in template.data_disks
            ),
            launched_at=self._account.clock(),
            tags={**template.tags, **dict(self._behaviour.tags_added)},
            spot_strategy=plan.spot_strategy or "NoSpot",
            spot_price_limit=plan.price_limit,
            spot_duration=own.integer("SpotDuration", 1),
            group_id=group_id,
            client_token=token,
            name=own.text("InstanceName") or instance_id,
            key_pair=own.text("KeyPairName"),
            password=own.text("Password"),
            password_inherit=own.flag("PasswordInherit"),
            ram_role=own.text("RamRoleName"),
            resource_group_id=own.text("ResourceGroupId"),
            deployment_set_id=own.text("DeploymentSetId"),
            reservation_id=source,
            takes_stock=not source,
            public=own.integer("InternetMaxBandwidthOut") > 0,
            http_tokens=own.choice("HttpTokens", ("optional", "required"), "optional"),
            http_endpoint=own.choice("HttpEndpoint", ("enabled", "disabled"), "enabled"),
            http_hops=own.integer("HttpPutResponseHopLimit", _HOPS),
        )
