"""Builds CreateFleet requests.

Pure functions of values. A fleet serves all claims with equal requests (`docs/design/aws.md`, "One
fleet for equal launches"): few calls a second may change something, and instances are many.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.labels import RESERVED, SPOT
from karpenter_provider_aws.instance_tags import claim_tags, to_tag_list
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    INSTANCE_TENANCY,
    TENANCY_DEDICATED,
    TENANCY_DEFAULT,
)
from karpenter_provider_aws.launch.filters import reservation_kind
from karpenter_provider_aws.launch.template_data import CAPACITY_BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from types_boto3_ec2.type_defs import (
        CreateFleetRequestTypeDef,
        FleetLaunchTemplateConfigRequestTypeDef,
        FleetLaunchTemplateOverridesRequestTypeDef,
    )

    from karpenter_core.provider.catalogue import Offering, Requirements
    from karpenter_core.provider.kit.launch_candidates import LaunchCandidate
    from karpenter_core.provider.kit.recent_launches import ClaimRef
    from karpenter_provider_aws.api.nodeclass import Subnet
    from karpenter_provider_aws.launch.template_groups import LaunchTemplate

__all__ = [
    "MAX_CONFIGS",
    "MAX_OVERRIDES",
    "FleetOptions",
    "LaunchTarget",
    "client_token",
    "fleet_request",
    "options_of",
    "targets_of",
    "tenancy_of",
]

MAX_CONFIGS: Final = 50
"""Launch templates of one fleet (the API's own description of CreateFleet)."""
MAX_OVERRIDES: Final = 300
"""Of one fleet, over all its templates (API documentation; of fleets of the type `instant` it says nothing)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchTarget:
    """One choice of a fleet: a type in a zone, from a template."""

    instance_type: str
    offering: Offering
    subnet: Subnet
    image_id: str
    template: str
    """Name of the launch template."""

    @property
    def reservation_id(self) -> str:
        """The reservation that it is bought from; empty for none."""
        return self.offering.requirements.single_value(CAPACITY_RESERVATION_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """The options of a fleet, beside its targets."""

    capacity_type: str
    reservation_type: str
    """Of a reserved launch: `default` or `capacity-block`."""
    interruptible: bool
    """Of a reserved launch: the reservation's owner may take the capacity back."""
    context: str
    has_own_prices: bool
    """Prices are not EC2's (an overlay, a discount): they decide, by priority."""


def tenancy_of(requirements: Requirements) -> str:
    """Return on what hardware a claim runs: shared, unless it allows dedicated alone."""
    if requirements.get(INSTANCE_TENANCY).has(TENANCY_DEFAULT):
        return TENANCY_DEFAULT
    return TENANCY_DEDICATED


def targets_of(
    templates: Iterable[LaunchTemplate],
    candidates: Iterable[LaunchCandidate],
    subnets: Mapping[str, Subnet],
) -> tuple[LaunchTarget, ...]:
    """Return what a fleet may choose from: by template, then in the order of the types.

    A type in a zone comes once in a template, and only where there is a subnet. Of more than a
    fleet takes, the first templates stay, and of these the cheapest choices.
    """
    offerings = {c.instance_type.name: c.offerings for c in candidates}
    targets: list[LaunchTarget] = []
    used: set[str] = set()
    for template in templates:
        if len(used) == MAX_CONFIGS:
            break
        for it in template.instance_types:
            seen: set[str] = set()
            for offering in offerings.get(it.name, ()):
                subnet = subnets.get(offering.zone)
                if subnet is None or offering.zone in seen:
                    continue
                target = LaunchTarget(
                    instance_type=it.name,
                    offering=offering,
                    subnet=subnet,
                    image_id=template.image_id,
                    template=template.name,
                )
                if template.reservation_id and target.reservation_id != template.reservation_id:
                    continue
                seen.add(offering.zone)
                used.add(template.name)
                targets.append(target)
    order = sorted(
        range(len(targets)),
        key=lambda i: (targets[i].offering.price.amount, targets[i].instance_type, i),
    )
    return tuple(targets[i] for i in sorted(order[:MAX_OVERRIDES]))


def fleet_request(
    targets: Sequence[LaunchTarget],
    options: FleetOptions,
    claims: Sequence[ClaimRef],
    tags: Mapping[str, str],
    *,
    attempts: Mapping[str, int] | None,
) -> CreateFleetRequestTypeDef:
    """Return the call for one instance of each claim; equal arguments give equal calls.

    `tags` are those of everything that is made. `attempts` counts by UID the earlier calls that
    were answered and brought a claim nothing: they must not be answered again.

    Raises:
        ClaimsTooManyError: the claims do not fit into the tags of a fleet.
    """
    owners = {**tags, **claim_tags(claims, other_tags=len(tags))}
    request: CreateFleetRequestTypeDef = {
        "Type": "instant",
        "LaunchTemplateConfigs": _configs(targets),
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": len(claims),
            "DefaultTargetCapacityType": _target_capacity_type(options),
        },
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": to_tag_list(owners)},
            {"ResourceType": "volume", "Tags": to_tag_list(tags)},
            {"ResourceType": "fleet", "Tags": to_tag_list(tags)},
        ],
    }
    _add_strategy(request, options)
    if options.context:
        request["Context"] = options.context
    request["ClientToken"] = client_token(request, claims, attempts or {})
    return request


def client_token(
    request: CreateFleetRequestTypeDef, claims: Iterable[ClaimRef], attempts: Mapping[str, int]
) -> str:
    """Return the idempotency token of a call: a digest of what it asks, and for whom."""
    whole = {
        "request": {**request, "ClientToken": ""},
        "claims": sorted((claim.uid, attempts.get(claim.uid, 0)) for claim in claims),
    }
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def _configs(targets: Iterable[LaunchTarget]) -> list[FleetLaunchTemplateConfigRequestTypeDef]:
    overrides: dict[str, list[FleetLaunchTemplateOverridesRequestTypeDef]] = {}
    for target in targets:
        override = {
            "InstanceType": target.instance_type,
            "SubnetId": target.subnet.id,
            "ImageId": target.image_id,
            # The subnet says it too; an error that comes back then names its zone.
            "AvailabilityZone": target.offering.zone,
            "Priority": target.offering.price.amount,
        }
        overrides.setdefault(target.template, []).append(
            cast("FleetLaunchTemplateOverridesRequestTypeDef", override)
        )
    return [
        {
            "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "$Latest"},
            "Overrides": items,
        }
        for name, items in overrides.items()
    ]


def _target_capacity_type(
    options: FleetOptions,
) -> _TargetCapacityType:
    if options.capacity_type == SPOT:
        return "spot"
    if options.capacity_type == RESERVED and options.reservation_type == CAPACITY_BLOCK:
        return "capacity-block"
    if options.capacity_type == RESERVED and options.interruptible:
        return "reserved-capacity"
    return "on-demand"


def _add_strategy(request: CreateFleetRequestTypeDef, options: FleetOptions) -> None:
    """Say how to choose; of a capacity block there is no choice, and EC2 refuses the field."""
    by_price = not options.has_own_prices
    match _target_capacity_type(options):
        case "spot":
            request["SpotOptions"] = {
                "AllocationStrategy": "price-capacity-optimized"
                if by_price
                else "capacity-optimized-prioritized"
            }
        case "on-demand":
            request["OnDemandOptions"] = {
                "AllocationStrategy": "lowest-price" if by_price else "prioritized"
            }
        case "reserved-capacity":
            request["ReservedCapacityOptions"] = {
                "ReservationTypes": ["interruptible-capacity-reservation"]
            }
        case _:
            pass


def options_of(
    candidates: Iterable[LaunchCandidate],
    capacity_type: str,
    *,
    context: str,
    has_own_prices: bool,
) -> FleetOptions:
    """Return the options of a launch; after the filters all reservations are of one kind."""
    kind = ("", False)
    if capacity_type == RESERVED:
        kind = next((reservation_kind(o) for c in candidates for o in c.offerings), kind)
    return FleetOptions(
        capacity_type=capacity_type,
        reservation_type=kind[0],
        interruptible=kind[1],
        context=context,
        has_own_prices=has_own_prices,
    )


if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    _TargetCapacityType: TypeAlias = Literal[
        "spot", "on-demand", "capacity-block", "reserved-capacity"
    ]
