"""Builds launch calls from the offerings and addresses available now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import SPOT
from karpenter_core.errors import ExhaustedScope, InsufficientCapacityError
from karpenter_core.provider.kit.launch.groups import claim_ref
from karpenter_core.provider.kit.launch_candidates import offering_keys
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_alibabacloud.api.options import CAPACITY_OPTIMIZED
from karpenter_provider_alibabacloud.catalogue.system_disks import usable_categories
from karpenter_provider_alibabacloud.discovery.vswitches import least_addresses
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS, owned_tags
from karpenter_provider_alibabacloud.launch.filters import bootable
from karpenter_provider_alibabacloud.launch.plans import LaunchContext
from karpenter_provider_alibabacloud.launch.requests import (
    CREATE_GROUP,
    RUN_INSTANCES,
    LaunchCallSpec,
    client_token,
    group_request,
    needs_run_instances,
    run_request,
    spot_strategy,
)
from karpenter_provider_alibabacloud.launch.targets import (
    best_of,
    in_first_zone,
    steadiest_first,
    targets_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_core.provider.kit.launch_candidates import LaunchCandidate
    from karpenter_core.provider.kit.reservation_counts import ReservationCounts
    from karpenter_core.provider.kit.subnet_addresses import AddressHold
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.catalogue.system_disks import SystemDiskReader
    from karpenter_provider_alibabacloud.discovery.cluster import ClusterDetails
    from karpenter_provider_alibabacloud.discovery.vswitches import VSwitchReader, ZonalVSwitch
    from karpenter_provider_alibabacloud.launch.boot_configuration import BootConfiguration
    from karpenter_provider_alibabacloud.launch.plans import LaunchPlan
    from karpenter_provider_alibabacloud.launch.targets import LaunchTarget
    from karpenter_provider_alibabacloud.prices import RegionPrices

__all__ = ["ADDRESSES_LIFE", "Availability", "LaunchApiCall", "LaunchCallBuilder", "TriedTarget"]

ADDRESSES_LIFE: Final = timedelta(minutes=5)
"""Pause of launches into a vSwitch with too few free addresses."""

TriedTarget = tuple[str, str, str]
"""Target of an attempt: instance type, vSwitch, and the category of the system disk where one is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The records of available capacity that launches read and update."""

    vswitches: VSwitchReader
    reservation_counts: ReservationCounts
    unavailable_offerings: UnavailableOfferings
    disks: SystemDiskReader
    prices: RegionPrices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchApiCall:
    """A call as it was made, to be read with its answer, and made again if none comes."""

    plan: LaunchPlan
    requests: Mapping[str, LaunchRequest]
    """By token."""
    spec: LaunchCallSpec
    action: str
    parameters: Mapping[str, object]
    hold: AddressHold[ZonalVSwitch]

    @property
    def targets(self) -> tuple[LaunchTarget, ...]:
        """Targets that the call may take."""
        return self.spec.targets

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags of its instances."""
        return self.spec.tags

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of system disks that it may take."""
        if self.spec.category:
            return (self.spec.category,)
        return self.plan.node_class.spec.system_disk_categories

    def trials(self, targets: Iterable[LaunchTarget]) -> frozenset[TriedTarget]:
        """Return what trying some of its pairs has tried."""
        return frozenset(_trial(target, self.spec.category) for target in targets)

    @property
    def has_images(self) -> bool:
        """Whether it asks for more than one image."""
        return len({target.image_id for target in self.targets}) > 1


def _trial(target: LaunchTarget, category: str) -> TriedTarget:
    return target.instance_type.name, target.vswitch.id, category


@final
class LaunchCallBuilder:
    """Puts calls together; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        region: str,
        cluster_id: str,
        launch_api: str,
        availability: Availability,
        details: Callable[[], ClusterDetails],
    ) -> None:
        """`launch_api` is as in the settings, `details` is `Clusters.details`."""
        self._clock: Final = clock
        self._region: Final = region
        self._cluster_id: Final = cluster_id
        self._launch_api: Final = launch_api
        self._availability: Final = availability
        self._details: Final = details
        self._one_image_a_call = False

    def tags(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the tags of all instances of a plan, but for those of their claims."""
        return owned_tags(
            plan.node_class.spec.tags,
            cluster_id=self._cluster_id,
            node_class=plan.node_class.name,
            node_pool=plan.group.node_pool,
        )

    def launch_context(self, node_class: ECSNodeClass) -> LaunchContext:
        """Return what is known at this moment of what can be had."""
        return LaunchContext(
            node_class=node_class,
            shortages=self._availability.unavailable_offerings.view(now=self._clock.now()),
            reserved_left=self._availability.reservation_counts.remaining,
            disks=self._availability.disks.of,
        )

    def use_one_image_a_call(self) -> None:
        """Note that ECS does not take an image for each choice of a group."""
        self._one_image_a_call = True

    def build(
        self,
        plan: LaunchPlan,
        boot_configuration: BootConfiguration,
        requests: Sequence[LaunchRequest],
        *,
        zones: Sequence[str] = (),
        tried: Collection[TriedTarget] = (),
        attempts: Mapping[str, int],
    ) -> LaunchApiCall | None:
        """Return the call for some of a plan's claims; None when nothing is left to try.

        It is for the first of `zones` in which something is, or for all zones if none are given.

        Raises:
            BadInputError, CloudProviderError: the instances would have no user data.
        """
        node_class = plan.node_class
        launch_context = self.launch_context(node_class)
        candidates = self._bootable(plan.open_candidates(launch_context), launch_context)
        least = least_addresses(
            (candidate.to_instance_type() for candidate in candidates),
            plan.group.capacity_type,
            self._details().cni,
        )
        hold = self._hold(node_class, least, launch_context, len(requests))
        self._note_short(node_class, candidates, least)
        wanted: LaunchCallSpec | None = None
        try:
            wanted = self._spec(plan, boot_configuration, requests, candidates, hold, zones, tried)
        finally:
            if wanted is None:
                self._availability.vswitches.restore(hold)
        if wanted is None:
            return None
        action, build = (
            (RUN_INSTANCES, run_request) if wanted.category else (CREATE_GROUP, group_request)
        )
        parameters = build(wanted, region=self._region)
        claims = [claim_ref(request) for request in requests]
        parameters["ClientToken"] = client_token(parameters, claims, attempts)
        return LaunchApiCall(
            plan=plan,
            requests={request.token: request for request in requests},
            spec=wanted,
            action=action,
            parameters=parameters,
            hold=hold,
        )

    def unavailable_error(self, plan: LaunchPlan) -> InsufficientCapacityError:
        """Return the outcome of claims for which there is nothing to try from the beginning."""
        free = self.free_addresses(plan.node_class)
        zones = sorted({o.zone for candidate in plan.group.candidates for o in candidate.offerings})
        free_text = ", ".join(f"{zone} {free.get(zone, 0)}" for zone in zones)
        return InsufficientCapacityError(
            "no planned offering is available now; free addresses in the vSwitches of "
            f"spec.vSwitchSelectorTerms: {free_text}",
            offerings=offering_keys(plan.group.candidates),
            scope=ExhaustedScope.NODE_CLASS,
        )

    def free_addresses(self, node_class: ECSNodeClass) -> dict[str, int]:
        """Return the free addresses of the best vSwitch of each zone."""
        free: dict[str, int] = {}
        for vswitch in node_class.status.v_switches:
            left = self._availability.vswitches.expected_addresses(vswitch.id)
            free[vswitch.zone_id] = max(left, free.get(vswitch.zone_id, 0))
        return free

    def _uses_run_instances(self, node_class: ECSNodeClass) -> bool:
        return self._launch_api == RUN_INSTANCES or needs_run_instances(node_class)

    def _bootable(
        self, candidates: Sequence[LaunchCandidate], launch_context: LaunchContext
    ) -> tuple[LaunchCandidate, ...]:
        if not (launch_context.wants_disks or self._uses_run_instances(launch_context.node_class)):
            return tuple(candidates)
        known = launch_context.disks([c.instance_type.name for c in candidates])
        return bootable(candidates, known, launch_context.node_class.spec.system_disk_categories)

    def _hold(
        self,
        node_class: ECSNodeClass,
        least: Mapping[str, int],
        launch_context: LaunchContext,
        instances: int,
    ) -> AddressHold[ZonalVSwitch]:
        """Keep addresses in the vSwitches that were not found full."""
        marked = launch_context.shortages.subnets
        if marked:
            left = tuple(v for v in node_class.status.v_switches if v.id not in marked)
            status = node_class.status.model_copy(update={"v_switches": left})
            node_class = node_class.model_copy(update={"status": status})
        return self._availability.vswitches.zonal_vswitches(
            node_class, addresses_each=least, instances=instances
        )

    def _note_short(
        self,
        node_class: ECSNodeClass,
        candidates: Sequence[LaunchCandidate],
        least: Mapping[str, int],
    ) -> None:
        """Close vSwitches that have too few addresses for the candidates, so that no launch plans it.

        Only for these types, as others take fewer addresses; and not the zone, where the vSwitches of
        another NodeClass may have room.
        """
        vswitches = self._availability.vswitches
        short = [
            UnavailableOffering(
                candidate.instance_type.name,
                offering.zone,
                offering.capacity_type,
                subnet=vswitch.id,
            )
            for vswitch in node_class.status.v_switches
            if vswitches.is_short(vswitch.id, least.get(vswitch.zone_id, 1))
            for candidate in candidates
            for offering in candidate.offerings
            if offering.zone == vswitch.zone_id
        ]
        if short:
            now = self._clock.now()
            self._availability.unavailable_offerings.mark(*short, now=now, life=ADDRESSES_LIFE)

    def _spec(
        self,
        plan: LaunchPlan,
        boot_configuration: BootConfiguration,
        requests: Sequence[LaunchRequest],
        candidates: Sequence[LaunchCandidate],
        hold: AddressHold[ZonalVSwitch],
        zones: Sequence[str],
        tried: Collection[TriedTarget],
    ) -> LaunchCallSpec | None:
        node_class = plan.node_class
        uses_run = self._uses_run_instances(node_class)
        free = {
            zone: self._availability.vswitches.expected_addresses(vswitch.id)
            for zone, vswitch in hold.subnets.items()
        }
        left = [
            target
            for target in targets_of(
                candidates, hold.subnets, free=free, image_of=boot_configuration.image_of
            )
            if _trial(target, self._category(target, node_class) if uses_run else "") not in tried
        ]
        if plan.group.capacity_type == SPOT and spot_strategy(node_class) == CAPACITY_OPTIMIZED:
            left = steadiest_first(left, self._availability.prices.interruption_percent)
        targets = in_first_zone(left, zones) if zones else tuple(left)
        if not targets:
            return None
        user_data = boot_configuration.user_data(targets[0].instance_type)
        same = [
            target
            for target in targets
            if boot_configuration.user_data(target.instance_type) == user_data
            and (not self._one_image_a_call or target.image_id == targets[0].image_id)
        ]
        chosen = (
            tuple(same[:1])
            if uses_run
            else best_of(same, needs_variety=plan.group.requirements.has_min_values)
        )
        owned = self.tags(plan)
        claims = [claim_ref(request) for request in requests]
        return LaunchCallSpec(
            node_class=node_class,
            capacity_type=plan.group.capacity_type,
            targets=chosen,
            amount=len(requests),
            user_data=user_data,
            tags={
                **owned,
                **CLAIM_TAGS.tags_for(
                    claims, node_pool=plan.group.node_pool, other_tags=len(owned)
                ),
            },
            has_own_prices=plan.group.has_price_overlay,
            category=self._category(chosen[0], node_class) if uses_run else "",
        )

    def _category(self, target: LaunchTarget, node_class: ECSNodeClass) -> str:
        """Return the first category of system disks that the pair can boot from."""
        wanted = node_class.spec.system_disk_categories
        name = target.instance_type.name
        disks = self._availability.disks.of([name])[name]
        return next(iter(usable_categories(disks, target.zone, wanted)), wanted[0])
