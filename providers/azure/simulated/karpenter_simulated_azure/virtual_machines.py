"""Virtual machines, with the provisioning states of Azure.

The provisioning state, the network interfaces and the disks of a virtual machine follow from the time:
a DELETE or an eviction says when the virtual machine ends, and nothing else has to happen then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import SPOT
from karpenter_core.provider.kit.simulated import instances as life
from karpenter_core.provider.kit.simulated.instances import InstancePhase
from karpenter_simulated_azure.json_values import object_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.provider.kit.simulated.pools import InstancePool
    from karpenter_simulated_azure.behaviour import AzureBehaviour
    from karpenter_simulated_azure.operations import OperationRecord

__all__ = ["LaunchDelay", "ProvisioningState", "VirtualMachine", "VirtualMachines", "machine_key"]


class ProvisioningState(StrEnum):
    """The provisioning state, as Azure writes it."""

    CREATING = "Creating"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETING = "Deleting"
    GONE = "Gone"
    """It was deleted; the API never writes this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledEvent:
    """An event that Azure announces to a virtual machine."""

    kind: str
    """`Preempt`, `Redeploy`, `Terminate`, `Reboot` or `Freeze`."""
    announced_at: datetime
    not_before: datetime
    """Time at which it happens."""


_STATES: Final = {
    InstancePhase.PENDING: ProvisioningState.CREATING,
    InstancePhase.RUNNING: ProvisioningState.SUCCEEDED,
    InstancePhase.FAILED: ProvisioningState.FAILED,
    InstancePhase.TERMINATING: ProvisioningState.DELETING,
    InstancePhase.GONE: ProvisioningState.GONE,
}


def machine_key(resource_group: str, name: str) -> str:
    """Return the key of a virtual machine, the same for each casing."""
    return f"{resource_group}/{name}".lower()


@dataclass(slots=True, kw_only=True, eq=False)
class VirtualMachine(life.SimulatedInstance):
    """A virtual machine, as it was created; its `id` is `machine_key`."""

    resource_id: str
    resource_group: str
    name: str
    vm_id: str
    """The `vmId` that Azure gave it."""
    body: JsonObject
    """The resource as it was put, without the network interfaces that it declared."""
    etag: str
    cpus: int
    quota_family: str
    interface_ids: tuple[str, ...] = ()
    kept_interface_ids: frozenset[str] = frozenset()
    """Interfaces with another `deleteOption` than `Delete`."""
    extensions: dict[str, JsonObject] = field(default_factory=dict[str, "JsonObject"])
    """By name in lower case."""
    runs_at: datetime
    """Time at which its creation succeeds; `datetime.max` for never."""
    operation: OperationRecord | None = None
    """The operation of its creation."""
    is_graceful: bool = False
    """Whether it was deleted without `forceDeletion`."""
    event: ScheduledEvent | None = None

    @property
    def is_spot(self) -> bool:
        """Whether it can be evicted."""
        return self.pool.capacity_type == SPOT

    @property
    def custom_data(self) -> str:
        """The custom data, as base64; empty if there is none."""
        return str(object_in(self.body, "properties", "osProfile").get("customData") or "")

    @property
    def os_disk(self) -> JsonObject:
        """The `osDisk`."""
        return self.body["properties"]["storageProfile"]["osDisk"]


@final
@dataclass(slots=True, kw_only=True, eq=False)
class LaunchDelay:
    """Extra time that launches from matching pools take; as a context manager, as long as it."""

    pool: InstancePool
    seconds: float
    delays: list[LaunchDelay] = field(repr=False)

    def end(self) -> None:
        """Remove the delay; launches that it has struck keep theirs."""
        if self in self.delays:
            self.delays.remove(self)

    def __enter__(self) -> LaunchDelay:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@final
class VirtualMachines(life.SimulatedInstances[VirtualMachine]):
    """The virtual machines of a subscription."""

    def __init__(self, clock: Callable[[], datetime], behaviour: AzureBehaviour) -> None:
        super().__init__(clock, behaviour)
        self._now: Final = clock
        self._settings: Final = behaviour
        self._past: Final[list[VirtualMachine]] = []
        """Virtual machines whose name another one has taken."""
        self._delays: Final[list[LaunchDelay]] = []
        self.ended: Callable[[VirtualMachine], None] = lambda _: None
        """Called when it is known when a virtual machine ends."""

    def add(self, instance: VirtualMachine) -> None:
        """Add a new virtual machine; a late failure or a delay may strike it."""
        if (before := self._instances.pop(instance.id, None)) is not None:
            self._past.append(before)
        super().add(instance)

    def clear(self) -> None:
        """Remove all virtual machines, late failures and delays."""
        super().clear()
        self._past.clear()
        self._delays.clear()

    def current(self, key: str) -> VirtualMachine | None:
        """Return a virtual machine that is not gone; None if there is none."""
        found = self.get(key)
        if found is None or self.phase_of(found) is InstancePhase.GONE:
            return None
        return found

    @property
    def ever(self) -> Sequence[VirtualMachine]:
        """Return every virtual machine that there was, those of the same name too."""
        return [*self._past, *self.all]

    def delay(self, pool: InstancePool, seconds: float) -> LaunchDelay:
        """Let launches from matching pools take longer."""
        delay = LaunchDelay(pool=pool, seconds=seconds, delays=self._delays)
        self._delays.append(delay)
        return delay

    def ready_at(self, pool: InstancePool) -> datetime:
        """Return when a launch from a pool that begins now succeeds."""
        delays = sum(each.seconds for each in self._delays if each.pool.holds(pool))
        return self._now() + timedelta(seconds=self._settings.pending_seconds + delays)

    def running_since(self, instance: VirtualMachine) -> datetime:
        """Return when its creation succeeds, or succeeded."""
        return instance.runs_at

    def gone_at(self, instance: VirtualMachine) -> datetime | None:
        """Return when it is deleted; None if nobody has deleted it."""
        ended = super().gone_at(instance)
        if ended is None or not instance.is_graceful:
            return ended
        return ended + timedelta(seconds=self._settings.graceful_seconds)

    def state_of(self, instance: VirtualMachine, now: datetime | None = None) -> ProvisioningState:
        """Return the provisioning state at a time, now by default."""
        return _STATES[self.phase_of(instance, now)]

    def end(
        self, instance: VirtualMachine, *, at: datetime | None = None, reason: str = ""
    ) -> None:
        """Start its deletion, now or later; a creation that is not finished then is canceled."""
        super().end(instance, at=at, reason=reason)
        self._cancel_creation(instance)
        self.ended(instance)

    @staticmethod
    def _cancel_creation(instance: VirtualMachine) -> None:
        operation, ends_at = instance.operation, instance.ends_at
        if operation is None or ends_at is None:
            return
        if operation.done_at is None or operation.done_at > ends_at:
            operation.done_at, operation.canceled = ends_at, True
