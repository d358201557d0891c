"""Stock and quotas in the words of EC2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import SPOT
from karpenter_core.provider.kit.simulated import capacity
from karpenter_core.provider.kit.simulated.capacity import SimulatedQuota
from karpenter_simulated_aws.instances import SimulatedInstance
from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.type_catalogue import quota_group

if TYPE_CHECKING:
    from karpenter_core.provider.kit.simulated.pools import InstancePool
    from karpenter_simulated_aws.instances import Instances
    from karpenter_simulated_aws.type_catalogue import TypeCatalogue

__all__ = ["SOLD_OUT", "CapacityLimits"]

SOLD_OUT: Final = "InsufficientInstanceCapacity"
"""The code for a pool with nothing left."""
_SERVER_ERROR: Final = 500
"""A lack of stock is among EC2's server errors, though it says what came of the call."""
_SPOT_BEYOND: Final = AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")


@final
class CapacityLimits(capacity.CapacityLimits[SimulatedInstance]):
    """The stock of a region and the quotas of an account; without rules, both are endless."""

    def __init__(self, instances: Instances, catalogue: TypeCatalogue) -> None:
        super().__init__(instances, sold_out=_sold_out)
        self._catalogue: Final = catalogue

    def limit_vcpus(self, vcpus: int | None, *, group: str = "standard") -> None:
        """Set the on-demand quota of a group of families; None takes it away."""
        self._limit_vcpus(vcpus, group, is_spot=False)

    def limit_spot_vcpus(self, vcpus: int | None, *, group: str = "standard") -> None:
        """Set the spot quota of a group of families, as EC2 counts it; None takes it away."""
        self._limit_vcpus(vcpus, group, is_spot=True)

    def limit_spot_instances(self, instances: int | None, *, group: str = "") -> None:
        """Set how many spot instances a group of families, or all, may have; None for any number."""
        quota = None
        if instances is not None:
            quota = SimulatedQuota(
                amount=instances,
                covers=lambda pool: (
                    pool.capacity_type == SPOT and group in {"", quota_group(pool.instance_type)}
                ),
                error=_SPOT_BEYOND,
            )
        self.set_quota(("spot instances", group), quota)

    def limit(self, pools: InstancePool, instances: int, *, code: str) -> None:
        """Let all pools of a pattern together have so many instances: a quota of a type or a zone.

        `code` is the error beyond: `VcpuLimitExceeded`, `MaxSpotInstanceCountExceeded` or
        `InsufficientInstanceCapacity`.
        """
        error = AwsError(code, f"Limit of {instances} instances exceeded.")
        quota = SimulatedQuota(amount=instances, covers=pools.holds, error=error)
        self.set_quota((pools, code), quota)

    def _limit_vcpus(self, vcpus: int | None, group: str, *, is_spot: bool) -> None:
        quota = None
        if vcpus is not None:
            quota = SimulatedQuota(
                amount=vcpus,
                covers=lambda pool: (
                    (pool.capacity_type == SPOT) is is_spot
                    and quota_group(pool.instance_type) == group
                ),
                cost=lambda pool: self._vcpus_of(pool.instance_type),
                error=_SPOT_BEYOND if is_spot else _vcpus_beyond(vcpus),
            )
        self.set_quota(("vCPUs", is_spot, group), quota)

    def _vcpus_of(self, instance_type: str) -> int:
        type_info = self._catalogue.type_info(instance_type)
        return 0 if type_info is None else type_info.vcpus


def _sold_out(pool: InstancePool) -> AwsError:
    message = (
        "There is no Spot capacity available that matches your request."
        if pool.capacity_type == SPOT
        else (
            f"We currently do not have sufficient {pool.instance_type} capacity in the Availability"
            f" Zone you requested ({pool.zone}). Our system will be working on provisioning"
            " additional capacity."
        )
    )
    return AwsError(SOLD_OUT, message, status=_SERVER_ERROR)


def _vcpus_beyond(quota: int) -> AwsError:
    return AwsError(
        "VcpuLimitExceeded",
        f"You have requested more vCPU capacity than your current vCPU limit of {quota} allows"
        " for the instance bucket that the specified instance type belongs to.",
    )
