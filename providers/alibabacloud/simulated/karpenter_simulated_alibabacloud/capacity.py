"""Stock and quotas of the simulated cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.pools import ON_DEMAND, InstancePool

if TYPE_CHECKING:
    from karpenter_simulated_alibabacloud.instances import Instances
    from karpenter_simulated_alibabacloud.type_catalogue import TypeCatalogue

__all__ = ["CapacityLimits"]

_FORBIDDEN: Final = 403


@final
class CapacityLimits:
    """The stock of a region and the quotas of an account; without rules, both are endless."""

    def __init__(self, instances: Instances, catalogue: TypeCatalogue) -> None:
        self._instances: Final = instances
        self._catalogue: Final = catalogue
        self._stock: list[tuple[InstancePool, int]] = []
        self._vcpus: dict[tuple[str, str], int] = {}
        """By capacity type and zone; no zone is the region."""
        self._instance_limits: dict[str, int] = {}
        """By instance type."""
        self.no_stock_code = "OperationDenied.NoStock"
        """The code for a pool with nothing left; some calls say `NoInstanceStock`."""
        self.no_addresses_code = "InvalidVSwitchId.IpNotEnough"
        """The code for a full vSwitch; RunInstances also says `QuotaExceeded.PrivateIpAddress`."""

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

    def limit_vcpus(
        self, vcpus: int | None, *, capacity_type: str = ON_DEMAND, zone: str = ""
    ) -> None:
        """Set the quota of vCPUs of a capacity type, in a zone or the region; None takes it away."""
        self._vcpus.pop((capacity_type, zone), None)
        if vcpus is not None:
            self._vcpus[capacity_type, zone] = vcpus

    def limit_type(self, instance_type: str, instances: int) -> None:
        """Set the quota of on-demand instances of an instance type in the region."""
        self._instance_limits[instance_type] = instances

    def clear(self) -> None:
        """Make stock and quotas endless."""
        self._stock.clear()
        self._vcpus.clear()
        self._instance_limits.clear()
        self.no_stock_code = "OperationDenied.NoStock"
        self.no_addresses_code = "InvalidVSwitchId.IpNotEnough"

    def left(self, pool: InstancePool) -> int | None:
        """Return how many instances of a pool can be had; None when there is no end of them.

        Those that came from a private pool were never of the public stock.
        """
        machines = next(
            (number for rule, number in reversed(self._stock) if rule.holds(pool)), None
        )
        if machines is None:
            return None
        used = sum(each.pool == pool and not each.reservation_id for each in self._instances.living)
        return max(0, machines - used)

    def shortage(self, pool: InstancePool) -> CloudError:
        """Return what is said when a pool has nothing left."""
        return CloudError(
            self.no_stock_code,
            f"The requested resource {pool.instance_type} is sold out in the zone {pool.zone}.",
            status=_FORBIDDEN,
        )

    def allowed(self, pool: InstancePool) -> tuple[int | None, CloudError]:
        """Return how many more instances of a pool the quotas permit, and what is said beyond that.

        None stands for any number.
        """
        limits = [
            (
                max(0, quota - self._used_vcpus(pool, zone))
                // max(1, self._vcpus_of(pool.instance_type)),
                zone,
            )
            for (capacity_type, zone), quota in self._vcpus.items()
            if capacity_type == pool.capacity_type and zone in {"", pool.zone}
        ]
        least, zone = min(limits, default=(None, ""))
        where = f" in the zone {zone}" if zone else ""
        said = f"The number of vCPUs of {pool.capacity_type} instances{where} exceeds the quota."
        machines = self._instance_limits.get(pool.instance_type)
        if machines is not None and pool.capacity_type == ON_DEMAND:
            used = sum(
                each.pool.instance_type == pool.instance_type and not each.is_spot
                for each in self._instances.living
            )
            left = max(0, machines - used)
            if least is None or left < least:
                least = left
                said = "No additional quota is available for the specified ECS instance type."
        return least, CloudError("QuotaExceed.ElasticQuota", said, status=_FORBIDDEN)

    def _used_vcpus(self, pool: InstancePool, zone: str) -> int:
        return sum(
            self._vcpus_of(each.pool.instance_type)
            for each in self._instances.living
            if each.pool.capacity_type == pool.capacity_type and zone in {"", each.pool.zone}
        )

    def _vcpus_of(self, instance_type: str) -> int:
        type_info = self._catalogue.type_info(instance_type)
        return 0 if type_info is None else type_info.vcpus
