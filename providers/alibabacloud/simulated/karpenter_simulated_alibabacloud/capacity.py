"""Stock and quotas in the words of ECS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ON_DEMAND
from karpenter_core.provider.kit.simulated import capacity
from karpenter_core.provider.kit.simulated.capacity import SimulatedQuota
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_simulated_alibabacloud.instances import SimulatedInstance

if TYPE_CHECKING:
    from karpenter_simulated_alibabacloud.instances import Instances
    from karpenter_simulated_alibabacloud.type_catalogue import TypeCatalogue

__all__ = ["CapacityLimits"]

_FORBIDDEN: Final = 403
_NO_STOCK: Final = "OperationDenied.NoStock"
_NO_ADDRESSES: Final = "InvalidVSwitchId.IpNotEnough"


@final
class CapacityLimits(capacity.CapacityLimits[SimulatedInstance]):
    """The stock of a region and the quotas of an account; without rules, both are endless."""

    def __init__(self, instances: Instances, catalogue: TypeCatalogue) -> None:
        super().__init__(instances, sold_out=self._sold_out)
        self._catalogue: Final = catalogue
        self.no_stock_code = _NO_STOCK
        """The code for a pool with nothing left; some calls say `NoInstanceStock`."""
        self.no_addresses_code = _NO_ADDRESSES
        """The code for a full vSwitch; RunInstances also says `QuotaExceeded.PrivateIpAddress`."""

    def limit_vcpus(
        self, vcpus: int | None, *, capacity_type: str = ON_DEMAND, zone: str = ""
    ) -> None:
        """Set the quota of vCPUs of a capacity type, in a zone or the region; None takes it away."""
        where = f" in the zone {zone}" if zone else ""
        quota = None
        if vcpus is not None:
            quota = SimulatedQuota(
                amount=vcpus,
                covers=InstancePool(capacity_type=capacity_type, zone=zone or "*").holds,
                cost=lambda pool: self._vcpus_of(pool.instance_type),
                error=_beyond(
                    f"The number of vCPUs of {capacity_type} instances{where} exceeds the quota."
                ),
            )
        self.set_quota((capacity_type, zone), quota)

    def limit_type(self, instance_type: str, instances: int) -> None:
        """Set the quota of on-demand instances of an instance type in the region."""
        quota = SimulatedQuota(
            amount=instances,
            covers=InstancePool(capacity_type=ON_DEMAND, instance_type=instance_type).holds,
            error=_beyond("No additional quota is available for the specified ECS instance type."),
        )
        self.set_quota(instance_type, quota)

    def clear(self) -> None:
        """Make stock and quotas endless."""
        super().clear()
        self.no_stock_code = _NO_STOCK
        self.no_addresses_code = _NO_ADDRESSES

    def _sold_out(self, pool: InstancePool) -> CloudError:
        return CloudError(
            self.no_stock_code,
            f"The requested resource {pool.instance_type} is sold out in the zone {pool.zone}.",
            status=_FORBIDDEN,
        )

    def _vcpus_of(self, instance_type: str) -> int:
        type_info = self._catalogue.type_info(instance_type)
        return 0 if type_info is None else type_info.vcpus


def _beyond(said: str) -> CloudError:
    return CloudError("QuotaExceed.ElasticQuota", said, status=_FORBIDDEN)
