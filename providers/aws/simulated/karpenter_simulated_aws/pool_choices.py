"""Orders the overrides that a fleet tries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_simulated_aws.plans import InstancePlan
from karpenter_simulated_aws.protocol import AwsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from types_boto3_ec2.type_defs import (
        CreateFleetRequestTypeDef,
        FleetLaunchTemplateOverridesRequestTypeDef,
        RequestLaunchTemplateDataTypeDef,
    )

    from karpenter_simulated_aws.networks import SimulatedSubnet
    from karpenter_simulated_aws.prices import Prices
    from karpenter_simulated_aws.templates import LaunchTemplate, LaunchTemplates

__all__ = ["PoolChoice", "choices_of"]

_MOST_OVERRIDES: Final = 300
_PRIORITISED: Final = frozenset({"prioritized", "capacity-optimized-prioritized"})
_ON_DEMAND_STRATEGIES: Final = frozenset({"lowest-price", "prioritized"})
_SPOT_STRATEGIES: Final = frozenset(
    {
        "lowest-price",
        "diversified",
        "capacity-optimized",
        "capacity-optimized-prioritized",
        "price-capacity-optimized",
    }
)
_MARKETS: Final = {
    "capacity-block": "capacity-block",
    "reserved-capacity": "interruptible-capacity-reservation",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChoice:
    """One override with its launch template."""

    plan: InstancePlan
    template: LaunchTemplate
    version: int
    override: FleetLaunchTemplateOverridesRequestTypeDef
    pool: InstancePool
    price: float

    def fleet_fields(self) -> Mapping[str, object]:
        """Return the choice as answers repeat it."""
        return {
            "LaunchTemplateSpecification": {
                "LaunchTemplateId": self.template.id,
                "Version": str(self.version),
            },
            "Overrides": self.override,
        }


def choices_of(
    request: CreateFleetRequestTypeDef,
    *,
    templates: LaunchTemplates,
    subnets: Mapping[str, SimulatedSubnet],
    prices: Prices,
) -> list[PoolChoice]:
    """Return the overrides in the order in which they are tried."""
    target = request["TargetCapacitySpecification"].get("DefaultTargetCapacityType", "on-demand")
    spot = target == "spot"
    market = _MARKETS.get(target, "")
    choices: list[PoolChoice] = []
    for config in request["LaunchTemplateConfigs"]:
        wanted = config.get("LaunchTemplateSpecification", {})
        template = templates.find(
            template_id=wanted.get("LaunchTemplateId", ""),
            name=wanted.get("LaunchTemplateName", ""),
        )
        version, data = template.version(wanted.get("Version"))
        _check_unique(config.get("Overrides", ()))
        for override in config.get("Overrides") or [{}]:
            plan = _plan(data, override, spot=spot, market=market)
            subnet = subnets.get(plan.subnet_id)
            zone = subnet.zone if subnet else plan.zone
            choices.append(
                PoolChoice(
                    plan=plan,
                    template=template,
                    version=version,
                    override=override,
                    pool=InstancePool(
                        capacity_type=plan.lifecycle,
                        instance_type=plan.instance_type,
                        zone=zone,
                    ),
                    price=prices.spot(plan.instance_type, zone)
                    if spot
                    else prices.on_demand(plan.instance_type),
                )
            )
    if len(choices) > _MOST_OVERRIDES:
        raise AwsError(
            "InvalidFleetConfig",
            f"The maximum number of overrides is {_MOST_OVERRIDES}, not {len(choices)}.",
        )
    options = request.get("SpotOptions" if spot else "OnDemandOptions", {})
    strategy = options.get("AllocationStrategy", "lowest-price")
    if strategy not in (_SPOT_STRATEGIES if spot else _ON_DEMAND_STRATEGIES):
        raise AwsError("InvalidParameterValue", f"Invalid allocation strategy: {strategy}")
    if strategy in _PRIORITISED:
        return sorted(choices, key=_by_priority)
    return sorted(choices, key=lambda choice: choice.price)


def _plan(
    data: RequestLaunchTemplateDataTypeDef,
    override: FleetLaunchTemplateOverridesRequestTypeDef,
    *,
    spot: bool,
    market: str,
) -> InstancePlan:
    interface = (data.get("NetworkInterfaces") or [{}])[0]
    return InstancePlan(
        data=data,
        instance_type=override.get("InstanceType") or data.get("InstanceType", ""),
        image_id=override.get("ImageId") or data.get("ImageId", ""),
        subnet_id=override.get("SubnetId") or interface.get("SubnetId", ""),
        zone=override.get("AvailabilityZone", ""),
        spot=spot,
        market=market,
    )


def _check_unique(overrides: Sequence[FleetLaunchTemplateOverridesRequestTypeDef]) -> None:
    pools = [
        (each.get("InstanceType"), each.get("SubnetId"), each.get("AvailabilityZone"))
        for each in overrides
    ]
    if len(set(pools)) < len(pools):
        raise AwsError("InvalidFleetConfig", "The overrides contain duplicate instance pools.")


def _by_priority(choice: PoolChoice) -> tuple[float, float]:
    """Lower numbers first, those without one last; then the cheaper one."""
    return choice.override.get("Priority", float("inf")), choice.price
