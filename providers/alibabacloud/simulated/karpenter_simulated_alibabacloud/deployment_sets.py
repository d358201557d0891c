"""Deployment sets: limits of instances per zone, spread over hosts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.account import to_seconds
from karpenter_simulated_alibabacloud.paging import numbered_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.instance_plan import InstancePlan
    from karpenter_simulated_alibabacloud.instances import Instances
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["DeploymentSet", "DeploymentSets"]

_NOT_FOUND: Final = 404
_FORBIDDEN: Final = 403
_IN_A_ZONE: Final = 20
"""Instances of a set with strategy Availability in one zone."""


@dataclass(slots=True, kw_only=True, eq=False)
class DeploymentSet:
    """A deployment set."""

    id: str
    name: str
    strategy: str = "Availability"
    """`Availability`, `AvailabilityGroup` or `LowLatency`."""
    in_a_zone: int = _IN_A_ZONE


@final
class DeploymentSets:
    """The deployment sets of an account."""

    def __init__(self, account: Account, instances: Instances, zones: Sequence[str]) -> None:
        self._account: Final = account
        self._instances: Final = instances
        self._zones: Final = tuple(zones)
        self._sets: dict[str, DeploymentSet] = {}

    def add(
        self, name: str, *, strategy: str = "Availability", in_a_zone: int = _IN_A_ZONE
    ) -> DeploymentSet:
        """Make one."""
        made = DeploymentSet(
            id=self._account.ids.new("ds"), name=name, strategy=strategy, in_a_zone=in_a_zone
        )
        self._sets[made.id] = made
        return made

    def clear(self) -> None:
        """Forget all of them."""
        self._sets.clear()

    def refusal(self, plan: InstancePlan) -> CloudError | None:
        """Return why a plan's set is not to be had."""
        wanted = plan.template.own.text("DeploymentSetId")
        if wanted and wanted not in self._sets:
            return CloudError(
                "InvalidDeploymentSetId.NotFound",
                f"The specified DeploymentSetId {wanted} does not exist.",
                status=_NOT_FOUND,
            )
        return None

    def left(self, plan: InstancePlan) -> int | None:
        """Return how many more instances the plan's set takes in its zone; None without a set."""
        wanted = self._sets.get(plan.template.own.text("DeploymentSetId"))
        if wanted is None:
            return None
        return max(0, wanted.in_a_zone - self._used(wanted)[plan.pool.zone])

    def beyond(self, plan: InstancePlan) -> CloudError:
        """Return what is said when a set is full."""
        wanted = plan.template.own.text("DeploymentSetId")
        return CloudError(
            "DeploymentSet.InstanceLimitExceed",
            f"The deployment set {wanted} takes no more instances in the zone {plan.pool.zone}.",
            status=_FORBIDDEN,
        )

    def _used(self, wanted: DeploymentSet) -> Counter[str]:
        return Counter(
            each.pool.zone for each in self._instances.living if each.deployment_set_id == wanted.id
        )

    def describe(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeDeploymentSets."""
        request.required("RegionId")
        ids = request.json_texts("DeploymentSetIds", most=100)
        found = [
            each
            for each in self._sets.values()
            if (ids is None or each.id in ids)
            and request.text("DeploymentSetName") in {"", each.name}
        ]
        page, reply = numbered_page(found, request)
        made = to_seconds(self._account.clock() - timedelta(days=1))
        rows: list[Mapping[str, object]] = []
        for each in page:
            used = self._used(each)
            ids_within = [
                one.id for one in self._instances.living if one.deployment_set_id == each.id
            ]
            rows.append(
                {
                    "DeploymentSetId": each.id,
                    "DeploymentSetName": each.name,
                    "DeploymentSetDescription": "",
                    "Strategy": each.strategy,
                    "DeploymentStrategy": each.strategy,
                    "Domain": "default",
                    "Granularity": "host",
                    "CreationTime": made,
                    "InstanceAmount": len(ids_within),
                    "InstanceIds": {"InstanceId": ids_within},
                    "Capacities": {
                        "Capacity": [
                            {
                                "ZoneId": zone,
                                "UsedAmount": used[zone],
                                "AvailableAmount": max(0, each.in_a_zone - used[zone]),
                            }
                            for zone in self._zones
                        ]
                    },
                }
            )
        return {
            "DeploymentSets": {"DeploymentSet": rows},
            "RegionId": self._account.region,
            **reply,
        }
