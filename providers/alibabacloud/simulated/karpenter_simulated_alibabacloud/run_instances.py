"""Handles RunInstances: dry runs, and instances outside of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_simulated_alibabacloud.instance_plan import InstancePlan, RequestedDisk
from karpenter_simulated_alibabacloud.instances import Disk
from karpenter_simulated_alibabacloud.plans import capacity_type_of, read_template
from karpenter_simulated_alibabacloud.tokens import ClientTokens
from karpenter_simulated_alibabacloud.values import (
    check_launch,
    disk_category,
    performance_level,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.behaviour import CloudBehaviour
    from karpenter_simulated_alibabacloud.images import Images
    from karpenter_simulated_alibabacloud.parameters import RequestParameters
    from karpenter_simulated_alibabacloud.plan_launcher import PlanLauncher
    from karpenter_simulated_alibabacloud.plans import InstancePlanChecks
    from karpenter_simulated_alibabacloud.prices import Prices

__all__ = ["RunInstancesCalls"]

_MOST: Final = 100
_DEFAULT_DISK_GIB: Final = 40


@final
class RunInstancesCalls:
    """Launches without a group: one plan, as many as are asked for or at least the minimum."""

    def __init__(
        self,
        account: Account,
        *,
        checks: InstancePlanChecks,
        launcher: PlanLauncher,
        images: Images,
        prices: Prices,
        behaviour: CloudBehaviour,
    ) -> None:
        self._checks: Final = checks
        self._launcher: Final = launcher
        self._images: Final = images
        self._prices: Final = prices
        self._tokens: Final = ClientTokens(account, behaviour, launches=True)

    def clear(self) -> None:
        """Forget the tokens of earlier calls."""
        self._tokens.clear()

    def run(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer RunInstances."""
        request.required("RegionId")
        if request.flag("DryRun"):
            self._planned(request)
            raise CloudError(
                "DryRunOperation",
                "Request validation has been passed with DryRun flag set.",
            )
        return self._tokens.once(request, lambda: self._run(request))

    def _run(self, request: RequestParameters) -> Mapping[str, object]:
        amount = request.integer("Amount", 1)
        if not 1 <= amount <= _MOST:
            raise request.invalid("Amount", amount)
        least = request.integer("MinAmount", amount)
        if not 1 <= least <= amount:
            raise request.invalid("MinAmount", least)
        plan = self._planned(request)
        given, error = self._launcher.capacity_left(plan, amount, request)
        if sum(number for _, number in given) < least:
            raise error or CloudError("OperationDenied.NoStock", "There is no stock.")
        ids = [
            instance.id
            for source, number in given
            for instance in self._launcher.launch(
                plan, number, source=source, client_token=request.text("ClientToken")
            )
        ]
        return {
            "InstanceIdSets": {"InstanceIdSet": ids},
            "TradePrice": round(self._prices.of(plan.pool) * len(ids), 4),
        }

    def _planned(self, request: RequestParameters) -> InstancePlan:
        """Return the plan that a call asks for, as it can be carried out.

        Raises:
            CloudError: it cannot.
        """
        name = request.required("InstanceType")
        check_launch(request)
        strategy = request.text("SpotStrategy", "NoSpot")
        image_id = request.text("ImageId")
        if not image_id and (family := request.text("ImageFamily")):
            newest = self._images.newest_of(family)
            image_id = newest.id if newest else ""
        if not image_id:
            request.required("ImageId")
        vswitch = self._checks.vswitch(request.required("VSwitchId"))
        disk = request.within("SystemDisk")
        category = disk_category(disk, "Category", system=True)
        wanted = RequestedDisk(
            disk=Disk(
                category="",
                size_gib=disk.integer("Size", _DEFAULT_DISK_GIB),
                performance_level=performance_level(disk, "PerformanceLevel"),
                encrypted=disk.flag("Encrypted"),
                kms_key_id=disk.text("KMSKeyId"),
                provisioned_iops=disk.integer("ProvisionedIops"),
                bursting=disk.flag("BurstingEnabled"),
            ),
            categories=(category,) if category else (),
        )
        template = read_template(
            request, system_disk=wanted, data_disk_categories=(), image_id=image_id
        )
        plan = InstancePlan(
            pool=InstancePool(
                capacity_type=capacity_type_of(strategy), instance_type=name, zone=vswitch.zone
            ),
            vswitch=vswitch,
            image=self._checks.image(image_id),
            template=template,
            spot_strategy=strategy,
            price_limit=request.number("SpotPriceLimit"),
        )
        self._checks.groups(template, vswitch)
        if refusal := self._checks.refusal(plan):
            raise refusal
        return plan
