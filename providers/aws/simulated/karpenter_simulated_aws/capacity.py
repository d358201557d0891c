"""Stock and quotas of the simulated cloud."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_aws.instances import CapacityType
from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.type_catalogue import quota_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_simulated_aws.instances import Instances
    from karpenter_simulated_aws.type_catalogue import TypeCatalogue

__all__ = ["CapacityLimits", "InstancePool"]

_SERVER_ERROR: Final = 500
"""A lack of stock is among EC2's server errors, though it says what came of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePool:
    """Instances that can stand for each other; also a pattern for such pools."""

    capacity_type: str = "*"
    instance_type: str = "*"
    zone: str = "*"

    def holds(self, pool: InstancePool) -> bool:
        """Whether a pool is one of those that this pattern names."""
        return (
            fnmatchcase(pool.capacity_type, self.capacity_type)
            and fnmatchcase(pool.instance_type, self.instance_type)
            and fnmatchcase(pool.zone, self.zone)
        )


@final
class CapacityLimits:
    """The stock of a region and the quotas of an account; without rules, both are endless."""

    def __init__(self, instances: Instances, catalogue: TypeCatalogue) -> None:
        self._instances: Final = instances
        self._catalogue: Final = catalogue
        self._stock: list[tuple[InstancePool, int]] = []
        self._vcpus: dict[str, int] = {}
        self._spot_instances: dict[str, int] = {}
        """By group of families; under an empty name for all of them."""
        self._spot_vcpus: dict[str, int] = {}
        self._limits: list[tuple[InstancePool, int, str]] = []

    def stock(self, pool: InstancePool, instances: int) -> None:
        """Let each pool of a pattern have so many instances, those in use included; the last counts."""
        self._stock.append((pool, instances))

    def sell_out(
        self,
        *,
        capacity_type: str = "*",
        instance_type: str = "*",
        zone: str = "*",
    ) -> None:
        """Let nothing be left of what matches; what runs goes on."""
        self.stock(
            InstancePool(capacity_type=capacity_type, instance_type=instance_type, zone=zone), 0
        )

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

    def limit_spot_vcpus(self, vcpus: int | None, *, group: str = "standard") -> None:
        """Set the spot quota of a group of families, as EC2 counts it; None takes it away."""
        self._spot_vcpus.pop(group, None)
        if vcpus is not None:
            self._spot_vcpus[group] = vcpus

    def limit(self, pools: InstancePool, instances: int, *, code: str) -> None:
        """Let all pools of a pattern together have so many instances: a quota of a type or a zone.

        `code` is the error beyond: `VcpuLimitExceeded`, `MaxSpotInstanceCountExceeded` or
        `InsufficientInstanceCapacity`.
        """
        self._limits.append((pools, instances, code))

    def clear(self) -> None:
        """Make stock and quotas endless."""
        self._stock.clear()
        self._vcpus.clear()
        self._spot_instances.clear()
        self._spot_vcpus.clear()
        self._limits.clear()

    def left(self, pool: InstancePool) -> int | None:
        """Return how many instances of a pool can be had; None when there is no end of them."""
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

    def shortage(self, pool: InstancePool) -> AwsError:
        """Return what is said when a pool has nothing left."""
        if pool.capacity_type == CapacityType.SPOT:
            return AwsError(
                "InsufficientInstanceCapacity",
                "There is no Spot capacity available that matches your request.",
                status=_SERVER_ERROR,
            )
        return AwsError(
            "InsufficientInstanceCapacity",
            f"We currently do not have sufficient {pool.instance_type} capacity in the Availability"
            f" Zone you requested ({pool.zone}). Our system will be working on provisioning"
            " additional capacity.",
            status=_SERVER_ERROR,
        )

    def allowed(self, pool: InstancePool) -> tuple[int | None, AwsError]:
        """Return how many more instances of a pool the quotas permit, and what is said beyond."""
        rooms = [*self._capacities_left(pool)]
        capacity_left, beyond = min(rooms, key=lambda each: each[0], default=(None, _SPOT_BEYOND))
        return (None if capacity_left is None else max(0, capacity_left)), beyond

    def _capacities_left(self, pool: InstancePool) -> Iterator[tuple[int, AwsError]]:
        """Return what each quota that a pool counts against leaves, and what is said beyond."""
        group, vcpus = quota_group(pool.instance_type), max(1, self._vcpus_of(pool.instance_type))
        is_spot = pool.capacity_type == CapacityType.SPOT
        if is_spot:
            for of, quota in self._spot_instances.items():
                if of in {"", group}:
                    yield quota - self._running_spot(of), _SPOT_BEYOND
        quota = (self._spot_vcpus if is_spot else self._vcpus).get(group)
        if quota is not None:
            used = self._used_vcpus(group, is_spot=is_spot)
            yield (quota - used) // vcpus, _SPOT_BEYOND if is_spot else _vcpus_beyond(quota)
        for of_pools, machines, code in self._limits:
            if of_pools.holds(pool):
                used = sum(
                    of_pools.holds(
                        InstancePool(
                            capacity_type=each.capacity_type,
                            instance_type=each.instance_type,
                            zone=each.zone,
                        )
                    )
                    for each in self._instances.living
                )
                yield machines - used, AwsError(code, f"Limit of {machines} instances exceeded.")

    def _used_vcpus(self, group: str, *, is_spot: bool) -> int:
        return sum(
            self._vcpus_of(each.instance_type)
            for each in self._instances.living
            if (each.capacity_type is CapacityType.SPOT) is is_spot
            and quota_group(each.instance_type) == group
        )

    def _running_spot(self, group: str) -> int:
        return sum(
            each.capacity_type is CapacityType.SPOT
            and group in {"", quota_group(each.instance_type)}
            for each in self._instances.living
        )

    def _vcpus_of(self, instance_type: str) -> int:
        type_info = self._catalogue.type_info(instance_type)
        return 0 if type_info is None else type_info.vcpus


_SPOT_BEYOND: Final = AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")


def _vcpus_beyond(quota: int) -> AwsError:
    return AwsError(
        "VcpuLimitExceeded",
        f"You have requested more vCPU capacity than your current vCPU limit of {quota} allows"
        " for the instance bucket that the specified instance type belongs to.",
    )
