"""Services and facts that the core passes to a provider at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.errors import CloudProviderError, NodeClassNotReadyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from prometheus_client import CollectorRegistry

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract.info import ObjectRead

__all__ = [
    "ClaimReader",
    "ClusterFacts",
    "FeatureGates",
    "LeaderFence",
    "NodeReader",
    "NodeWriter",
    "ObjectReader",
    "PeriodicTask",
    "ProviderContext",
    "UnfencedProcess",
]


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

    The core fetches them at the start and once in each `ObjectRead.period`; a read makes no request.
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
    observing: bool = False
    """Whether this process runs with --observe: NodeClasses are resolved without dry runs of launches, and
    checks need no permission to change anything: its credentials may permit reading alone."""
