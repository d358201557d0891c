"""Controls of every simulated cloud: start, stop, faults, instance events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Self, TypeVar

from karpenter_core.provider.kit.simulated.faults import CloudError, CloudFault, CloudFaultKind
from karpenter_core.provider.kit.simulated.instances import SimulatedInstance, SimulatedInstances
from karpenter_core.provider.kit.simulated.pools import InstancePool, PoolFault, PoolFaults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.provider.kit.simulated.behaviour import CloudBehaviour
    from karpenter_core.provider.kit.simulated.capacity import CapacityLimits
    from karpenter_core.provider.kit.simulated.cloud_time import CloudTime
    from karpenter_core.provider.kit.simulated.endpoint import CloudControls
    from karpenter_core.provider.kit.simulated.kubelets import SimulatedKubelets
    from karpenter_core.provider.kit.simulated.prices import SimulatedPrices

__all__ = ["SharedParts", "SimulatedCloud"]

Item = TypeVar("Item", bound=SimulatedInstance)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts(Generic[Item]):
    """The parts of a simulated cloud that its controls need."""

    behaviour: CloudBehaviour
    instances: SimulatedInstances[Item]
    capacity: CapacityLimits[Item]
    kubelets: SimulatedKubelets[Item]
    prices: SimulatedPrices
    refusals: PoolFaults
    """Launches from pools that are refused; the cloud asks them for each pool that it tries."""


class SimulatedCloud(ABC, Generic[Item]):
    """A simulated cloud; a context manager starts and stops it."""

    termination_reason: ClassVar[str] = "terminated"
    """Reason that the cloud gives for instances ended by `terminate`."""
    interruption_reason: ClassVar[str] = "interrupted"
    """Reason that the cloud gives for instances ended by `reclaim`."""

    def __init__(self, time: CloudTime, endpoint: CloudControls, parts: SharedParts[Item]) -> None:
        self.time: Final = time
        self.faults: Final = endpoint.faults
        self.throttling: Final = endpoint.throttling
        self.calls: Final = endpoint.calls
        self._state: Final = endpoint.state
        self.shared: Final = parts

    @property
    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """The environment variables that direct the cloud's SDK to it."""

    @abstractmethod
    def start(self) -> None:
        """Start to serve."""

    @abstractmethod
    def stop(self) -> None:
        """Stop."""

    @abstractmethod
    def provider_id(self, instance: Item) -> str:
        """Return the provider ID of an instance."""

    @abstractmethod
    def announce_interruption(self, instance: Item, at: datetime, ends_at: datetime, /) -> None:
        """Announce, at a time that is now or later, when an instance will be taken back."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reset_controls(self) -> None:
        """Remove all faults, limits and delays, and the time that was added."""
        parts = self.shared
        self.faults.clear()
        self.throttling.set({})
        parts.behaviour.reset()
        self.time.reset()
        with self._state:
            parts.refusals.clear()
            parts.instances.clear()
            parts.capacity.clear()
            parts.kubelets.clear()
            parts.prices.clear()

    # -- faults ----------------------------------------------------------------------------------

    def fail(
        self,
        action: str,
        *,
        code: str,
        message: str = "simulated",
        status: int = 400,
        retry_after_seconds: float | None = None,
        times: int | None = 1,
        where: Callable[[Mapping[str, object]], bool] | None = None,
    ) -> CloudFault:
        """Refuse calls of an action (`CreateFleet`, `ec2:Describe*`); they have no effect."""
        error = CloudError(code, message, status=status, retry_after_seconds=retry_after_seconds)
        return self._fault(CloudFaultKind.REFUSED, action, error=error, times=times, where=where)

    def deny(
        self,
        action: str,
        *,
        times: int | None = None,
        where: Callable[[Mapping[str, object]], bool] | None = None,
    ) -> CloudFault:
        """Refuse calls because no policy permits them."""
        return self._fault(CloudFaultKind.REFUSED, action, times=times, where=where)

    def lose_replies(self, action: str, *, times: int | None = 1) -> CloudFault:
        """Carry calls out, and cut the connection before the answer."""
        return self._fault(CloudFaultKind.LOST_REPLY, action, times=times)

    def cut_bodies(
        self,
        action: str,
        *,
        times: int | None = 1,
        where: Callable[[Mapping[str, object]], bool] | None = None,
    ) -> CloudFault:
        """Carry calls out, and cut the connection in the middle of the body of the answer."""
        return self._fault(CloudFaultKind.CUT_BODY, action, times=times, where=where)

    def fall_silent(self, action: str = "*", *, times: int | None = None) -> CloudFault:
        """Accept calls, do nothing and never answer."""
        return self._fault(CloudFaultKind.SILENT, action, times=times)

    def cut_off(self, action: str = "*", *, times: int | None = None) -> CloudFault:
        """Cut connections; calls have no effect."""
        return self._fault(CloudFaultKind.UNREACHABLE, action, times=times)

    def fail_pools(
        self,
        *,
        code: str,
        message: str = "simulated",
        capacity_type: str = "*",
        instance_type: str = "*",
        zone: str = "*",
        times: int | None = None,
    ) -> PoolFault:
        """Refuse launches from the pools that match."""
        pool = InstancePool(capacity_type=capacity_type, instance_type=instance_type, zone=zone)
        fault = PoolFault(pool=pool, error=CloudError(code, message), times=times)
        return self.shared.refusals.add(fault)

    def fail_late(
        self,
        *,
        code: str,
        message: str = "simulated",
        after_seconds: float = 0,
        pool: InstancePool | None = None,
        times: int | None = None,
    ) -> PoolFault:
        """Accept launches from the pools that match, and let them fail later."""
        fault = PoolFault(
            pool=pool or InstancePool(),
            error=CloudError(code, message),
            times=times,
            after_seconds=after_seconds,
        )
        return self.shared.instances.late_failures.add(fault)

    def _fault(
        self,
        kind: CloudFaultKind,
        action: str,
        *,
        error: CloudError | None = None,
        times: int | None,
        where: Callable[[Mapping[str, object]], bool] | None = None,
    ) -> CloudFault:
        return self.faults.add(
            CloudFault(kind=kind, action=action, error=error, times=times, where=where)
        )

    # -- instances -------------------------------------------------------------------------------

    def instance_id(self, named: str) -> str:
        """Return the id of an instance that is named by its id or provider ID."""
        return named.rpartition("/")[2]

    def instance(self, named: str) -> Item:
        """Return an instance by its id or provider ID.

        Raises:
            LookupError: there is none.
        """
        found = self.shared.instances.get(self.instance_id(named))
        if found is None:
            raise LookupError(f"there is no instance {named}")
        return found

    def living(self) -> Sequence[Item]:
        """Return every instance that is not gone."""
        with self._state:
            return list(self.shared.instances.living)

    def terminate(self, named: str) -> None:
        """Terminate an instance, as another user might."""
        with self._state:
            self.shared.instances.end(self.instance(named), reason=self.termination_reason)

    def reclaim(
        self,
        named: str,
        *,
        notice_seconds: float | None = None,
        not_before: datetime | None = None,
    ) -> datetime:
        """Announce an interruption, and terminate the instance after the notice; return when.

        It is not terminated earlier than `not_before`; the announcement comes later, too.
        """
        instance, behaviour = self.instance(named), self.shared.behaviour
        notice = timedelta(
            seconds=behaviour.spot_notice_seconds if notice_seconds is None else notice_seconds
        )
        now = self.time()
        ends_at = max(now + notice, not_before or now)
        with self._state:
            self.announce_interruption(instance, ends_at - notice, ends_at)
            self.shared.instances.end(instance, at=ends_at, reason=self.interruption_reason)
        return ends_at

    def node(self, named: str) -> Mapping[str, object] | None:
        """Return the Node of an instance; None if it has none now (`kubelets.boot_failure`)."""
        with self._state:
            return self.shared.kubelets.node(self.instance(named))

    def nodes(self) -> Mapping[str, Mapping[str, object]]:
        """Return the Node of every instance that has one now, by provider ID."""
        with self._state:
            found = {
                self.provider_id(each): self.shared.kubelets.node(each)
                for each in self.shared.instances.living
            }
        return {provider_id: node for provider_id, node in found.items() if node is not None}
