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

from karpenter_simulated_aws.protocol import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from types_boto3_ec2.type_defs import RequestLaunchTemplateDataTypeDef

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.behaviour import CloudBehaviour

__all__ = [
    "CapacityType",
    "InstanceInterface",
    "Instances",
    "SimulatedInstance",
    "SimulatedInstanceState",
]

_ID_LENGTHS: Final = (len("i-") + 8, len("i-") + 17)


class SimulatedInstanceState(StrEnum):
    """The state of an instance."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"

    @property
    def code(self) -> int:
        """The number that the API gives it."""
        return _CODES[self]

    @property
    def holds_capacity(self) -> bool:
        """Whether stock, addresses and quotas are taken by it."""
        return self is not SimulatedInstanceState.TERMINATED


_CODES: Final = {
    SimulatedInstanceState.PENDING: 0,
    SimulatedInstanceState.RUNNING: 16,
    SimulatedInstanceState.SHUTTING_DOWN: 32,
    SimulatedInstanceState.TERMINATED: 48,
    SimulatedInstanceState.STOPPING: 64,
    SimulatedInstanceState.STOPPED: 80,
}


class CapacityType(StrEnum):
    """The stock that an instance came from."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceInterface:
    """A network interface."""

    id: str
    attachment_id: str
    kind: str
    """`interface`, `efa` or `efa-only`."""
    card: int
    device: int
    address: str
    """Empty for interfaces that have none (`efa-only`)."""
    groups: tuple[tuple[str, str], ...]
    """Security groups, each as id and name."""
    public: bool
    ipv4_prefixes: int
    ipv6_addresses: int
    ipv6_prefixes: int
    tags: Mapping[str, str]

    @property
    def addresses(self) -> int:
        """Number of addresses of the subnet that it takes; a prefix has 16."""
        return (1 if self.address else 0) + 16 * self.ipv4_prefixes


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedInstance:
    """An instance, as it was launched."""

    id: str
    launch_id: str
    """Of the request that launched it (`r-…`)."""
    instance_type: str
    architecture: str
    image_id: str
    windows: bool
    vpc_id: str
    subnet_id: str
    zone: str
    zone_id: str
    capacity_type: CapacityType
    market: str
    """The market that it was bought on: empty, `spot`, `capacity-block` or
    `interruptible-capacity-reservation`."""
    spot_request_id: str
    capacity_reservation_id: str
    data: RequestLaunchTemplateDataTypeDef
    """All that it was launched with: launch template, overrides and request together."""
    user_data: bytes
    profile_arn: str
    profile_id: str
    interfaces: tuple[InstanceInterface, ...]
    placement_group_id: str
    placement_group_name: str
    partition: int
    fleet_id: str
    client_token: str
    launched_at: datetime
    tags: dict[str, str]
    volume_tags: Mapping[str, str]
    volumes: tuple[tuple[str, str], ...]
    """Device names and ids."""
    root_device: str
    ends_at: datetime | None = None
    """When its end begins."""
    end_reason: str = ""
    stopped: SimulatedInstanceState | None = None
    """`stopping` or `stopped`, when a test says so."""
    impaired: dict[str, datetime] = field(default_factory=dict[str, "datetime"])
    """Failed checks (`instance`, `system`, `ebs`), with the time of the failure."""
    events: list[Mapping[str, object]] = field(default_factory=list["Mapping[str, object]"])
    """Scheduled events, as the API shows them."""
    is_slow: bool = False
    """It is described later than others of its launch."""
    is_protected: bool = False
    """Its attribute `disableApiTermination`."""
    is_forbidden: bool = False
    """No policy permits its termination, as after a change of its tags."""

    @property
    def private_address(self) -> str:
        """The address of its first interface."""
        return next((each.address for each in self.interfaces if each.address), "")

    @property
    def groups(self) -> Sequence[tuple[str, str]]:
        """The security groups of its first interface."""
        return self.interfaces[0].groups if self.interfaces else ()

    @property
    def provider_id(self) -> str:
        """Its name in Kubernetes."""
        return f"aws:///{self.zone}/{self.id}"


def _ignore_state_change(
    _instance: SimulatedInstance, _state: SimulatedInstanceState, _seconds: float
) -> None:
    """Ignore a change of state."""


@final
class Instances:
    """The instances of an account."""

    def __init__(self, account: Account, behaviour: CloudBehaviour) -> None:
        self._account: Final = account
        self._behaviour: Final = behaviour
        self._instances: dict[str, SimulatedInstance] = {}
        self.state_changed: Callable[[SimulatedInstance, SimulatedInstanceState, float], None] = (
            _ignore_state_change
        )
        """Called with what changes its state, the new state and in how many seconds."""

    def add(self, instance: SimulatedInstance) -> None:
        """Keep a new instance."""
        self._instances[instance.id] = instance
        self.state_changed(instance, SimulatedInstanceState.PENDING, 0)
        self.state_changed(
            instance, SimulatedInstanceState.RUNNING, self._behaviour.pending_seconds
        )

    def clear(self) -> None:
        """Forget all instances."""
        self._instances.clear()

    def slow_of(self, count: int) -> int:
        """Return how many instances of a launch of so many are described late."""
        return round(count * self._behaviour.slow_share)

    @property
    def per_page(self) -> int:
        """Maximum number of instances described by one call."""
        return self._behaviour.instances_per_page

    @property
    def all(self) -> Sequence[SimulatedInstance]:
        """Every instance, terminated ones too, by launch time."""
        return list(self._instances.values())

    @property
    def living(self) -> Sequence[SimulatedInstance]:
        """Every instance that holds capacity."""
        now = self._account.clock()
        return [each for each in self.all if self.state_of(each, now).holds_capacity]

    def get(self, instance_id: str) -> SimulatedInstance | None:
        """Return an instance, whatever its state; None when there never was one."""
        return self._instances.get(instance_id)

    def state_of(
        self, instance: SimulatedInstance, now: datetime | None = None
    ) -> SimulatedInstanceState:
        """Return the state at a moment, now by default."""
        now = now or self._account.clock()
        behaviour = self._behaviour
        if instance.ends_at is not None and now >= instance.ends_at:
            gone = instance.ends_at + timedelta(seconds=behaviour.shutting_down_seconds)
            return (
                SimulatedInstanceState.TERMINATED
                if now >= gone
                else SimulatedInstanceState.SHUTTING_DOWN
            )
        if instance.stopped is not None:
            return instance.stopped
        running = instance.launched_at + timedelta(seconds=behaviour.pending_seconds)
        return SimulatedInstanceState.RUNNING if now >= running else SimulatedInstanceState.PENDING

    def is_visible(self, instance: SimulatedInstance, now: datetime) -> bool:
        """Whether it is described: not yet when it is quite new, no more when it is long gone."""
        behaviour = self._behaviour
        if now < instance.launched_at + timedelta(seconds=self._hidden_seconds(instance)):
            return False
        if instance.ends_at is None:
            return True
        seconds = behaviour.shutting_down_seconds + behaviour.terminated_visible_seconds
        return now < instance.ends_at + timedelta(seconds=seconds)

    def _hidden_seconds(self, instance: SimulatedInstance) -> float:
        behaviour = self._behaviour
        seconds = behaviour.slow_seconds if instance.is_slow else 0
        return max(seconds, behaviour.invisible_seconds)

    def visible(self, ids: Iterable[str] = ()) -> list[SimulatedInstance]:
        """Return what Describe calls see, all or those named; refuse ids that are not there."""
        now = self._account.clock()
        wanted = list(ids)
        if not wanted:
            return [each for each in self.all if self.is_visible(each, now)]
        for instance_id in wanted:
            if not instance_id.startswith("i-") or len(instance_id) not in _ID_LENGTHS:
                raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')
        found = [self._instances.get(instance_id) for instance_id in wanted]
        seen = [each for each in found if each is not None and self.is_visible(each, now)]
        if len(seen) < len(wanted):
            absent = ", ".join(sorted(set(wanted) - {each.id for each in seen}))
            known = "ID" if len(set(wanted) - {each.id for each in seen}) == 1 else "IDs"
            raise AwsError(
                "InvalidInstanceID.NotFound",
                f"The instance {known} '{absent}' do{'es' if known == 'ID' else ''} not exist",
            )
        return list({each.id: each for each in seen}.values())

    def end(self, instance: SimulatedInstance, *, reason: str, at: datetime | None = None) -> None:
        """Let its end begin, now or later; an end that has begun is not put off."""
        now = self._account.clock()
        begins = at or now
        if instance.ends_at is not None and instance.ends_at <= begins:
            return
        instance.ends_at = begins
        instance.end_reason = reason
        wait = (begins - now).total_seconds()
        self.state_changed(instance, SimulatedInstanceState.SHUTTING_DOWN, wait)
        self.state_changed(
            instance,
            SimulatedInstanceState.TERMINATED,
            wait + self._behaviour.shutting_down_seconds,
        )

    def used_addresses(self) -> Mapping[str, int]:
        """Return how many addresses are taken, by subnet."""
        used: Counter[str] = Counter()
        for instance in self.living:
            used[instance.subnet_id] += sum(each.addresses for each in instance.interfaces)
        return used
