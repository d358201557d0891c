"""Instances: attributes, and a state that follows from time.

No thread changes states: an instance knows when it was launched and when its end began, and its
state follows from the time of the call.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.pools import SPOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.behaviour import CloudBehaviour
    from karpenter_simulated_alibabacloud.pools import InstancePool

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
class SimulatedInstance:
    """An instance, as it was launched."""

    id: str
    pool: InstancePool
    """Type, zone and whether it is spot."""
    family: str
    image_id: str
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
    launched_at: datetime
    tags: dict[str, str]
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
    shown_at: datetime | None = None
    """When it is described first, where its launch takes time; at once otherwise."""
    deletion_protection: bool = False
    """Whether it may not be deleted until somebody says that it may."""
    lock_reasons: list[str] = field(default_factory=list[str])
    """`financial`, `security`: why it is locked, whatever the time."""
    recycles_at: datetime | None = None
    """When it is locked for being reclaimed."""
    ends_at: datetime | None = None
    """When its end begins."""
    stops_at: datetime | None = None
    """When it began to stop."""

    @property
    def is_spot(self) -> bool:
        """Whether it can be reclaimed."""
        return self.pool.capacity_type == SPOT


@final
class Instances:
    """The instances of an account."""

    def __init__(self, account: Account, behaviour: CloudBehaviour) -> None:
        self._account: Final = account
        self._behaviour: Final = behaviour
        self._instances: dict[str, SimulatedInstance] = {}

    def add(self, instance: SimulatedInstance) -> None:
        """Keep a new instance."""
        self._instances[instance.id] = instance

    def clear(self) -> None:
        """Forget all instances."""
        self._instances.clear()

    @property
    def all(self) -> Sequence[SimulatedInstance]:
        """Every instance, those that are gone too, by launch time."""
        return list(self._instances.values())

    @property
    def living(self) -> Sequence[SimulatedInstance]:
        """Every instance that is not gone: it takes stock, addresses and quota."""
        now = self._account.clock()
        return [
            each for each in self.all if self.state_of(each, now) is not SimulatedInstanceState.GONE
        ]

    def get(self, instance_id: str) -> SimulatedInstance | None:
        """Return an instance, whatever its state; None when there never was one."""
        return self._instances.get(instance_id)

    def provider_id(self, instance: SimulatedInstance) -> str:
        """Return how Kubernetes names an instance."""
        return f"{self._account.region}.{instance.id}"

    def running_since(self, instance: SimulatedInstance) -> datetime:
        """Return when an instance begins, or began, to run."""
        behaviour = self._behaviour
        return instance.launched_at + timedelta(
            seconds=behaviour.pending_seconds + behaviour.starting_seconds
        )

    def state_of(
        self, instance: SimulatedInstance, now: datetime | None = None
    ) -> SimulatedInstanceState:
        """Return the state at a moment, now by default."""
        now = now or self._account.clock()
        behaviour = self._behaviour
        if instance.ends_at is not None and now >= instance.ends_at:
            gone = instance.ends_at + timedelta(seconds=behaviour.releasing_seconds)
            return SimulatedInstanceState.GONE if now >= gone else SimulatedInstanceState.STOPPING
        if instance.stops_at is not None:
            stopped = instance.stops_at + timedelta(seconds=behaviour.stopping_seconds)
            return (
                SimulatedInstanceState.STOPPED
                if now >= stopped
                else SimulatedInstanceState.STOPPING
            )
        if now < instance.launched_at + timedelta(seconds=behaviour.pending_seconds):
            return SimulatedInstanceState.PENDING
        return (
            SimulatedInstanceState.STARTING
            if now < self.running_since(instance)
            else SimulatedInstanceState.RUNNING
        )

    def locks(self, instance: SimulatedInstance) -> Sequence[str]:
        """Return why an instance is locked now; `Recycling` when it is being reclaimed."""
        recycled = (
            instance.recycles_at is not None and self._account.clock() >= instance.recycles_at
        )
        return [*instance.lock_reasons, *([RECYCLING] if recycled else [])]

    def visible(self) -> Sequence[SimulatedInstance]:
        """Return what Describe calls see: neither what is quite new nor what is gone."""
        now = self._account.clock()
        lag = timedelta(seconds=self._behaviour.invisible_seconds)
        return [each for each in self.living if now >= (each.shown_at or each.launched_at) + lag]

    def existing(self, instance_id: str) -> SimulatedInstance:
        """Return an instance that is not gone.

        Raises:
            CloudError: there is none.
        """
        found = self._instances.get(instance_id)
        if found is None or self.state_of(found) is SimulatedInstanceState.GONE:
            raise CloudError(
                "InvalidInstanceId.NotFound",
                f"The specified InstanceId {instance_id} does not exist.",
                status=_NOT_FOUND,
            )
        return found

    def end(self, instance: SimulatedInstance, *, at: datetime | None = None) -> None:
        """Let its end begin, now or later; an end that has begun is not put off."""
        begins = at or self._account.clock()
        if instance.ends_at is None or instance.ends_at > begins:
            instance.ends_at = begins

    def used_addresses(self) -> Mapping[str, int]:
        """Return how many addresses are taken, by vSwitch."""
        used: Counter[str] = Counter()
        for instance in self.living:
            used[instance.vswitch_id] += instance.addresses
        return used
