"""Stock and quotas: how many machines there are of each kind, and how many one may have."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, final

from karpenter_provider_aws.simulated.instances import CapacityType
from karpenter_provider_aws.simulated.types import quota_group
from karpenter_provider_aws.simulated.wire import AwsError

if TYPE_CHECKING:
    from karpenter_provider_aws.simulated.instances import Instances
    from karpenter_provider_aws.simulated.types import Catalogue

__all__ = ["Capacity", "Pool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Machines that can stand for each other; also a pattern for such pools."""

    capacity_type: str = "*"
    instance_type: str = "*"
    zone: str = "*"

    def holds(self, pool: Pool) -> bool:
        """Whether a pool is one of those that this pattern names."""
        return (
            fnmatchcase(pool.capacity_type, self.capacity_type)
            and fnmatchcase(pool.instance_type, self.instance_type)
            and fnmatchcase(pool.zone, self.zone)
        )


@final
class Capacity:
    """The stock of a region and the quotas of an account; without rules, both are endless."""

    def __init__(self, instances: Instances, catalogue: Catalogue) -> None:
        self._instances: Final = instances
        self._catalogue: Final = catalogue
        self._stock: list[tuple[Pool, int]] = []
        self._vcpus: dict[str, int] = {}
        self._spot_instances: dict[str, int] = {}
        """By group of families; under an empty name for all of them."""

    def stock(self, pool: Pool, machines: int) -> None:
        """Let each pool of a pattern have so many machines, those in use included; the last counts."""
        self._stock.append((pool, machines))

    def sell_out(
        self,
        *,
        capacity_type: str = "*",
        instance_type: str = "*",
        zone: str = "*",
    ) -> None:
        """Let nothing be left of what matches; what runs goes on."""
        self.stock(Pool(capacity_type=capacity_type, instance_type=instance_type, zone=zone), 0)

    def limit_vcpus(self, vcpus: int | None, *, group: str = "standard") -> None:
        """Set the on-demand quota of a group of families; None takes it away."""
        self._vcpus.pop(group, None)
        if vcpus is not None:
            self._vcpus[group] = vcpus

    def limit_spot_instances(self, instances: int | None, *, group: str = "") -> None:
        """Set how many spot instances a group of families, or all, may have; None for any number."""
        self._spot_instances.pop(group, None)
        if instances is not None:
            self._spot_instances[group] = instances

    def clear(self) -> None:
        """Make stock and quotas endless."""
        self._stock.clear()
        self._vcpus.clear()
        self._spot_instances.clear()

    def left(self, pool: Pool) -> int | None:
        """Return how many machines of a pool can be had; None when there is no end of them."""
        machines = next(
            (number for rule, number in reversed(self._stock) if rule.holds(pool)), None
        )
        if machines is None:
            return None
        used = sum(
            (each.capacity_type, each.instance_type, each.zone)
            == (pool.capacity_type, pool.instance_type, pool.zone)
            for each in self._instances.living
        )
        return max(0, machines - used)

    def shortage(self, pool: Pool) -> AwsError:
        """Return what is said when a pool has nothing left."""
        if pool.capacity_type == CapacityType.SPOT:
            return AwsError(
                "InsufficientInstanceCapacity",
                "There is no Spot capacity available that matches your request.",
            )
        return AwsError(
            "InsufficientInstanceCapacity",
            f"We currently do not have sufficient {pool.instance_type} capacity in the Availability"
            f" Zone you requested ({pool.zone}). Our system will be working on provisioning"
            " additional capacity.",
        )

    def allowed(self, pool: Pool) -> tuple[int | None, AwsError]:
        """Return how many more machines of a pool the quotas permit, and what is said beyond."""
        if pool.capacity_type == CapacityType.SPOT:
            beyond = AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
            rooms = [
                quota - self._running_spot(group)
                for group, quota in self._spot_instances.items()
                if group in {"", quota_group(pool.instance_type)}
            ]
            return (max(0, min(rooms)) if rooms else None), beyond
        group = quota_group(pool.instance_type)
        quota = self._vcpus.get(group)
        beyond = AwsError(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit of {quota} allows"
            " for the instance bucket that the specified instance type belongs to.",
        )
        if quota is None:
            return None, beyond
        used = sum(
            self._vcpus_of(each.instance_type)
            for each in self._instances.living
            if each.capacity_type is not CapacityType.SPOT
            and quota_group(each.instance_type) == group
        )
        return max(0, (quota - used) // max(1, self._vcpus_of(pool.instance_type))), beyond

    def _running_spot(self, group: str) -> int:
        return sum(
            each.capacity_type is CapacityType.SPOT
            and group in {"", quota_group(each.instance_type)}
            for each in self._instances.living
        )

    def _vcpus_of(self, instance_type: str) -> int:
        facts = self._catalogue.facts(instance_type)
        return 0 if facts is None else facts.vcpus
