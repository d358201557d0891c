"""Describes a provider: name, limits, settings, labels and what it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.provider.contract.launch import LaunchRequest

__all__ = [
    "CONTRACT_VERSION",
    "POLLING_BOUNDS",
    "READ_BOUNDS",
    "BatchKey",
    "BatchLimits",
    "LabelClasses",
    "ObjectRead",
    "PollingPeriods",
    "ProviderInfo",
    "RepairPolicy",
    "SettingSpec",
]

CONTRACT_VERSION: Final = 1
"""The version of this contract; a provider built for another one is refused at start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of the batches of one plural hook.

    A batch closes after `idle` without a new item, after `maximum` in any case, or when it holds
    `size` items. `timeout` bounds one call; SDK socket timeouts must be shorter. Items of different
    `key` never share a batch; its argument is a `LaunchRequest` or a provider ID. Without one, each
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


READ_BOUNDS: Final = (timedelta(seconds=10), timedelta(hours=1))
"""The shortest and the longest `ObjectRead.period`."""


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
    period: timedelta = timedelta(minutes=1)
    """Period of reading them, from 10 seconds to an hour."""

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
    """Largest number of instance types that a new NodeClaim names; the least of all providers counts."""
    polling_periods: PollingPeriods = field(default_factory=PollingPeriods)
    reads: tuple[ObjectRead, ...] = ()
    """Objects that it reads besides Nodes and NodeClaims; `karpenter rbac` grants them."""
    creates_nodes: bool = False
    """Whether it creates Nodes (`ProviderContext.nodes`), where no kubelet does; `karpenter rbac` grants it."""
    observes: bool = False
    """Whether `karpenter_resolve_node_class` checks `ProviderContext.fence` before each change in the cloud,
    so that a process with --observe, whose fence never permits one, may call it."""


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
