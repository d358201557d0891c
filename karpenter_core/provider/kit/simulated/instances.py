"""Instances of a simulated cloud, with a phase that follows from the time.

No thread changes a phase: an instance knows when it was launched, when its launch fails and when its
termination starts, and its phase follows from the time of the call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from karpenter_core.provider.kit.simulated.pools import PoolFaults

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from karpenter_core.provider.kit.simulated.behaviour import CloudBehaviour
    from karpenter_core.provider.kit.simulated.faults import CloudError
    from karpenter_core.provider.kit.simulated.pools import InstancePool

__all__ = ["InstancePhase", "SimulatedInstance", "SimulatedInstances"]


class InstancePhase(StrEnum):
    """The phase of an instance's life; a cloud has its own names for them."""

    PENDING = "pending"
    RUNNING = "running"
    FAILED = "failed"
    """The launch was accepted and failed later; the instance is described until it is terminated."""
    TERMINATING = "terminating"
    GONE = "gone"


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedInstance:
    """An instance, as it was launched; a cloud derives from it and adds its own fields."""

    id: str
    pool: InstancePool
    launched_at: datetime
    image_id: str = ""
    tags: dict[str, str] = field(default_factory=dict[str, str])
    takes_stock: bool = True
    """Whether it came from the stock of its pool; False for those from reserved capacity."""
    shown_at: datetime | None = None
    """Time from which it is described; None for its launch."""
    fails_at: datetime | None = None
    """Time at which its launch fails."""
    failure: CloudError | None = None
    """Reason of its launch's failure."""
    ends_at: datetime | None = None
    """Time at which its termination starts."""
    end_reason: str = ""

    @property
    def instance_type(self) -> str:
        """Its instance type."""
        return self.pool.instance_type

    @property
    def zone(self) -> str:
        """Its zone."""
        return self.pool.zone

    @property
    def capacity_type(self) -> str:
        """Its capacity type."""
        return self.pool.capacity_type


Item = TypeVar("Item", bound=SimulatedInstance)


def _ignore_phase(_instance: object, _phase: InstancePhase, _seconds: float) -> None:
    """Ignore a change."""


class SimulatedInstances(Generic[Item]):
    """The instances of a simulated cloud."""

    def __init__(self, clock: Callable[[], datetime], behaviour: CloudBehaviour) -> None:
        self._clock: Final = clock
        self._behaviour: Final = behaviour
        self._instances: Final[dict[str, Item]] = {}
        self.late_failures: Final = PoolFaults()
        """Launches that are accepted and fail `PoolFault.after_seconds` later."""
        self.phase_changed: Callable[[Item, InstancePhase, float], None] = _ignore_phase
        """Called with an instance, its next phase, and in how many seconds it begins."""

    def add(self, instance: Item) -> None:
        """Add a new instance; a late failure may strike it."""
        self._instances[instance.id] = instance
        if fault := self.late_failures.strike(instance.pool):
            instance.failure = fault.error
            instance.fails_at = instance.launched_at + timedelta(seconds=fault.after_seconds)
        self.phase_changed(instance, InstancePhase.PENDING, 0)
        wait = self.running_since(instance) - instance.launched_at
        self.phase_changed(instance, InstancePhase.RUNNING, wait.total_seconds())

    def clear(self) -> None:
        """Remove all instances and late failures."""
        self._instances.clear()
        self.late_failures.clear()

    @property
    def all(self) -> Sequence[Item]:
        """Return every instance, those that are gone too, by launch time."""
        return list(self._instances.values())

    @property
    def living(self) -> Sequence[Item]:
        """Return every instance that is not gone: it uses addresses and quota."""
        now = self._clock()
        return [each for each in self.all if self.phase_of(each, now) is not InstancePhase.GONE]

    @property
    def visible(self) -> Sequence[Item]:
        """Return the instances that calls describe."""
        now = self._clock()
        return [each for each in self.all if self.is_visible(each, now)]

    def get(self, instance_id: str) -> Item | None:
        """Return an instance in any phase; None if there never was one with this id."""
        return self._instances.get(instance_id)

    def running_since(self, instance: Item) -> datetime:
        """Return when an instance starts, or started, to run."""
        return instance.launched_at + timedelta(seconds=self._behaviour.pending_seconds)

    def gone_at(self, instance: Item) -> datetime | None:
        """Return when its termination ends, or ended; None if it is not to be terminated.

        A cloud whose instances take times of their own to terminate overrides this.
        """
        if instance.ends_at is None:
            return None
        return instance.ends_at + timedelta(seconds=self._behaviour.terminating_seconds)

    def phase_of(self, instance: Item, now: datetime | None = None) -> InstancePhase:
        """Return the phase at a time, now by default."""
        now = now or self._clock()
        gone_at = self.gone_at(instance)
        if gone_at is not None and now >= gone_at:
            return InstancePhase.GONE
        if instance.ends_at is not None and now >= instance.ends_at:
            return InstancePhase.TERMINATING
        if instance.fails_at is not None and now >= instance.fails_at:
            return InstancePhase.FAILED
        if now >= self.running_since(instance):
            return InstancePhase.RUNNING
        return InstancePhase.PENDING

    def state_of(self, instance: Item, now: datetime | None = None) -> StrEnum:
        """Return the state under the name that the cloud has for it; the phase by default."""
        return self.phase_of(instance, now)

    def is_running(self, instance: Item) -> bool:
        """Whether an instance runs now; a cloud whose instances can be stopped overrides this."""
        return self.phase_of(instance) is InstancePhase.RUNNING

    def is_visible(self, instance: Item, now: datetime | None = None) -> bool:
        """Whether calls describe an instance: not yet if it is new, and no more if it is long gone."""
        now, behaviour = now or self._clock(), self._behaviour
        shown_at = max(
            instance.shown_at or instance.launched_at,
            instance.launched_at + timedelta(seconds=behaviour.invisible_seconds),
        )
        if now < shown_at:
            return False
        gone_at = self.gone_at(instance)
        seconds = behaviour.gone_visible_seconds
        return gone_at is None or now < gone_at + timedelta(seconds=seconds)

    def end(self, instance: Item, *, at: datetime | None = None, reason: str = "") -> None:
        """Start its termination, now or later; one that has started is not put off."""
        now = self._clock()
        starts_at = at or now
        if instance.ends_at is not None and instance.ends_at <= starts_at:
            return
        instance.ends_at, instance.end_reason = starts_at, reason
        wait = (starts_at - now).total_seconds()
        self.phase_changed(instance, InstancePhase.TERMINATING, wait)
        seconds = ((self.gone_at(instance) or starts_at) - now).total_seconds()
        self.phase_changed(instance, InstancePhase.GONE, seconds)
