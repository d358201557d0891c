"""One call that launches, as it is put together from what can be had at that moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import SPOT
from karpenter_core.errors import ExhaustedScope, InsufficientCapacityError
from karpenter_core.provider.kit.launch_candidates import offering_keys
from karpenter_core.provider.kit.unavailable import OfferingMark
from karpenter_provider_alibabacloud.api.options import CAPACITY_OPTIMIZED
from karpenter_provider_alibabacloud.catalogue.system_disks import usable_categories
from karpenter_provider_alibabacloud.discovery.vswitches import least_addresses
from karpenter_provider_alibabacloud.instance_owners import CLAIM_TAGS, owned_tags
from karpenter_provider_alibabacloud.launch.filters import bootable
from karpenter_provider_alibabacloud.launch.pairs import (
    best_of,
    in_first_zone,
    pairs_of,
    steadiest_first,
)
from karpenter_provider_alibabacloud.launch.plans import Ground, claim_ref
from karpenter_provider_alibabacloud.launch.requests import (
    CREATE_GROUP,
    RUN_INSTANCES,
    Wanted,
    client_token,
    group_request,
    needs_run_instances,
    run_request,
    spot_strategy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_core.provider.kit.addresses import AddressHold
    from karpenter_core.provider.kit.launch_candidates import Candidate
    from karpenter_core.provider.kit.reservation_book import AvailabilityBook
    from karpenter_core.provider.kit.unavailable import UnavailableOfferings
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.catalogue.system_disks import SystemDisks
    from karpenter_provider_alibabacloud.discovery.cluster import ClusterDetails
    from karpenter_provider_alibabacloud.discovery.vswitches import VSwitches, ZonalVSwitch
    from karpenter_provider_alibabacloud.launch.boots import Boots
    from karpenter_provider_alibabacloud.launch.pairs import Pair
    from karpenter_provider_alibabacloud.launch.plans import Plan
    from karpenter_provider_alibabacloud.prices import Prices

__all__ = ["ADDRESSES_LIFE", "Call", "CallMaker", "Shelves", "Trial"]

ADDRESSES_LIFE: Final = timedelta(minutes=5)
"""How long what has too few free addresses is left alone."""

Trial = tuple[str, str, str]
"""What was tried: instance type, vSwitch, and the category of the system disk where one is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelves:
    """Where is written down what can still be had, and what is said of it."""

    vswitches: VSwitches
    availability: AvailabilityBook
    unavailable: UnavailableOfferings
    disks: SystemDisks
    prices: Prices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """A call as it was made, to be read with its answer, and made again if none comes."""

    plan: Plan
    requests: Mapping[str, LaunchRequest]
    """By token."""
    wanted: Wanted
    action: str
    parameters: Mapping[str, object]
    hold: AddressHold[ZonalVSwitch]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """What it may bring."""
        return self.wanted.pairs

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of system disks that it may take."""
        if self.wanted.category:
            return (self.wanted.category,)
        return self.plan.node_class.spec.system_disk_categories

    def trials(self, pairs: Iterable[Pair]) -> frozenset[Trial]:
        """Return what trying some of its pairs has tried."""
        return frozenset(_trial(pair, self.wanted.category) for pair in pairs)

    @property
    def has_images(self) -> bool:
        """Whether it asks for more than one image."""
        return len({pair.image_id for pair in self.pairs}) > 1


def _trial(pair: Pair, category: str) -> Trial:
    return pair.instance_type.name, pair.vswitch.id, category


@final
class CallMaker:
    """Puts calls together; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        region: str,
        cluster_id: str,
        launch_api: str,
        shelves: Shelves,
        details: Callable[[], ClusterDetails],
    ) -> None:
        """`launch_api` is as in the settings, `details` is `Clusters.details`."""
        self._clock: Final = clock
        self._region: Final = region
        self._cluster_id: Final = cluster_id
        self._launch_api: Final = launch_api
        self._shelves: Final = shelves
        self._details: Final = details
        self._one_image_a_call = False

    def tags(self, plan: Plan) -> dict[str, str]:
        """Return the tags of all instances of a plan, but for those of their claims."""
        return owned_tags(
            plan.node_class.spec.tags,
            cluster_id=self._cluster_id,
            node_class=plan.node_class.name,
            node_pool=plan.node_pool,
        )

    def ground(self, node_class: ECSNodeClass) -> Ground:
        """Return what is known at this moment of what can be had."""
        return Ground(
            node_class=node_class,
            shortages=self._shelves.unavailable.view(now=self._clock.now()),
            reserved_left=self._shelves.availability.left,
            disks=self._shelves.disks.of,
        )

    def use_one_image_a_call(self) -> None:
        """Note that ECS does not take an image for each choice of a group."""
        self._one_image_a_call = True

    def make(
        self,
        plan: Plan,
        boots: Boots,
        requests: Sequence[LaunchRequest],
        *,
        zones: Sequence[str] = (),
        tried: Collection[Trial] = (),
        attempts: Mapping[str, int],
    ) -> Call | None:
        """Return the call for some of a plan's claims; None when nothing is left to try.

        It is for the first of `zones` in which something is, or for all zones if none are given.

        Raises:
            BadInputError, CloudProviderError: the machines would have no user data.
        """
        node_class = plan.node_class
        ground = self.ground(node_class)
        candidates = self._bootable(plan.open_candidates(ground), ground)
        least = least_addresses(
            (candidate.to_instance_type() for candidate in candidates),
            plan.capacity_type,
            self._details().cni,
        )
        hold = self._hold(node_class, least, ground, len(requests))
        self._note_short(node_class, candidates, least)
        try:
            wanted = self._wanted(plan, boots, requests, candidates, hold, zones, tried)
        except BaseException:
            self._shelves.vswitches.restore(hold)
            raise
        if wanted is None:
            self._shelves.vswitches.restore(hold)
            return None
        action, build = (
            (RUN_INSTANCES, run_request) if wanted.category else (CREATE_GROUP, group_request)
        )
        parameters = build(wanted, region=self._region)
        claims = [claim_ref(request) for request in requests]
        parameters["ClientToken"] = client_token(parameters, claims, attempts)
        return Call(
            plan=plan,
            requests={request.token: request for request in requests},
            wanted=wanted,
            action=action,
            parameters=parameters,
            hold=hold,
        )

    def nothing_left(self, plan: Plan) -> InsufficientCapacityError:
        """Return the outcome of claims for which there is nothing to try from the beginning."""
        free = self.free_addresses(plan.node_class)
        zones = sorted({o.zone for candidate in plan.candidates for o in candidate.offerings})
        said = ", ".join(f"{zone} {free.get(zone, 0)}" for zone in zones)
        return InsufficientCapacityError(
            "nothing of what was planned can be had now; free addresses in the vSwitches of "
            f"spec.vSwitchSelectorTerms: {said}",
            offerings=offering_keys(plan.candidates),
            scope=ExhaustedScope.NODE_CLASS,
        )

    def free_addresses(self, node_class: ECSNodeClass) -> dict[str, int]:
        """Return the free addresses of the best vSwitch of each zone."""
        free: dict[str, int] = {}
        for vswitch in node_class.status.v_switches:
            left = self._shelves.vswitches.expected_addresses(vswitch.id)
            free[vswitch.zone_id] = max(left, free.get(vswitch.zone_id, 0))
        return free

    def _uses_run_instances(self, node_class: ECSNodeClass) -> bool:
        return self._launch_api == RUN_INSTANCES or needs_run_instances(node_class)

    def _bootable(self, candidates: Sequence[Candidate], ground: Ground) -> tuple[Candidate, ...]:
        if not (ground.wants_disks or self._uses_run_instances(ground.node_class)):
            return tuple(candidates)
        known = ground.disks([c.instance_type.name for c in candidates])
        return bootable(candidates, known, ground.node_class.spec.system_disk_categories)

    def _hold(
        self,
        node_class: ECSNodeClass,
        least: Mapping[str, int],
        ground: Ground,
        instances: int,
    ) -> AddressHold[ZonalVSwitch]:
        """Keep addresses in the vSwitches that were not found full."""
        marked = ground.shortages.subnets
        if marked:
            left = tuple(v for v in node_class.status.v_switches if v.id not in marked)
            status = node_class.status.model_copy(update={"v_switches": left})
            node_class = node_class.model_copy(update={"status": status})
        return self._shelves.vswitches.zonal_vswitches(
            node_class, addresses_each=least, instances=instances
        )

    def _note_short(
        self, node_class: ECSNodeClass, candidates: Sequence[Candidate], least: Mapping[str, int]
    ) -> None:
        """Close vSwitches that have too few addresses for the candidates, so that nobody plans it.

        Only for these types, as others take fewer addresses; and not the zone, where the vSwitches of
        another NodeClass may have room.
        """
        vswitches = self._shelves.vswitches
        short = [
            OfferingMark(
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
            self._shelves.unavailable.mark(*short, now=now, life=ADDRESSES_LIFE)

    def _wanted(
        self,
        plan: Plan,
        boots: Boots,
        requests: Sequence[LaunchRequest],
        candidates: Sequence[Candidate],
        hold: AddressHold[ZonalVSwitch],
        zones: Sequence[str],
        tried: Collection[Trial],
    ) -> Wanted | None:
        node_class = plan.node_class
        uses_run = self._uses_run_instances(node_class)
        free = {
            zone: self._shelves.vswitches.expected_addresses(vswitch.id)
            for zone, vswitch in hold.subnets.items()
        }
        left = [
            pair
            for pair in pairs_of(candidates, hold.subnets, free=free, image_of=boots.image_of)
            if _trial(pair, self._category(pair, node_class) if uses_run else "") not in tried
        ]
        if plan.capacity_type == SPOT and spot_strategy(node_class) == CAPACITY_OPTIMIZED:
            left = steadiest_first(left, self._shelves.prices.interruption_percent)
        pairs = in_first_zone(left, zones) if zones else tuple(left)
        if not pairs:
            return None
        user_data = boots.user_data(pairs[0].instance_type)
        same = [
            pair
            for pair in pairs
            if boots.user_data(pair.instance_type) == user_data
            and (not self._one_image_a_call or pair.image_id == pairs[0].image_id)
        ]
        chosen = tuple(same[:1]) if uses_run else best_of(same, needs_variety=plan.needs_variety)
        owned = self.tags(plan)
        claims = [claim_ref(request) for request in requests]
        return Wanted(
            node_class=node_class,
            capacity_type=plan.capacity_type,
            pairs=chosen,
            amount=len(requests),
            user_data=user_data,
            tags={
                **owned,
                **CLAIM_TAGS.written(claims, node_pool=plan.node_pool, other_tags=len(owned)),
            },
            has_own_prices=plan.has_own_prices,
            category=self._category(chosen[0], node_class) if uses_run else "",
        )

    def _category(self, pair: Pair, node_class: ECSNodeClass) -> str:
        """Return the first category of system disks that the pair can boot from."""
        wanted = node_class.spec.system_disk_categories
        name = pair.instance_type.name
        disks = self._shelves.disks.of([name])[name]
        return next(iter(usable_categories(disks, pair.zone, wanted)), wanted[0])
