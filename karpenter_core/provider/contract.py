"""Defines the values that pass between the core and a provider.

All values are immutable except `ClusterFacts`, which the core completes. A provider imports these
names from `karpenter_core.provider`'s modules, models from `.api`, errors from `.errors`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final

from karpenter_core.api.decisions import Decision
from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.errors import CloudProviderError, NodeClassNotReadyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from prometheus_client import CollectorRegistry

    from karpenter_core.api.conditions import Condition
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.records import NodeView, Resources
    from karpenter_core.clock import Clock
    from karpenter_core.errors import InsufficientCapacityError
    from karpenter_core.scheduling.instance_types import InstanceType, Offering

__all__ = [
    "CONTRACT_VERSION",
    "POLLING_BOUNDS",
    "BatchKey",
    "BatchLimits",
    "CatalogueOffering",
    "ClaimReader",
    "ClusterFacts",
    "Decision",
    "DriftFinding",
    "DriftOutcome",
    "FeatureGates",
    "FetchOutcome",
    "Finding",
    "Instance",
    "InstanceListing",
    "Interruption",
    "InterruptionKind",
    "LabelClasses",
    "LaunchOutcome",
    "LaunchRequest",
    "LaunchedInstance",
    "LeaderFence",
    "NodeClassHash",
    "NodeClassResolution",
    "NodeReader",
    "NodeWriter",
    "ObjectRead",
    "ObjectReader",
    "PeriodicTask",
    "PollingPeriods",
    "ProviderContext",
    "ProviderInfo",
    "RegistrationGate",
    "RepairPolicy",
    "SettingSpec",
    "Severity",
    "TerminateOutcome",
    "TerminationStatus",
    "UnfencedProcess",
]

CONTRACT_VERSION: Final = 1
"""The version of this contract; a provider built for another one is refused at start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of the batches of one plural hook.

    A batch closes after `idle` without a new item, after `maximum` in any case, or when it holds
    `size` items. `timeout` bounds one call; SDK socket timeouts must be shorter. Items of different
    `key` never share a batch; its argument is a `LaunchRequest` or a provider id. Without one, each
    batch of launches has one NodeClass. Under `@one_by_one` only `timeout` applies: each item is a call.
    """

    idle: timedelta = timedelta(milliseconds=35)
    maximum: timedelta = timedelta(seconds=1)
    size: int = 100
    timeout: timedelta = timedelta(minutes=2)
    key: BatchKey | None = None


BatchKey: TypeAlias = "Callable[[LaunchRequest | str], Hashable]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPolicy:
    """A node condition that makes the core replace the node when it has lasted this long."""

    condition_type: str
    condition_status: str
    toleration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSpec:
    """One setting of a plug-in: flag, environment variable, default and help text.

    The type of `default` (str, int, float, bool, timedelta) decides how values are parsed. Plug-ins may
    share flag and variable if that type is the same; each keeps its own default. A value that
    cannot be parsed stops the start.
    """

    flag: str
    env: str
    default: str | float | bool | timedelta
    help: str
    falls_back: bool = False
    """For options of a Karpenter provider: an invalid variable causes a warning, and the default applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingPeriods:
    """Periods of the core's calls of reading hooks, for providers whose cloud limits calls.

    Each period is within its bounds (`POLLING_BOUNDS`).
    """

    instances: timedelta = timedelta(minutes=2)
    """`karpenter_list_instances`; every minute or less while instances seem to be orphaned."""
    termination: timedelta = timedelta(seconds=5)
    """`karpenter_terminate_instances` and `karpenter_fetch_instances` of an instance that is ending."""
    drift: timedelta = timedelta(minutes=5)
    """`karpenter_detect_drift`"""
    interruptions: timedelta = timedelta(seconds=5)
    """`karpenter_poll_interruptions`"""
    catalogue: timedelta = timedelta(minutes=5)
    """`karpenter_list_instance_types`"""


POLLING_BOUNDS: Final[Mapping[str, tuple[timedelta, timedelta]]] = MappingProxyType(
    {
        "instances": (timedelta(seconds=30), timedelta(minutes=30)),
        "termination": (timedelta(seconds=1), timedelta(minutes=2)),
        "drift": (timedelta(minutes=1), timedelta(hours=2)),
        "interruptions": (timedelta(seconds=1), timedelta(minutes=5)),
        "catalogue": (timedelta(minutes=1), timedelta(minutes=20)),
    }
)
"""The shortest and the longest of each period; a catalogue is used for 30 minutes at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRead:
    """Objects of the cluster that a provider reads with `ProviderContext.read_objects`."""

    resource: str
    """The plural, as in a URL: `configmaps`, `daemonsets`."""
    group: str = ""
    version: str = "v1"
    namespace: str = ""
    """Empty for objects without a namespace, and for those of all namespaces."""
    name: str = ""
    """The only object; empty for all."""
    limit: int = 0
    """Largest number of objects that are read, if it only matters whether there are some; 0 for all."""

    def __str__(self) -> str:
        """Return the resource as `kubectl auth can-i` names it."""
        what = ".".join(filter(None, (self.resource, self.group)))
        what += f"/{self.name}" if self.name else ""
        return f"{what} in the namespace {self.namespace}" if self.namespace else what


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInfo:
    """Name, contract version and NodeClass kinds of a provider."""

    name: str
    contract_version: int
    node_classes: tuple[type[NodeClass], ...]
    """Models of the NodeClass kinds it owns; the first is the default."""
    batch_limits: Mapping[str, BatchLimits] = field(default_factory=dict[str, BatchLimits])
    """By hook name; hooks not named use the defaults."""
    repair_policies: tuple[RepairPolicy, ...] = ()
    max_instance_types: int = 600
    polling_periods: PollingPeriods = field(default_factory=PollingPeriods)
    reads: tuple[ObjectRead, ...] = ()
    """Objects that it reads besides Nodes and NodeClaims; `karpenter rbac` grants them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelClasses:
    """Labels that a provider sets, restricts or renames."""

    well_known: frozenset[str] = frozenset()
    """Labels that instance types of this provider define, possibly as DoesNotExist."""
    restricted_domains: frozenset[str] = frozenset()
    """Domains under which users may set only the well-known and the settable labels."""
    settable: frozenset[str] = frozenset()
    """Labels of restricted domains that users may set though no instance type defines them."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Maps another spelling of a key to the canonical key."""
    value_aliases: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, "Mapping[str, str]"],
    )
    """By key: maps another spelling of a value, in the place of a volume, to the canonical value."""
    known_values: Mapping[str, frozenset[str]] = field(default_factory=dict[str, "frozenset[str]"])
    """By key: all possible values, if no other value is ever added.

    A NodePool that requires only other values is refused; one that also requires others causes a warning.
    """
    unsupported_topology_keys: frozenset[str] = frozenset()
    """Topology keys of StorageClasses that no node of this provider has.

    A pod with an unbound PersistentVolumeClaim of such a class stays pending.
    """
    unsupported_provisioners: frozenset[str] = frozenset()
    """CSI drivers (never in-tree names) whose volumes no node of this provider can mount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassResolution:
    """The resolved NodeClass: conditions to set, and the rest of the status as plain JSON values."""

    conditions: tuple[Condition, ...] = ()
    """Conditions that are missing here are kept."""
    status: Mapping[str, object] = field(default_factory=dict[str, object])
    retry_after: timedelta | None = None
    """Call again after this time, if the usual period is too long."""

    @classmethod
    def ready(cls, status: Mapping[str, object] | None = None) -> NodeClassResolution:
        """Return the condition Ready True with this status."""
        from karpenter_core.api.conditions import READY, TRUE, Condition

        return cls(
            conditions=(Condition(type=READY, status=TRUE, reason=READY),), status=status or {}
        )

    @classmethod
    def not_ready(cls, reason: str, message: str) -> NodeClassResolution:
        """Return the condition Ready False with a reason and message for the user."""
        from karpenter_core.api.conditions import FALSE, READY, Condition

        return cls(
            conditions=(Condition(type=READY, status=FALSE, reason=reason, message=message),)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassHash:
    """A hash of the NodeClass fields whose change is drift.

    Hashes of different `version` are never compared: raise it when the algorithm changes, so that no
    node is replaced for the change.
    """

    value: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CatalogueOffering:
    """One offering of the catalogue, for the hooks that change prices and risks."""

    provider: str
    instance_type: InstanceType
    offering: Offering


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchRequest:
    """One instance to launch. `instance_types` is filtered and sorted by price, cheapest first.

    `token` is the claim's UID, for use as the cloud's idempotency token.
    """

    node_claim: NodeClaim
    node_class: NodeClass
    instance_types: tuple[InstanceType, ...]

    @property
    def token(self) -> str:
        """The cloud's idempotency token."""
        return self.node_claim.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedInstance:
    """An instance that was launched now, or earlier for the same token."""

    provider_id: str
    instance_type: str
    zone: str
    capacity_type: str
    capacity: Resources
    allocatable: Resources
    image_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    shortages: tuple[InsufficientCapacityError, ...] = ()
    """Shortages that the launch met before it succeeded; their offerings become unavailable at once."""


LaunchOutcome: TypeAlias = LaunchedInstance | CloudProviderError


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance of this cluster that the provider knows."""

    provider_id: str
    node_claim: str = ""
    """Name of the claim it was launched for, read from its tags."""
    token: str = ""
    """UID of that claim."""
    launched_for: tuple[str, ...] = ()
    """UIDs of all claims of its launch call, if the call was for several; empty for `token` alone."""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    image_id: str = ""
    created: datetime | None = None
    terminating: bool = False
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


FetchOutcome: TypeAlias = Instance | CloudProviderError


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceListing:
    """The instances of this cluster that could be listed.

    `complete` is False if any region, page or account could not be read: the core deletes nothing
    because it is missing from an incomplete listing.
    """

    instances: tuple[Instance, ...]
    complete: bool = True
    problem: str = ""
    """The reason why it is incomplete."""
    as_of: datetime | None = None
    """The time that it shows, by `ProviderContext.clock`, if it may be behind; None: when it was read.

    An instance that was launched later may be missing, one that ended later may be there.
    """


class TerminationStatus(StrEnum):
    """The state of a termination."""

    STARTED = "started"
    GONE = "gone"


TerminateOutcome: TypeAlias = TerminationStatus | CloudProviderError


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationGate:
    """Delays a node's registration; the core calls the hook again after `retry_after`."""

    name: str
    retry_after: timedelta = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFinding:
    """The reason why an instance no longer matches its NodeClass."""

    reason: str


DriftOutcome: TypeAlias = DriftFinding | CloudProviderError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """An announced interruption; acknowledged by `id` after it was handled.

    `deadline` is when the instance ends; None if the cloud gives no time. `detail` is
    for people, such as the state of the instance. `announced_at` is the time of the announcement.

    With `LAUNCH_FAILED` a provider announces that a launch failed after the cloud had accepted it.
    """

    id: str
    kind: InterruptionKind
    provider_id: str = ""
    """The instance; empty if the message names none."""
    token: str = ""
    """UID of the NodeClaim: it finds the claim if no claim has the instance yet, or none is named."""
    error: CloudProviderError | None = None
    """With `LAUNCH_FAILED`: the error that the launch would have returned, a shortage with its scope."""
    deadline: datetime | None = None
    detail: str = ""
    announced_at: datetime | None = None


class Severity(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a preflight check."""

    severity: Severity
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicTask:
    """Periodic work of a provider; `run` may be sync or async.

    `ProviderContext.wake(name)` runs it immediately; it never overlaps itself.
    """

    name: str
    period: timedelta
    run: Callable[[], Awaitable[None] | None]
    leader_only: bool = True


@dataclass(slots=True, kw_only=True)
class ClusterFacts:
    """Facts about the cluster that instances need to join it.

    The core requests them from the API server, also after the start: read a field at
    the moment of its use, from any thread, and keep no copy. Only the core writes here.

    In commands such as `karpenter doctor` only the name is known.
    """

    name: str = ""
    """`--cluster-name`; empty if it was not given."""
    version: str = ""
    endpoint: str = ""
    ca_bundle: str = ""
    dns_ip: str = ""
    """Address of the Service `kube-system/kube-dns`; empty if there is none, or if it is unknown."""
    service_cidrs: tuple[str, ...] = ()
    ip_family: str = ""
    """`IPv4` or `IPv6`; empty while unknown, which stands for neither."""
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])
    """The reason why a value is not known yet, by field name.

    An empty field that is not named here has no value in this cluster.
    """

    def require_known(self, *fields: str, remedy: str = "") -> None:
        """Return if all of these fields are known, with or without a value.

        Raises:
            NodeClassNotReadyError: a field is not known yet; has the cause and `remedy`.
        """
        unknown = self.unknown
        for name in fields:
            if name in unknown:
                what = _FACTS.get(name, name)
                message = f"the {what} of the cluster is not known yet: {unknown[name]}"
                raise NodeClassNotReadyError(f"{message}; {remedy}" if remedy else message)


_FACTS: Final = {
    "version": "Kubernetes version",
    "dns_ip": "DNS address",
    "service_cidrs": "range of service addresses",
    "ip_family": "IP family (IPv4 or IPv6)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGates:
    """The core's optional features (`--feature-gates`), with upstream's defaults."""

    node_repair: bool = False
    reserved_capacity: bool = True
    """Without it a provider lists no reserved offerings and launches into no reservation."""
    spot_to_spot_consolidation: bool = False
    node_overlay: bool = False
    static_capacity: bool = False
    capacity_buffer: bool = False


class LeaderFence(Protocol):
    """Checks the lease right before every change in a cloud."""

    def check(self) -> None:
        """Return if this process holds the lease by the monotonic clock; callable from any thread.

        Raises:
            FencedError: this process no longer holds the lease.
        """
        ...


class NodeWriter(Protocol):
    """Writes Nodes, the only objects a provider may write; fenced and counted by the core."""

    async def create(self, manifest: Mapping[str, object]) -> NodeView:
        """Create a Node from a manifest; ConflictError if the name exists."""
        ...

    async def patch(self, name: str, patch: Mapping[str, object]) -> NodeView:
        """Merge-patch a Node (labels, annotations, spec)."""
        ...

    async def patch_status(self, name: str, patch: Mapping[str, object]) -> NodeView:
        """Merge-patch a Node's status."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a Node; return if it does not exist."""
        ...


class NodeReader(Protocol):
    """Reads Nodes from the core's informer, without a request; callable from any thread."""

    def __call__(self) -> Mapping[str, NodeView]:
        """Return every Node by name, as the watches have shown them.

        A missing Node may exist: before the first list there are none, and a watch may be silent.
        """
        ...


class ClaimReader(Protocol):
    """Reads NodeClaims from the core's informer, without a request; callable from any thread."""

    def __call__(self) -> Mapping[str, NodeClaim]:
        """Return every NodeClaim by name, those of other providers too; a missing one may exist."""
        ...


class ObjectReader(Protocol):
    """Reads the objects that `ProviderInfo.reads` declares; callable from any thread.

    The core fetches them at the start and every minute; a read makes no request.
    """

    def __call__(self, read: ObjectRead, /) -> Sequence[Mapping[str, object]]:
        """Return the objects as JSON values; none if there are none.

        Raises:
            CloudProviderError: they could not be read yet; has the reason.
            PluginError: the read is not declared.
        """
        ...


def _read_nothing(read: ObjectRead, /) -> Sequence[Mapping[str, object]]:
    raise CloudProviderError(f"{read} could not be read: there is no cluster")


@final
class UnfencedProcess:
    """A fence that always permits, for a process that runs alone."""

    __slots__ = ()

    def check(self) -> None:
        """Return; no other process acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderContext:
    """Services and settings that the core passes to a provider at start."""

    settings: Mapping[str, str | float | bool | timedelta]
    """By flag, without leading dashes; has every `SettingSpec` of the plug-in."""
    clock: Clock
    """Its `now` is the API server's, as far as this is known: it dates claims and Nodes."""
    cache_folder: Path
    metrics: CollectorRegistry
    cluster: ClusterFacts
    nodes: NodeWriter
    read_nodes: NodeReader
    wake: Callable[[str], None]
    """Runs one of the provider's periodic tasks now; callable from any thread."""
    read_claims: ClaimReader = field(default=dict[str, "NodeClaim"])
    read_objects: ObjectReader = _read_nothing
    feature_gates: FeatureGates = field(default_factory=FeatureGates)
    """The optional features that are on."""
    fence: LeaderFence = field(default_factory=UnfencedProcess)
    """A hook or task that makes several changes checks it before each of them."""
