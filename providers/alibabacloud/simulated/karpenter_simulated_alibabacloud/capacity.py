"""Stock and quotas: how many machines there are of each kind, and how many one may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.pools import ON_DEMAND, Pool

if TYPE_CHECKING:
    from karpenter_simulated_alibabacloud.catalogue import Catalogue
    from karpenter_simulated_alibabacloud.instances import Instances

__all__ = ["Capacity"]

_FORBIDDEN: Final = 403


@final
class Capacity:
    """The stock of a region and the quotas of an account; without rules, both are endless."""

    def __init__(self, instances: Instances, catalogue: Catalogue) -> None:
        self._instances: Final = instances
        self._catalogue: Final = catalogue
        self._stock: list[tuple[Pool, int]] = []
        self._vcpus: dict[tuple[str, str], int] = {}
        """By capacity type and zone; no zone is the region."""
        self._machines: dict[str, int] = {}
        """By instance type."""
        self.no_stock_code = "OperationDenied.NoStock"
        """The code for a pool with nothing left; some calls say `NoInstanceStock`."""
        self.no_addresses_code = "InvalidVSwitchId.IpNotEnough"
        """The code for a full vSwitch; RunInstances also says `QuotaExceeded.PrivateIpAddress`."""

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

    def limit_vcpus(
        self, vcpus: int | None, *, capacity_type: str = ON_DEMAND, zone: str = ""
    ) -> None:
        """Set the quota of vCPUs of a capacity type, in a zone or the region; None takes it away."""
        self._vcpus.pop((capacity_type, zone), None)
        if vcpus is not None:
            self._vcpus[capacity_type, zone] = vcpus

    def limit_type(self, instance_type: str, machines: int) -> None:
        """Set the quota of on-demand machines of an instance type in the region."""
        self._machines[instance_type] = machines

    def clear(self) -> None:
        """Make stock and quotas endless."""
        self._stock.clear()
        self._vcpus.clear()
        self._machines.clear()
        self.no_stock_code = "OperationDenied.NoStock"
        self.no_addresses_code = "InvalidVSwitchId.IpNotEnough"

    def left(self, pool: Pool) -> int | None:
        """Return how many machines of a pool can be had; None when there is no end of them.

        Those that came from a private pool were never of the public stock.
        """
        machines = next(
            (number for rule, number in reversed(self._stock) if rule.holds(pool)), None
        )
        if machines is None:
            return None
        used = sum(each.pool == pool and not each.reservation_id for each in self._instances.living)
        return max(0, machines - used)

    def shortage(self, pool: Pool) -> CloudError:
        """Return what is said when a pool has nothing left."""
        return CloudError(
            self.no_stock_code,
            f"The requested resource {pool.instance_type} is sold out in the zone {pool.zone}.",
            status=_FORBIDDEN,
        )

    def allowed(self, pool: Pool) -> tuple[int | None, CloudError]:
        """Return how many more machines of a pool the quotas permit, and what is said beyond that.

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
        machines = self._machines.get(pool.instance_type)
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

    def _used_vcpus(self, pool: Pool, zone: str) -> int:
        return sum(
            self._vcpus_of(each.pool.instance_type)
            for each in self._instances.living
            if each.pool.capacity_type == pool.capacity_type and zone in {"", each.pool.zone}
        )

    def _vcpus_of(self, instance_type: str) -> int:
        facts = self._catalogue.facts(instance_type)
        return 0 if facts is None else facts.vcpus
