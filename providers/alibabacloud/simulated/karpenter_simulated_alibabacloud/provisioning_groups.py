"""Handles CreateAutoProvisioningGroup of type `instant`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.launch_calls import LaunchCalls
from karpenter_core.provider.kit.simulated.pools import InstancePool, PoolFaults
from karpenter_simulated_alibabacloud.group_records import GroupRecord
from karpenter_simulated_alibabacloud.instance_plan import InstancePlan, RequestedDisk
from karpenter_simulated_alibabacloud.instances import Disk
from karpenter_simulated_alibabacloud.parameters import read_tags
from karpenter_simulated_alibabacloud.plans import read_template
from karpenter_simulated_alibabacloud.pool_choices import PoolChoice, ordered
from karpenter_simulated_alibabacloud.tokens import ClientTokens
from karpenter_simulated_alibabacloud.values import (
    check_launch,
    disk_category,
    one_of,
    performance_level,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.behaviour import CloudBehaviour
    from karpenter_simulated_alibabacloud.capacity import CapacityLimits
    from karpenter_simulated_alibabacloud.group_records import GroupRecords
    from karpenter_simulated_alibabacloud.instance_plan import InstanceTemplate
    from karpenter_simulated_alibabacloud.parameters import RequestParameters
    from karpenter_simulated_alibabacloud.plan_launcher import PlanLauncher
    from karpenter_simulated_alibabacloud.plans import InstancePlanChecks
    from karpenter_simulated_alibabacloud.prices import Prices

__all__ = ["ProvisioningGroups"]

_MOST_CONFIGS: Final = 20
_FORBIDDEN: Final = 403
_MOST_MACHINES: Final = 2000
_DEFAULT_DISK_GIB: Final = 40
_SPOT_STRATEGIES: Final = ("lowest-price", "diversified", "capacity-optimized")
_ON_DEMAND_STRATEGIES: Final = ("lowest-price", "prioritized", "diversified")


@dataclass(slots=True, kw_only=True)
class _GroupResults:
    """The result for the instances of one capacity type so far."""

    launched: float = 0
    """Capacity, by weights."""
    plans: dict[int, InstancePlan] = field(default_factory=dict[int, InstancePlan])
    """Plans that were tried, by their place in the call."""
    ids: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    errors: dict[int, CloudError] = field(default_factory=dict[int, CloudError])

    def bought(self) -> Mapping[InstancePool, int]:
        """Return the number of launched instances by pool."""
        return {self.plans[number].pool: len(ids) for number, ids in self.ids.items()}

    def pools_refused_with(self, code: str) -> Sequence[InstancePool]:
        """Return the pools whose launch was refused with an error code."""
        return [
            self.plans[number].pool for number, error in self.errors.items() if error.code == code
        ]

    def rows(self) -> Iterator[Mapping[str, object]]:
        """Return the results as the API lists them."""
        for number, plan in self.plans.items():
            if ids := self.ids.get(number):
                yield _row(plan, ids, None)
            if error := self.errors.get(number):
                yield _row(plan, (), error)


@final
class ProvisioningGroups:
    """The provisioning groups of an account; an instant one is done when it is answered."""

    def __init__(
        self,
        account: Account,
        *,
        checks: InstancePlanChecks,
        launcher: PlanLauncher,
        prices: Prices,
        capacity: CapacityLimits,
        records: GroupRecords,
        behaviour: CloudBehaviour,
    ) -> None:
        self._records: Final = records
        self._account: Final = account
        self._checks: Final = checks
        self._launcher: Final = launcher
        self._prices: Final = prices
        self._capacity: Final = capacity
        self._tokens: Final = ClientTokens(account, behaviour, launches=True)
        self.refusals: Final = PoolFaults()
        """Errors in the results of groups, for the pools that match."""
        self.launches: Final = LaunchCalls()

    def clear(self) -> None:
        """Forget tokens and what was launched."""
        self._tokens.clear()
        self.launches.clear()

    def create(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer CreateAutoProvisioningGroup."""
        request.required("RegionId")
        return self._tokens.once(request, lambda: self._create(request))

    def _create(self, request: RequestParameters) -> Mapping[str, object]:
        kind = request.choice(
            "AutoProvisioningGroupType", ("instant", "request", "maintain"), "maintain"
        )
        if kind != "instant":
            raise CloudError(
                "InvalidParameter.AutoProvisioningGroupType",
                f"Groups of type {kind} are not simulated; ask for instant ones.",
            )
        template = self._template(request)
        choices = self._choices(request, template)
        targets = _targets(request)
        least = _whole(request, "MinTargetCapacity", 0)
        group_id = self._account.ids.new("apg")
        self._records.add(
            GroupRecord(
                id=group_id,
                name=request.text("AutoProvisioningGroupName") or group_id,
                tags=read_tags(request),
                made_at=self._account.clock(),
                targets=targets,
            )
        )
        if least and self._obtainable(choices, targets, request) < least:
            return _answer(group_id, self._shortfall(choices, targets, request))
        rows: list[Mapping[str, object]] = []
        sold_out: list[InstancePool] = []
        bought: dict[InstancePool, int] = {}
        for capacity_type, target in targets.items():
            results = _GroupResults()
            for choice in self._in_order(choices, capacity_type, request):
                if results.launched >= target:
                    break
                if choice.number in results.errors:
                    continue
                self._launch(choice, target, results, request, group_id)
            rows.extend(results.rows())
            sold_out.extend(results.pools_refused_with(self._capacity.no_stock_code))
            bought |= results.bought()
        self.launches.add("CreateAutoProvisioningGroup", sold_out=sold_out, bought=bought)
        return _answer(group_id, rows)

    # Reading the request.

    def _template(self, request: RequestParameters) -> InstanceTemplate:
        own = request.within("LaunchConfiguration")
        check_launch(own)
        if not own and request.text("LaunchTemplateId"):
            raise request.invalid("LaunchTemplateId", request.text("LaunchTemplateId"))
        categories = _categories(request, "SystemDiskConfig", system=True)
        if not categories and (one := disk_category(own, "SystemDiskCategory", system=True)):
            categories = (one,)
        system = own.within("SystemDisk")
        disk = Disk(
            category="",
            size_gib=own.integer("SystemDiskSize", _DEFAULT_DISK_GIB),
            performance_level=performance_level(own, "SystemDiskPerformanceLevel"),
            encrypted=system.flag("Encrypted"),
            kms_key_id=system.text("KMSKeyId"),
            provisioned_iops=system.integer("ProvisionedIops"),
            bursting=system.flag("BurstingEnabled"),
        )
        return read_template(
            own,
            system_disk=RequestedDisk(disk=disk, categories=categories),
            data_disk_categories=_categories(request, "DataDiskConfig", system=False),
            image_id=own.text("ImageId"),
        )

    def _choices(
        self, request: RequestParameters, template: InstanceTemplate
    ) -> Sequence[PoolChoice]:
        configs = request.items_of("LaunchTemplateConfig")
        if len(configs) > _MOST_CONFIGS:
            raise CloudError(
                "InvalidLaunchTemplateConfigs.SizeExceed",
                f"There are {len(configs)} launch template configs, at most {_MOST_CONFIGS} may be.",
            )
        if not configs:
            raise CloudError(
                "MissingParameter.LaunchTemplateConfig", "A launch template config must be given."
            )
        choices: list[PoolChoice] = []
        for number, config in enumerate(configs):
            vswitch = self._checks.vswitch(config.required("VSwitchId"))
            self._checks.groups(template, vswitch)
            image_id = config.text("ImageId") or template.image_id
            if not image_id:
                raise CloudError(
                    "MissingParameter.LaunchConfiguration.ImageId", "An image must be given."
                )
            limit = config.number("MaxPrice") or request.number("MaxSpotPrice")
            for capacity_type in (ON_DEMAND, SPOT):
                pool = InstancePool(
                    capacity_type=capacity_type,
                    instance_type=config.required("InstanceType"),
                    zone=vswitch.zone,
                )
                spot = capacity_type == SPOT
                strategy = (
                    ("SpotWithPriceLimit" if limit else "SpotAsPriceGo") if spot else "NoSpot"
                )
                plan = InstancePlan(
                    pool=pool,
                    vswitch=vswitch,
                    image=self._checks.image(image_id),
                    template=template,
                    spot_strategy=strategy,
                    price_limit=limit if spot else 0,
                )
                choices.append(
                    PoolChoice(
                        plan=plan,
                        number=number,
                        price=self._prices.of(pool),
                        priority=config.number("Priority", float("inf")),
                        weight=config.number("WeightedCapacity", 1) or 1,
                        left=self._capacity.left(pool),
                    )
                )
        return choices

    def _in_order(
        self, choices: Sequence[PoolChoice], capacity_type: str, request: RequestParameters
    ) -> Sequence[PoolChoice]:
        strategy = (
            _strategy(request, "SpotAllocationStrategy", _SPOT_STRATEGIES)
            if capacity_type == SPOT
            else _strategy(request, "PayAsYouGoAllocationStrategy", _ON_DEMAND_STRATEGIES)
        )
        own = [each for each in choices if each.plan.pool.capacity_type == capacity_type]
        return ordered(own, strategy)

    # The result.

    def _launch(
        self,
        choice: PoolChoice,
        target: float,
        results: _GroupResults,
        request: RequestParameters,
        group_id: str,
    ) -> None:
        """Launch what is still wanted of one pool, as far as there is any, and note what came of it."""
        plan = choice.plan
        wanted = max(1, -int(-(target - results.launched) // choice.weight))
        if choice.share:
            wanted = min(wanted, choice.share)
        fault = self.refusals.strike(plan.pool)
        error = fault.error if fault else self._checks.refusal(plan)
        given: Sequence[tuple[str, int]] = ()
        if error is None:
            given, error = self._launcher.capacity_left(plan, wanted, request)
        ids = [
            instance.id
            for source, number in given
            for instance in self._launcher.launch(
                plan,
                number,
                source=source,
                group_id=group_id,
                client_token=request.text("ClientToken"),
            )
        ]
        results.launched += len(ids) * choice.weight
        results.plans[choice.number] = plan
        results.ids.setdefault(choice.number, []).extend(ids)
        if error is not None:
            results.errors[choice.number] = error

    def _obtainable(
        self,
        choices: Sequence[PoolChoice],
        targets: Mapping[str, float],
        request: RequestParameters,
    ) -> float:
        """Return how much of what is wanted there is, without launching any."""
        total = 0.0
        for capacity_type, target in targets.items():
            had = 0.0
            for choice in self._in_order(choices, capacity_type, request):
                had += choice.weight * self._capacity_left(choice, target, request)
            total += min(had, target)
        return total

    def _capacity_left(self, choice: PoolChoice, target: float, request: RequestParameters) -> int:
        if self._checks.refusal(choice.plan) is not None:
            return 0
        given, _ = self._launcher.capacity_left(choice.plan, int(target), request)
        return sum(number for _, number in given)

    def _shortfall(
        self,
        choices: Sequence[PoolChoice],
        targets: Mapping[str, float],
        request: RequestParameters,
    ) -> Sequence[Mapping[str, object]]:
        """Return the results of a group that gives nothing, as its minimum is not there."""
        rows: list[Mapping[str, object]] = []
        for capacity_type, target in targets.items():
            if not target:
                continue
            for choice in self._in_order(choices, capacity_type, request):
                error = self._checks.refusal(choice.plan)
                if error is None:
                    _, error = self._launcher.capacity_left(choice.plan, int(target), request)
                rows.append(
                    _row(choice.plan, (), error or self._capacity.sold_out(choice.plan.pool))
                )
        return rows


def _answer(group_id: str, rows: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    return {"AutoProvisioningGroupId": group_id, "LaunchResults": {"LaunchResult": rows}}


def _categories(request: RequestParameters, name: str, *, system: bool) -> tuple[str, ...]:
    found = [disk_category(each, "DiskCategory", system=system) for each in request.items_of(name)]
    if len(set(found)) < len(found):
        raise CloudError(
            "Duplicate.DiskCategory", "The specified disk configs contains duplicate DiskCategory."
        )
    return tuple(filter(None, found))


def _strategy(request: RequestParameters, name: str, allowed: Collection[str]) -> str:
    return one_of(request, name, allowed, f"Invalid{name}.ValueNotSupported") or "lowest-price"


def _whole(request: RequestParameters, name: str, default: int) -> int:
    number = request.integer(name, default)
    if not 0 <= number <= _MOST_MACHINES:
        raise CloudError(
            f"{name}LimitExceed",
            f"The {name} exceeds the limit[0-{_MOST_MACHINES}].",
            status=_FORBIDDEN,
        )
    return number


def _targets(request: RequestParameters) -> Mapping[str, float]:
    """Return how much of each capacity type is wanted."""
    request.required("TotalTargetCapacity")
    total = _whole(request, "TotalTargetCapacity", 0)
    spot = _whole(request, "SpotTargetCapacity", 0)
    on_demand = _whole(request, "PayAsYouGoTargetCapacity", 0)
    rest = total - spot - on_demand
    if total < 1 or rest < 0:
        raise request.invalid("TargetCapacity", total)
    default = request.choice("DefaultTargetCapacityType", ("Spot", "PayAsYouGo"), "PayAsYouGo")
    return {
        ON_DEMAND: on_demand + (rest if default == "PayAsYouGo" else 0),
        SPOT: spot + (rest if default == "Spot" else 0),
    }


def _row(plan: InstancePlan, ids: Sequence[str], error: CloudError | None) -> Mapping[str, object]:
    reply: dict[str, object] = {
        "InstanceType": plan.pool.instance_type,
        "ZoneId": plan.pool.zone,
        "SpotStrategy": plan.spot_strategy,
        "Amount": len(ids),
        "InstanceIds": {"InstanceId": list(ids)},
    }
    if error is not None:
        reply |= {"ErrorCode": error.code, "ErrorMsg": error.message}
    return reply
