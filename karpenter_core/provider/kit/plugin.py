"""Base classes of plug-ins: their start, and hooks that all clouds share.

pluggy finds inherited hooks. A plug-in adds hooks of its own, and replaces inherited ones, with
`@hookimpl`. This module imports nothing that is slow: every command loads every plug-in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar, cast

from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import (
    CONTRACT_VERSION,
    LabelClasses,
    ProviderInfo,
    RepairPolicy,
    SettingSpec,
)
from karpenter_core.provider.markers import hookimpl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import timedelta

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import (
        DriftOutcome,
        FetchOutcome,
        Finding,
        InstanceListing,
        Interruption,
        LaunchOutcome,
        LaunchRequest,
        NodeClassHash,
        NodeClassResolution,
        PeriodicTask,
        ProviderContext,
        TerminateOutcome,
    )
    from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry

__all__ = [
    "CloudHooks",
    "CloudPlugin",
    "ProviderPlugin",
    "StartedCloud",
    "provider_info",
    "repair_policies",
    "setting_specs",
]


class Closable(Protocol):
    """A started provider."""

    def close(self) -> None:
        """Close connections and remove metrics."""
        ...


S = TypeVar("S", bound=Closable)
C = TypeVar("C", bound=NodeClass)


def repair_policies(rows: Iterable[tuple[str, str, timedelta]]) -> tuple[RepairPolicy, ...]:
    """Return the repair policies of rows of condition type, condition status and toleration."""
    return tuple(
        RepairPolicy(condition_type=kind, condition_status=status, toleration=toleration)
        for kind, status, toleration in rows
    )


def provider_info(name: str, *node_classes: type[NodeClass]) -> ProviderInfo:
    """Return the info of a provider of this contract version, with default limits."""
    return ProviderInfo(name=name, contract_version=CONTRACT_VERSION, node_classes=node_classes)


def setting_specs(
    *rows: tuple[str, str | float | bool | timedelta, str],
) -> tuple[SettingSpec, ...]:
    """Return the settings of rows of flag, default and help text.

    The environment variable of `--mycloud-endpoint` is `MYCLOUD_ENDPOINT`.
    """
    return tuple(
        SettingSpec(
            flag=flag,
            env=flag.removeprefix("--").replace("-", "_").upper(),
            default=default,
            help=text,
        )
        for flag, default, text in rows
    )


class ProviderPlugin(ABC, Generic[S]):
    """A plug-in that is started and stopped; one object for each process."""

    info: ClassVar[ProviderInfo]
    title: ClassVar[str]
    """The name of the cloud in errors: `AWS`."""
    settings: ClassVar[Sequence[SettingSpec]] = ()
    labels: ClassVar[LabelClasses] = LabelClasses()

    def __init__(self) -> None:
        self._running: S | None = None

    @abstractmethod
    def start_provider(self, context: ProviderContext) -> S:
        """Read the settings and make the provider, without waiting for the cloud (PC-007).

        Raises:
            SettingsError, BadInputError: the user has to correct something.
        """

    def stop_provider(self) -> None:
        """Close what was started; a stopped provider can be started again."""
        running, self._running = self._running, None
        if running is not None:
            running.close()

    @property
    def running(self) -> S:
        """The started provider.

        Raises:
            CloudProviderError: it is not started.
        """
        if self._running is None:
            raise CloudProviderError(f"the {self.title} provider is not started")
        return self._running

    @hookimpl
    def karpenter_provider_info(self) -> ProviderInfo:
        """Return `info`."""
        return self.info

    @hookimpl
    def karpenter_add_settings(self) -> Sequence[SettingSpec]:
        """Return `settings`."""
        return self.settings

    @hookimpl
    def karpenter_start(self, context: ProviderContext) -> None:
        """Start the provider; one that was started before is closed first."""
        self.stop_provider()
        self._running = self.start_provider(context)

    @hookimpl
    def karpenter_stop(self) -> Awaitable[None] | None:
        """Close what was started; a plug-in may replace it by an `async def`."""
        self.stop_provider()
        return None

    @hookimpl
    def karpenter_classify_labels(self) -> LabelClasses:
        """Return `labels`."""
        return self.labels


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudHooks(Generic[C]):
    """The functions that hooks call; each has the arguments and the result of its hook."""

    resolve_node_class: Callable[[C], NodeClassResolution]
    finalize_node_class: Callable[[C], None]
    list_instance_types: Callable[[NodePool, C], Sequence[InstanceType]]
    launch_instances: Callable[[Sequence[LaunchRequest]], Sequence[LaunchOutcome]]
    fetch_instances: Callable[[Sequence[str]], Sequence[FetchOutcome]]
    list_instances: Callable[[], InstanceListing]
    sync_instance: Callable[[NodeClaim, NodeView], None]
    detect_drift: Callable[[Sequence[NodeClaim], C], Sequence[DriftOutcome]]
    terminate_instances: Callable[[Sequence[str]], Sequence[TerminateOutcome]]
    poll_interruptions: Callable[[], Sequence[Interruption]]
    acknowledge_interruptions: Callable[[Sequence[str]], None]
    record_offerings: Callable[[str, Sequence[InstanceType]], None]
    """Receives the listed types of a NodePool, by its name, for metrics."""


class StartedCloud(Closable, Protocol[C]):
    """A started provider of a cloud; callable from any thread."""

    @property
    def node_classes(self) -> NodeClassRegistry[C]:
        """The NodeClasses and NodePools that hooks were called with."""
        ...

    @property
    def hooks(self) -> CloudHooks[C]:
        """The functions of the hooks; may be made, and may need a call, when a hook first needs them.

        Raises:
            SettingsError, CloudProviderError: they cannot be made now.
        """
        ...

    def hash_node_class(self, node_class: C) -> NodeClassHash:
        """Return the hash of the fields that nodes are made by (PC-011)."""
        ...

    def tasks(self) -> Sequence[PeriodicTask]:
        """Return the periodic work."""
        ...

    def check(self) -> Sequence[Finding]:
        """Return the findings of `karpenter doctor`; raise nothing."""
        ...


class CloudPlugin(ProviderPlugin[S], Generic[C, S]):
    """The plug-in of a cloud whose NodeClass kind is `C` and whose started provider is `S`."""

    @property
    @abstractmethod
    def cloud(self) -> StartedCloud[C]:
        """The started provider (`return self.running`); type checkers compare it with the protocol."""

    # -- NodeClass -----------------------------------------------------------------------------

    @hookimpl
    def karpenter_resolve_node_class(self, node_class: NodeClass) -> NodeClassResolution:
        """Find the resources of the NodeClass, and validate it."""
        own, cloud = self.own(node_class), self.cloud
        cloud.node_classes.note(own)
        return cloud.hooks.resolve_node_class(own)

    @hookimpl
    def karpenter_hash_node_class(self, node_class: NodeClass) -> NodeClassHash:
        """Hash the fields that nodes are made by."""
        return self.cloud.hash_node_class(self.own(node_class))

    @hookimpl
    def karpenter_finalize_node_class(self, node_class: NodeClass) -> None:
        """Remove what was made for the NodeClass, and forget it."""
        own, cloud = self.own(node_class), self.cloud
        cloud.hooks.finalize_node_class(own)
        cloud.node_classes.forget(own)

    @hookimpl
    def karpenter_list_instance_types(
        self, node_pool: NodePool, node_class: NodeClass
    ) -> Sequence[InstanceType]:
        """List the instance types of the region, as a node of this NodeClass would be."""
        own, cloud = self.own(node_class), self.cloud
        cloud.node_classes.note(own, node_pool)
        types = cloud.hooks.list_instance_types(node_pool, own)
        cloud.hooks.record_offerings(node_pool.name, types)
        return types

    # -- instances -----------------------------------------------------------------------------

    @hookimpl
    def karpenter_launch_instances(
        self, requests: Sequence[LaunchRequest]
    ) -> Sequence[LaunchOutcome]:
        """Launch one instance for each request."""
        return self.cloud.hooks.launch_instances(requests)

    @hookimpl
    def karpenter_fetch_instances(self, provider_ids: Sequence[str]) -> Sequence[FetchOutcome]:
        """Fetch instances."""
        return self.cloud.hooks.fetch_instances(provider_ids)

    @hookimpl
    def karpenter_list_instances(self) -> InstanceListing:
        """List the instances of this cluster."""
        return self.cloud.hooks.list_instances()

    @hookimpl
    def karpenter_sync_instance(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Tag the instance of a registered Node, and learn from the Node."""
        self.cloud.hooks.sync_instance(node_claim, node)

    @hookimpl
    def karpenter_detect_drift(
        self, node_claims: Sequence[NodeClaim], node_class: NodeClass
    ) -> Sequence[DriftOutcome]:
        """Compare instances with their NodeClass."""
        return self.cloud.hooks.detect_drift(node_claims, self.own(node_class))

    @hookimpl
    def karpenter_terminate_instances(
        self, provider_ids: Sequence[str]
    ) -> Sequence[TerminateOutcome]:
        """Terminate instances."""
        return self.cloud.hooks.terminate_instances(provider_ids)

    # -- interruptions -------------------------------------------------------------------------

    @hookimpl
    def karpenter_poll_interruptions(self) -> Sequence[Interruption]:
        """Return the interruptions that the cloud has announced."""
        return self.cloud.hooks.poll_interruptions()

    @hookimpl
    def karpenter_acknowledge_interruptions(self, ids: Sequence[str]) -> None:
        """Forget interruptions that were handled."""
        self.cloud.hooks.acknowledge_interruptions(ids)

    # -- background ----------------------------------------------------------------------------

    @hookimpl
    def karpenter_declare_tasks(self) -> Sequence[PeriodicTask]:
        """Return the periodic work of the provider."""
        return self.cloud.tasks()

    @hookimpl
    def karpenter_check(self) -> Sequence[Finding]:
        """Return the findings of `karpenter doctor`."""
        return self.cloud.check()

    def own(self, node_class: NodeClass) -> C:
        """Return a NodeClass with its type: hooks are called with those of this provider alone."""
        return cast("C", node_class)
