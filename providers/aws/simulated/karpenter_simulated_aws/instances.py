"""Instances with the attributes and states of EC2."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated import instances as life
from karpenter_core.provider.kit.simulated.instances import InstancePhase
from karpenter_simulated_aws.protocol import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from types_boto3_ec2.type_defs import RequestLaunchTemplateDataTypeDef

    from karpenter_simulated_aws.behaviour import CloudBehaviour

__all__ = [
    "STATES",
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


_CODES: Final = {
    SimulatedInstanceState.PENDING: 0,
    SimulatedInstanceState.RUNNING: 16,
    SimulatedInstanceState.SHUTTING_DOWN: 32,
    SimulatedInstanceState.TERMINATED: 48,
    SimulatedInstanceState.STOPPING: 64,
    SimulatedInstanceState.STOPPED: 80,
}
STATES: Final = {
    InstancePhase.PENDING: SimulatedInstanceState.PENDING,
    InstancePhase.RUNNING: SimulatedInstanceState.RUNNING,
    InstancePhase.FAILED: SimulatedInstanceState.TERMINATED,
    InstancePhase.TERMINATING: SimulatedInstanceState.SHUTTING_DOWN,
    InstancePhase.GONE: SimulatedInstanceState.TERMINATED,
}
"""States by phase; EC2 terminates an instance whose launch fails late."""
_ALIVE: Final = {InstancePhase.PENDING, InstancePhase.RUNNING}


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
class SimulatedInstance(life.SimulatedInstance):
    """An instance, as it was launched."""

    launch_id: str
    """Of the request that launched it (`r-…`)."""
    architecture: str
    windows: bool
    vpc_id: str
    subnet_id: str
    zone_id: str
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
    volume_tags: Mapping[str, str]
    volumes: tuple[tuple[str, str], ...]
    """Device names and ids."""
    root_device: str
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


@final
class Instances(life.SimulatedInstances[SimulatedInstance]):
    """The instances of an account."""

    def __init__(self, clock: Callable[[], datetime], behaviour: CloudBehaviour) -> None:
        super().__init__(clock, behaviour)
        self._settings: Final = behaviour

    def add(self, instance: SimulatedInstance) -> None:
        """Add a new instance; a slow one is described later."""
        if instance.is_slow:
            instance.shown_at = instance.launched_at + timedelta(
                seconds=self._settings.slow_seconds
            )
        super().add(instance)

    def slow_of(self, count: int) -> int:
        """Return how many instances of a launch of so many are described late."""
        return round(count * self._settings.slow_share)

    @property
    def per_page(self) -> int:
        """Maximum number of instances described by one call."""
        return self._settings.instances_per_page

    def state_of(
        self, instance: SimulatedInstance, now: datetime | None = None
    ) -> SimulatedInstanceState:
        """Return the state at a moment, now by default."""
        phase = self.phase_of(instance, now)
        if instance.stopped is not None and phase in _ALIVE:
            return instance.stopped
        return STATES[phase]

    def is_running(self, instance: SimulatedInstance) -> bool:
        """Whether an instance runs now."""
        return self.state_of(instance) is SimulatedInstanceState.RUNNING

    def named(self, ids: Iterable[str] = ()) -> Sequence[SimulatedInstance]:
        """Return what Describe calls see, all or those named; refuse ids that are not there."""
        wanted = list(ids)
        if not wanted:
            return self.visible
        for instance_id in wanted:
            if not instance_id.startswith("i-") or len(instance_id) not in _ID_LENGTHS:
                raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')
        found = [self.get(instance_id) for instance_id in wanted]
        seen = [each for each in found if each is not None and self.is_visible(each)]
        if len(seen) < len(wanted):
            absent = ", ".join(sorted(set(wanted) - {each.id for each in seen}))
            known = "ID" if len(set(wanted) - {each.id for each in seen}) == 1 else "IDs"
            raise AwsError(
                "InvalidInstanceID.NotFound",
                f"The instance {known} '{absent}' do{'es' if known == 'ID' else ''} not exist",
            )
        return list({each.id: each for each in seen}.values())

    def used_addresses(self) -> Mapping[str, int]:
        """Return how many addresses are taken, by subnet."""
        used: Counter[str] = Counter()
        for instance in self.living:
            used[instance.subnet_id] += sum(each.addresses for each in instance.interfaces)
        return used
