"""Instances with the attributes and states of ECS."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import SPOT
from karpenter_core.provider.kit.simulated import instances as life
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.instances import InstancePhase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.behaviour import CloudBehaviour

__all__ = ["RECYCLING", "Disk", "Instances", "SimulatedInstance", "SimulatedInstanceState"]

RECYCLING: Final = "Recycling"
"""The reason for which an instance is locked that is reclaimed."""
_NOT_FOUND: Final = 404


class SimulatedInstanceState(StrEnum):
    """The status of an instance, as DescribeInstances writes it."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    GONE = "Gone"
    """It was deleted; the API never writes this."""


_ALIVE: Final = {InstancePhase.PENDING, InstancePhase.RUNNING}
_STATES: Final = {
    InstancePhase.PENDING: SimulatedInstanceState.PENDING,
    InstancePhase.RUNNING: SimulatedInstanceState.RUNNING,
    InstancePhase.FAILED: SimulatedInstanceState.STOPPED,
    InstancePhase.TERMINATING: SimulatedInstanceState.STOPPING,
    InstancePhase.GONE: SimulatedInstanceState.GONE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk of an instance."""

    category: str
    size_gib: int
    performance_level: str = ""
    device: str = ""
    encrypted: bool = False
    kms_key_id: str = ""
    snapshot_id: str = ""
    provisioned_iops: int = 0
    bursting: bool = False
    deleted_with_instance: bool = True


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedInstance(life.SimulatedInstance):
    """An instance, as it was launched."""

    family: str
    architecture: str
    vpc_id: str
    vswitch_id: str
    address: str
    addresses: int
    """Number of addresses of its vSwitch that it and its pods take."""
    security_groups: tuple[str, ...]
    user_data: bytes
    """Decoded."""
    system_disk: Disk
    data_disks: tuple[Disk, ...]
    spot_strategy: str = "NoSpot"
    spot_price_limit: float = 0
    spot_duration: int = 1
    """Hours in which a spot instance is not reclaimed."""
    group_id: str = ""
    """The provisioning group that launched it."""
    client_token: str = ""
    name: str = ""
    key_pair: str = ""
    password: str = ""
    password_inherit: bool = False
    ram_role: str = ""
    resource_group_id: str = ""
    deployment_set_id: str = ""
    reservation_id: str = ""
    """The private pool that it came from."""
    public: bool = False
    http_tokens: str = "optional"
    http_endpoint: str = "enabled"
    http_hops: int = 1
    deletion_protection: bool = False
    """Whether it may not be deleted until somebody says that it may."""
    lock_reasons: list[str] = field(default_factory=list[str])
    """`financial`, `security`: why it is locked, whatever the time."""
    recycles_at: datetime | None = None
    """Time at which it is locked for being reclaimed."""
    stops_at: datetime | None = None
    """Time at which it began to stop."""

    @property
    def is_spot(self) -> bool:
        """Whether it can be reclaimed."""
        return self.pool.capacity_type == SPOT


@final
class Instances(life.SimulatedInstances[SimulatedInstance]):
    """The instances of an account."""

    def __init__(self, account: Account, behaviour: CloudBehaviour) -> None:
        super().__init__(account.clock, behaviour)
        self._account: Final = account
        self._settings: Final = behaviour

    def provider_id(self, instance: SimulatedInstance) -> str:
        """Return how Kubernetes names an instance."""
        return f"{self._account.region}.{instance.id}"

    def running_since(self, instance: SimulatedInstance) -> datetime:
        """Return when an instance begins, or began, to run."""
        settings = self._settings
        return instance.launched_at + timedelta(
            seconds=settings.pending_seconds + settings.starting_seconds
        )

    def state_of(
        self, instance: SimulatedInstance, now: datetime | None = None
    ) -> SimulatedInstanceState:
        """Return the state at a moment, now by default."""
        now = now or self._account.clock()
        settings = self._settings
        phase = self.phase_of(instance, now)
        if instance.stops_at is not None and phase in _ALIVE:
            stopped = instance.stops_at + timedelta(seconds=settings.stopping_seconds)
            return (
                SimulatedInstanceState.STOPPED
                if now >= stopped
                else SimulatedInstanceState.STOPPING
            )
        starts = instance.launched_at + timedelta(seconds=settings.pending_seconds)
        if phase is InstancePhase.PENDING and now >= starts:
            return SimulatedInstanceState.STARTING
        return _STATES[phase]

    def is_running(self, instance: SimulatedInstance) -> bool:
        """Whether an instance runs now."""
        return self.state_of(instance) is SimulatedInstanceState.RUNNING

    def locks(self, instance: SimulatedInstance) -> Sequence[str]:
        """Return why an instance is locked now; `Recycling` when it is being reclaimed."""
        recycled = (
            instance.recycles_at is not None and self._account.clock() >= instance.recycles_at
        )
        return [*instance.lock_reasons, *([RECYCLING] if recycled else [])]

    def existing(self, instance_id: str) -> SimulatedInstance:
        """Return an instance that is not gone.

        Raises:
            CloudError: there is none.
        """
        found = self.get(instance_id)
        if found is None or self.state_of(found) is SimulatedInstanceState.GONE:
            raise CloudError(
                "InvalidInstanceId.NotFound",
                f"The specified InstanceId {instance_id} does not exist.",
                status=_NOT_FOUND,
            )
        return found

    def used_addresses(self) -> Mapping[str, int]:
        """Return how many addresses are taken, by vSwitch."""
        used: Counter[str] = Counter()
        for instance in self.living:
            used[instance.vswitch_id] += instance.addresses
        return used
