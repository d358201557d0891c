"""Builds fleet calls from the subnets and offerings available now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.launch.groups import claim_ref
from karpenter_provider_aws.instance_tags import claim_tags, owned_tags
from karpenter_provider_aws.launch.fleet import fleet_request, targets_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from types_boto3_ec2.type_defs import CreateFleetRequestTypeDef

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_core.provider.kit.subnet_addresses import AddressHold
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass, Subnet
    from karpenter_provider_aws.discovery.reservations import ReservationCounts
    from karpenter_provider_aws.discovery.subnets import SubnetReader
    from karpenter_provider_aws.launch.fleet import LaunchTarget
    from karpenter_provider_aws.launch.plans import LaunchPlan
    from karpenter_provider_aws.launch.template_groups import LaunchTemplate

__all__ = ["Availability", "FleetCall", "FleetCallBuilder"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetCall:
    """A call as it was made, to be read with its answer, and repeated if none comes."""

    plan: LaunchPlan
    requests: Mapping[str, LaunchRequest]
    """By token."""
    templates: tuple[LaunchTemplate, ...]
    targets: tuple[LaunchTarget, ...]
    tags: Mapping[str, str]
    """Of its instances."""
    request: CreateFleetRequestTypeDef
    hold: AddressHold[Subnet]

    def allowed_types(self) -> tuple[InstanceType, ...]:
        """Return the types that any of its claims may have."""
        types = {it.name: it for each in self.requests.values() for it in each.instance_types}
        return tuple(types.values())

    def untried_templates(self, templates: Iterable[LaunchTemplate]) -> tuple[LaunchTemplate, ...]:
        """Return the templates that it was not made with."""
        return tuple(template for template in templates if template not in self.templates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The records of available capacity that launches read and update."""

    subnets: SubnetReader
    reservation_counts: ReservationCounts
    unavailable_offerings: UnavailableOfferings


@final
class FleetCallBuilder:
    """Builds calls for a cluster; callable from any thread."""

    def __init__(self, clock: Clock, *, cluster: str, availability: Availability) -> None:
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._availability: Final = availability

    def tags(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the tags of everything that is made for a plan."""
        return owned_tags(
            plan.node_class.spec.tags,
            cluster=self._cluster,
            node_class=plan.node_class.name,
            node_pool=plan.group.node_pool,
        )

    def build(
        self,
        plan: LaunchPlan,
        requests: Sequence[LaunchRequest],
        templates: tuple[LaunchTemplate, ...],
        attempts: Mapping[str, int],
    ) -> FleetCall | None:
        """Return the call for some of a plan's claims; None when it could have no target.

        It holds addresses of its subnets.
        """
        subnets = self._availability.subnets
        hold = subnets.zonal_subnets(
            self._with_open_subnets(plan.node_class),
            instance_types=plan.group.instance_types(),
            capacity_type=plan.group.capacity_type,
            instances=len(requests),
        )
        targets = targets_of(templates, plan.group.candidates, hold.subnets)
        if not targets:
            subnets.restore(hold)
            return None
        used = {target.template for target in targets}
        claims, owned = [claim_ref(request) for request in requests], self.tags(plan)
        return FleetCall(
            plan=plan,
            requests={request.token: request for request in requests},
            templates=tuple(template for template in templates if template.name in used),
            targets=targets,
            tags={**owned, **claim_tags(claims, other_tags=len(owned))},
            request=fleet_request(targets, plan.options, claims, owned, attempts=attempts),
            hold=hold,
        )

    def has_open_subnet(self, node_class: EC2NodeClass, zones: Iterable[str]) -> bool:
        """Whether one of these zones has a subnet that was not found full."""
        wanted = frozenset(zones)
        return any(
            subnet.zone in wanted for subnet in self._with_open_subnets(node_class).status.subnets
        )

    def _with_open_subnets(self, node_class: EC2NodeClass) -> EC2NodeClass:
        """Return a NodeClass without the subnets that were found full."""
        full = self._availability.unavailable_offerings.view(now=self._clock.now()).subnets
        if not full:
            return node_class
        open_subnets = tuple(s for s in node_class.status.subnets if s.id not in full)
        status = node_class.status.model_copy(update={"subnets": open_subnets})
        return node_class.model_copy(update={"status": status})
