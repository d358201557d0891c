"""Defines the values that pass between the core and a provider.

Everything is immutable but `ClusterFacts`, which the core completes. A provider imports these names from `karpenter_core.provider`'s modules,
models from `.api`, errors from `.errors`, and nothing else of the core.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final

from karpenter_core.api.decisions import Decision
from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.errors import CloudProviderError, NodeClassNotReadyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping
    from datetime import datetime
    from pathlib import Path

    from prometheus_client import CollectorRegistry

    from karpenter_core.api.conditions import Condition
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.records import NodeView, Resources
    from karpenter_core.clock import Clock
    from karpenter_core.scheduling.instance_types import InstanceType, Offering

__all__ = [
    "CONTRACT_VERSION",
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
    "PeriodicTask",
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
    """How waiting calls of one plural hook are gathered into one.

    A batch closes after `idle` without a new item, after `maximum` in any case, or when it holds
    `size` items. `timeout` bounds one call; SDK socket timeouts must be shorter. Items of different
    `key` never share a batch: it is given a `LaunchRequest`, or a provider id. Without one, launches
    are kept apart by NodeClass. Under `@one_by_one` only `timeout` applies: each item is a call.
    """

    idle: timedelta = timedelta(milliseconds=35)
    maximum: timedelta = timedelta(seconds=1)
    size: int = 100
    timeout: timedelta = timedelta(minutes=2)
    key: BatchKey | None = None


BatchKey: TypeAlias = "Callable[[LaunchRequest | str], Hashable]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPolicy:
    """A node condition which, when it lasts this long, makes the core replace the node."""

    condition_type: str
    condition_status: str
    toleration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSpec:
    """One option of a plug-in: `--flag`, its environment twin, default and meaning.

    The type of `default` (str, int, float, bool, timedelta) decides how text is read. Plug-ins may
    share flag and variable where that type is the same; each keeps its own default. Text that
    cannot be read stops the start.
    """

    flag: str
    env: str
    default: str | float | bool | timedelta
    help: str
    falls_back: bool = False
    """For options of a Karpenter provider: an unreadable variable leaves the default, with a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInfo:
    """Who a provider is and what it serves."""

    name: str
    contract_version: int
    node_classes: tuple[type[NodeClass], ...]
    """Models of the kinds it owns; the first is the default."""
    batch_limits: Mapping[str, BatchLimits] = field(default_factory=dict[str, BatchLimits])
    """By hook name; hooks not named use the defaults."""
    repair_policies: tuple[RepairPolicy, ...] = ()
    max_instance_types: int = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelClasses:
    """Labels a provider knows about."""

    well_known: frozenset[str] = frozenset()
    """Labels that every node of this provider carries, or is known not to."""
    restricted_domains: frozenset[str] = frozenset()
    """Domains under which users may set only the well-known labels."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Another spelling of a key to the canonical one."""
    value_aliases: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, "Mapping[str, str]"],
    )
    """By key: another spelling of a value to the canonical one."""
    known_values: Mapping[str, frozenset[str]] = field(default_factory=dict[str, "frozenset[str]"])
    """By key: all values that there are, where no other is ever added.

    A NodePool that asks for others alone is refused; one that asks for others too is warned of.
    """
    unsupported_topology_keys: frozenset[str] = frozenset()
    """Labels no node of this provider carries although StorageClasses may ask for them.

    A pod with an unbound claim of such a class is not served.
    """
    unsupported_provisioners: frozenset[str] = frozenset()
    """CSI drivers (never in-tree names) whose volumes no node of this provider can mount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassResolution:
    """What discovery found: conditions to set, and the rest of the status as plain JSON values."""

    conditions: tuple[Condition, ...] = ()
    """Conditions that are not among them stand as they are."""
    status: Mapping[str, object] = field(default_factory=dict[str, object])
    retry_after: timedelta | None = None
    """Look again so soon, where the usual period is too long: something is missing, or ends then."""

    @classmethod
    def ready(cls, status: Mapping[str, object] | None = None) -> NodeClassResolution:
        """Say that the NodeClass can be used, and what was found."""
        from karpenter_core.api.conditions import READY, TRUE, Condition

        return cls(
            conditions=(Condition(type=READY, status=TRUE, reason=READY),), status=status or {}
        )

    @classmethod
    def not_ready(cls, reason: str, message: str) -> NodeClassResolution:
        """Say what the user must mend before the NodeClass can be used."""
        from karpenter_core.api.conditions import FALSE, READY, Condition

        return cls(
            conditions=(Condition(type=READY, status=FALSE, reason=reason, message=message),)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassHash:
    """A digest of the NodeClass fields that are drift when they change.

    Hashes of different `version` are never compared: raise it when the algorithm changes, and no
    node is replaced because of that.
    """

    value: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CatalogueOffering:
    """One line of the whole catalogue, for the hooks that change prices and risks."""

    provider: str
    instance_type: InstanceType
    offering: Offering


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchRequest:
    """One instance to launch. `instance_types` is filtered and sorted by price, cheapest first.

    `token` is the claim's UID: the idempotency token to give the cloud.
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
    """An instance that now exists (or already did, for the same token)."""

    provider_id: str
    instance_type: str
    zone: str
    capacity_type: str
    capacity: Resources
    allocatable: Resources
    image_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])


LaunchOutcome: TypeAlias = LaunchedInstance | CloudProviderError


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance of this cluster that the provider knows."""

    provider_id: str
    node_claim: str = ""
    """Name of the claim it was launched for, as the provider tagged it."""
    token: str = ""
    """UID of that claim."""
    launched_for: tuple[str, ...] = ()
    """UIDs of all claims that its launch was for, where a call is for several; empty for `token` alone."""
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
    """Every instance of this cluster, or as many as could be listed.

    `complete` is False when any region, page or account could not be read: nothing is ever deleted
    because it is missing from such a listing.
    """

    instances: tuple[Instance, ...]
    complete: bool = True
    problem: str = ""
    """Why it is not complete."""


class TerminationStatus(StrEnum):
    """What came of asking for a termination."""

    STARTED = "started"
    GONE = "gone"


TerminateOutcome: TypeAlias = TerminationStatus | CloudProviderError


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationGate:
    """Holds a node's registration; `retry_after` says when to ask again. None means pass."""

    name: str
    retry_after: timedelta = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFinding:
    """Why a claim no longer is what its NodeClass asks for."""

    reason: str


DriftOutcome: TypeAlias = DriftFinding | CloudProviderError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """One announcement; acknowledged by `id` only after it was handled.

    `deadline` is when the instance goes in any case; None when the cloud gives no time. `detail` is
    for people, such as the state that an instance is in. `announced_at` is when the cloud said so.
    """

    id: str
    kind: InterruptionKind
    provider_id: str = ""
    """The instance; empty for a message that names none."""
    deadline: datetime | None = None
    detail: str = ""
    announced_at: datetime | None = None


class Severity(StrEnum):
    """How much a finding matters."""

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
    """Work a provider wants done now and then; `run` may be sync or async.

    `ProviderContext.wake(name)` runs it at once; it never overlaps itself.
    """

    name: str
    period: timedelta
    run: Callable[[], Awaitable[None] | None]
    leader_only: bool = True


@dataclass(slots=True, kw_only=True)
class ClusterFacts:
    """What a bootstrapping instance must know of its cluster.

    The core asks the API server and writes the answers here, also after the start: read a field at
    the moment of its use, from any thread, and keep no copy. Only the core writes.

    Commands that only look, such as `karpenter doctor`, know the name alone.
    """

    name: str = ""
    """`--cluster-name`; empty when it was not given."""
    version: str = ""
    endpoint: str = ""
    ca_bundle: str = ""
    dns_ip: str = ""
    """Address of the Service `kube-system/kube-dns`; empty when there is none, or see `unknown`."""
    service_cidrs: tuple[str, ...] = ()
    ip_family: str = ""
    """`IPv4` or `IPv6`; empty while nobody knows: it stands for neither."""
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why a field has no value yet, by the field's name.

    A field that is empty and not named here has no value: the API server has said so.
    """

    def require_known(self, *fields: str, remedy: str = "") -> None:
        """Return if the API server has answered for all of these fields.

        Raises:
            NodeClassNotReadyError: one is not known yet; says why, and `remedy`.
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
    """Without it a provider offers nothing reserved and launches into no reservation."""
    spot_to_spot_consolidation: bool = False
    node_overlay: bool = False
    static_capacity: bool = False
    capacity_buffer: bool = False


class LeaderFence(Protocol):
    """Whether this process may still act; asked right before every change to a cloud."""

    def check(self) -> None:
        """Return while the lease is held by the monotonic clock; callable from any thread.

        Raises:
            FencedError: the lease is not held any more.
        """
        ...


class NodeWriter(Protocol):
    """The one thing of Kubernetes a provider may write: Nodes. Fenced and counted by the core."""

    async def create(self, manifest: Mapping[str, object]) -> NodeView:
        """Create a Node from a manifest; an existing one of that name is a ConflictError."""
        ...

    async def patch(self, name: str, patch: Mapping[str, object]) -> NodeView:
        """Merge-patch a Node (labels, annotations, spec)."""
        ...

    async def patch_status(self, name: str, patch: Mapping[str, object]) -> NodeView:
        """Merge-patch a Node's status."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a Node; one that is gone already is fine."""
        ...


class NodeReader(Protocol):
    """Nodes as the core's informer sees them; never a request. May be called from any thread."""

    def __call__(self) -> Mapping[str, NodeView]:
        """Return every Node by name."""
        ...


class ClaimReader(Protocol):
    """NodeClaims as the core's informer sees them; never a request. May be called from any thread."""

    def __call__(self) -> Mapping[str, NodeClaim]:
        """Return every NodeClaim by name, those of other providers too."""
        ...


@final
class UnfencedProcess:
    """The fence of a process that runs alone."""

    __slots__ = ()

    def check(self) -> None:
        """Return: nobody else acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderContext:
    """What the core hands a provider at start."""

    settings: Mapping[str, str | float | bool | timedelta]
    """By flag, without dashes in front; every `SettingSpec` of the plug-in is there."""
    clock: Clock
    cache_folder: Path
    metrics: CollectorRegistry
    cluster: ClusterFacts
    nodes: NodeWriter
    read_nodes: NodeReader
    wake: Callable[[str], None]
    """Run one of the provider's periodic tasks now; may be called from any thread."""
    read_claims: ClaimReader = field(default=dict[str, "NodeClaim"])
    feature_gates: FeatureGates = field(default_factory=FeatureGates)
    """What the core does beyond the usual, and what it leaves alone."""
    fence: LeaderFence = field(default_factory=UnfencedProcess)
    """To be checked before each change that a hook or task makes when it makes several."""
