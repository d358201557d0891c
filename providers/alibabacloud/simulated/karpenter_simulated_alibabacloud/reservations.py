"""Capacity reservations: private pools of instances."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ON_DEMAND
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.account import to_seconds
from karpenter_simulated_alibabacloud.paging import tags_match, token_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_core.provider.kit.simulated.pools import InstancePool
    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.instances import Instances
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["Reservation", "Reservations"]

_PAGE: Final = 10
_MOST: Final = 100
_FORBIDDEN: Final = 403
_STATUS: Final = ("All", "Pending", "Preparing", "Prepared", "Active", "Released")
_STRATEGIES: Final = ("PrivatePoolFirst", "PrivatePoolOnly", "PublicPoolOnly")
_CRITERIA: Final = ("Open", "Target", "None")


@dataclass(slots=True, kw_only=True, eq=False)
class Reservation:
    """A capacity reservation, with one type in one zone."""

    id: str
    name: str
    instance_type: str
    zone: str
    total: int
    criteria: str = "Target"
    """`Open`: whoever may take it; `Target`: only who names it."""
    status: str = "Active"
    ends_at: datetime | None = None
    tags: dict[str, str] = field(default_factory=dict[str, str])


@final
class Reservations:
    """The reservations of an account."""

    def __init__(self, account: Account, instances: Instances) -> None:
        self._account: Final = account
        self._instances: Final = instances
        self._reservations: dict[str, Reservation] = {}

    def add(
        self,
        name: str,
        *,
        instance_type: str,
        zone: str,
        total: int,
        criteria: str = "Target",
        ends_at: datetime | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Reservation:
        """Make one."""
        made = Reservation(
            id=self._account.ids.new("crp"),
            name=name,
            instance_type=instance_type,
            zone=zone,
            total=total,
            criteria=criteria,
            ends_at=ends_at,
            tags=dict(tags or {}),
        )
        self._reservations[made.id] = made
        return made

    def clear(self) -> None:
        """Forget all of them."""
        self._reservations.clear()

    def get(self, reservation_id: str) -> Reservation | None:
        """Return one; None when there is no such one."""
        return self._reservations.get(reservation_id)

    def status_of(self, reservation: Reservation) -> str:
        """Return the status now; what has ended is released."""
        ended = reservation.ends_at is not None and self._account.clock() >= reservation.ends_at
        return "Released" if ended else reservation.status

    def used(self, reservation: Reservation) -> int:
        """Return how many instances of it run."""
        return sum(each.reservation_id == reservation.id for each in self._instances.living)

    def left(self, reservation: Reservation) -> int:
        """Return how many more instances of it can be had."""
        if self.status_of(reservation) != "Active":
            return 0
        return max(0, reservation.total - self.used(reservation))

    def sources(self, pool: InstancePool, request: RequestParameters) -> Sequence[str]:
        """Return where instances of a pool are to come from, in order: private pools, "" for the public.

        Both ways of asking are understood: `ResourcePoolOptions` of a provisioning group, and
        `PrivatePoolOptions` of RunInstances. Spot instances are never of a private pool.

        Raises:
            CloudError: the pools that are named have nothing left, and no other may be taken.
        """
        if pool.capacity_type != ON_DEMAND:
            return ("",)
        strategy, named = _asked(request)
        if strategy == "PublicPoolOnly":
            return ("",)
        fitting = [
            each
            for each in self._reservations.values()
            if (each.instance_type, each.zone) == (pool.instance_type, pool.zone)
            and self.left(each) > 0
            and (each.id in named or (each.criteria == "Open" and strategy != "PrivatePoolOnly"))
        ]
        fitting.sort(key=lambda each: each.id not in named)
        found = [each.id for each in fitting]
        if strategy == "PrivatePoolOnly":
            if not found:
                raise CloudError(
                    "Invalid.PrivatePoolOptions.NoStock",
                    f"The private pools {', '.join(named)} have no {pool.instance_type} left in the"
                    f" zone {pool.zone}.",
                    status=_FORBIDDEN,
                )
            return found
        return (*found, "")

    def describe(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeCapacityReservations."""
        request.required("RegionId")
        status = request.choice("Status", _STATUS, "Active")
        ids = request.within("PrivatePoolOptions").json_texts("Ids", most=_MOST)
        found = [
            each
            for each in self._reservations.values()
            if (ids is None or each.id in ids)
            and status in {"All", self.status_of(each)}
            and request.text("InstanceType") in {"", each.instance_type}
            and request.text("ZoneId") in {"", each.zone}
            and tags_match(each.tags, request)
        ]
        page, token = token_page(
            found, request, key=lambda each: each.id, default=_PAGE, most=_MOST
        )
        return {
            "CapacityReservationSet": {
                "CapacityReservationItem": [self._described(each) for each in page]
            },
            "MaxResults": request.integer("MaxResults", _PAGE),
            "NextToken": token,
            "TotalCount": len(found),
        }

    def _described(self, each: Reservation) -> Mapping[str, object]:
        used = self.used(each)
        reply: dict[str, object] = {
            "PrivatePoolOptionsId": each.id,
            "PrivatePoolOptionsName": each.name,
            "PrivatePoolOptionsMatchCriteria": each.criteria,
            "RegionId": self._account.region,
            "InstanceChargeType": "PostPaid",
            "Platform": "linux",
            "Status": self.status_of(each),
            "StartTimeType": "Now",
            "StartTime": to_seconds(self._account.clock() - timedelta(days=1)),
            "EndTimeType": "Limited" if each.ends_at else "Unlimited",
            "AllocatedResources": {
                "AllocatedResource": [
                    {
                        "InstanceType": each.instance_type,
                        "zoneId": each.zone,
                        "TotalAmount": each.total,
                        "UsedAmount": used,
                        "AvailableAmount": self.left(each),
                    }
                ]
            },
            "Tags": {
                "Tag": [{"TagKey": key, "TagValue": value} for key, value in each.tags.items()]
            },
        }
        if each.ends_at:
            reply["EndTime"] = to_seconds(each.ends_at)
        return reply


def _asked(request: RequestParameters) -> tuple[str, Sequence[str]]:
    """Return the strategy and the private pools that a call names."""
    if options := request.within("PrivatePoolOptions"):
        criteria = options.choice("MatchCriteria", _CRITERIA, "Open")
        named = options.text("Id")
        if criteria == "Target":
            return "PrivatePoolOnly", (options.required("Id"),)
        return ("PublicPoolOnly" if criteria == "None" else "PrivatePoolFirst"), (named,)
    options = request.json_within("ResourcePoolOptions")
    strategy = options.choice("Strategy", _STRATEGIES, "PublicPoolOnly")
    named_pools = options.texts("PrivatePoolIds", most=20)
    if strategy == "PrivatePoolOnly" and not named_pools:
        raise CloudError(
            "MissingParameter.ResourcePoolOptions.PrivatePoolIds",
            "PrivatePoolOnly needs the ids of private pools.",
        )
    return strategy, named_pools
