"""Runs a provider behind the real façade without a cluster.

Hooks run exactly as in production (worker threads, batches, time limits); only Kubernetes is
missing. Periodic tasks run when they are woken, or when a test runs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, cast, final

import msgspec
from prometheus_client import CollectorRegistry

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.labels import (
    API_VERSION,
    CAPACITY_TYPES,
    INSTANCE_TYPE,
    NODE_POOL,
    node_class_label,
)
from karpenter_core.api.nodeclaim import (
    NodeClaim,
    NodeClaimSpec,
    NodeClassRef,
    RequirementSpec,
    TaintSpec,
)
from karpenter_core.api.nodepool import NodeClaimTemplate, NodePool, NodePoolSpec, TemplateSpec
from karpenter_core.api.quantities import parse_resources
from karpenter_core.api.records import NodeConditionView, NodeView, OwnerView, Taint
from karpenter_core.controllers.nodeclass.controller import resolved_status
from karpenter_core.errors import ConflictError, FencedError, NotFoundError
from karpenter_core.lifecycle.nodeclaim.launch import launched_claim
from karpenter_core.operator.clock import SystemClock
from karpenter_core.provider.contract import (
    ClusterFacts,
    FeatureGates,
    LaunchedInstance,
    LaunchRequest,
    ProviderContext,
)
from karpenter_core.provider.host.executor import ThreadExecutor
from karpenter_core.provider.host.facade import Providers
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.scheduling.requirements import Requirements

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchOutcome
    from karpenter_core.provider.host.executor import Executor
    from karpenter_core.scheduling.instance_types import InstanceType

__all__ = ["FakeFence", "FakeNodes", "ProviderWorld"]


@final
class FakeNodes:
    """Nodes by name: a `NodeWriter` and a `NodeReader` without an API server."""

    def __init__(self) -> None:
        self.nodes: Final[dict[str, NodeView]] = {}
        self.manifests: Final[dict[str, Mapping[str, object]]] = {}
        self.failures: Final[list[Exception]] = []
        """Raised, one after the other, by the next writes."""
        self.writes: Final[list[tuple[str, str]]] = []
        self._serial = 0

    def __call__(self) -> Mapping[str, NodeView]:
        """Return every Node by name."""
        return dict(self.nodes)

    async def create(self, manifest: Mapping[str, object]) -> NodeView:
        """Create a Node."""
        node = self._view(manifest)
        self._write("create", node.name)
        if node.name in self.nodes:
            raise ConflictError(f"nodes {node.name} already exists", status=409)
        return self._keep(node, manifest)

    def show(self, manifest: Mapping[str, object]) -> NodeView:
        """Make a Node as it is now: a new one, or with changed conditions."""
        return self._keep(self._view(manifest), manifest)

    def _keep(self, node: NodeView, manifest: Mapping[str, object]) -> NodeView:
        self.nodes[node.name], self.manifests[node.name] = node, manifest
        return node

    async def patch(self, name: str, patch: Mapping[str, object]) -> NodeView:
        """Merge labels and annotations into a Node."""
        self._write("patch", name)
        metadata = cast("Mapping[str, Mapping[str, str]]", patch.get("metadata", {}))
        node = self._existing(name)
        self.nodes[name] = msgspec.structs.replace(
            node,
            labels={**node.labels, **metadata.get("labels", {})},
            annotations={**node.annotations, **metadata.get("annotations", {})},
        )
        return self.nodes[name]

    async def patch_status(self, name: str, patch: Mapping[str, object]) -> NodeView:
        """Replace the amounts of a Node."""
        self._write("patch_status", name)
        status = cast("Mapping[str, Mapping[str, str]]", patch.get("status", {}))
        node = self._existing(name)
        self.nodes[name] = msgspec.structs.replace(
            node,
            capacity=parse_resources(status.get("capacity", {})) or node.capacity,
            allocatable=parse_resources(status.get("allocatable", {})) or node.allocatable,
        )
        return self.nodes[name]

    async def delete(self, name: str) -> None:
        """Delete a Node; one that is gone already is fine."""
        self._write("delete", name)
        self.nodes.pop(name, None)
        self.manifests.pop(name, None)

    def _write(self, verb: str, name: str) -> None:
        self.writes.append((verb, name))
        if self.failures:
            raise self.failures.pop(0)

    def _existing(self, name: str) -> NodeView:
        if name not in self.nodes:
            raise NotFoundError(f"nodes {name} not found", status=404)
        return self.nodes[name]

    def _view(self, manifest: Mapping[str, object]) -> NodeView:
        self._serial += 1
        metadata = cast("Mapping[str, object]", manifest["metadata"])
        spec = cast("Mapping[str, object]", manifest.get("spec", {}))
        status = cast("Mapping[str, Mapping[str, str]]", manifest.get("status", {}))
        return NodeView(
            uid=f"node-uid-{self._serial}",
            name=str(metadata["name"]),
            resource_version=self._serial,
            labels=cast("Mapping[str, str]", metadata.get("labels", {})),
            annotations=cast("Mapping[str, str]", metadata.get("annotations", {})),
            owners=cast("tuple[OwnerView, ...]", metadata.get("owners", ())),
            provider_id=str(spec.get("providerID", "")),
            taints=tuple(
                Taint(key=t["key"], effect=t["effect"], value=t.get("value", ""))
                for t in cast("Sequence[Mapping[str, str]]", spec.get("taints", ()))
            ),
            capacity=parse_resources(status.get("capacity", {})),
            allocatable=parse_resources(status.get("allocatable", {})),
            conditions=tuple(
                NodeConditionView(
                    type=each["type"],
                    status=each["status"],
                    reason=each.get("reason", ""),
                    message=each.get("message", ""),
                    last_transition_time=_time(each.get("lastTransitionTime", "")),
                )
                for each in cast("Sequence[Mapping[str, str]]", status.get("conditions", ()))
            ),
            kubelet_version=status.get("nodeInfo", {}).get("kubeletVersion", ""),
        )


def _time(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


@final
class FakeFence:
    """A lease that tests take away."""

    def __init__(self) -> None:
        self.held = True

    def check(self) -> None:
        """Refuse while the lease is not held."""
        if not self.held:
            raise FencedError("the lease is not held")


@final
@dataclass(kw_only=True)
class ProviderWorld:
    """Plug-ins, started, and the Nodes they make; `async with` starts and stops them."""

    plugins: Mapping[str, object]
    cache_folder: Path
    clock: Clock = field(default_factory=SystemClock)
    executor: Executor = field(default_factory=ThreadExecutor)
    settings: Mapping[str, str | float | bool | timedelta] = field(
        default_factory=dict[str, "str | float | bool | timedelta"]
    )
    cluster: ClusterFacts = field(default_factory=lambda: ClusterFacts(name="test"))
    feature_gates: FeatureGates = field(default_factory=FeatureGates)
    nodes: FakeNodes = field(default_factory=FakeNodes)
    fence: FakeFence = field(default_factory=FakeFence)
    observing: bool = False
    """Whether the process runs with `--observe`."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    woken: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    claims: dict[str, NodeClaim] = field(default_factory=dict[str, NodeClaim])
    """NodeClaims with a launched instance, by name, as `ProviderContext.read_claims` returns them."""
    found: dict[str, NodeClass] = field(default_factory=dict[str, "NodeClass"])
    """NodeClasses with their status, by what was asked."""

    async def __aenter__(self) -> ProviderWorld:
        """Load and start the plug-ins."""
        self.loaded = load_plugins(extra=self.plugins, entry_points=())
        self.providers = Providers(
            self.loaded,
            executor=self.executor,
            clock=self.clock,
            fence=self.fence,
            registry=self.registry,
        )
        await self.providers.start(self.context_for)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the plug-ins."""
        await self.providers.stop()

    def context_for(self, name: str) -> ProviderContext:
        """Make a plug-in's context: its settings at their defaults, but for what the test sets."""
        specs = self.loaded.settings().get(name, ())
        defaults = {spec.flag.removeprefix("--"): spec.default for spec in specs}
        return ProviderContext(
            settings={**defaults, **self.settings},
            clock=self.clock,
            cache_folder=self.cache_folder,
            metrics=self.registry,
            cluster=self.cluster,
            nodes=self.nodes,
            read_nodes=self.nodes,
            wake=self._waker(name),
            read_claims=lambda: dict(self.claims),
            feature_gates=self.feature_gates,
            fence=self.fence,
            observing=self.observing,
        )

    async def settle(self) -> None:
        """Run woken tasks until none is woken any more."""
        while self.woken:
            key = min(self.woken)
            self.woken.discard(key)
            await self.run_task(*key)

    async def run_task(self, plugin: str, name: str) -> None:
        """Run one periodic task now."""
        for task in self.providers.tasks():
            if (task.plugin, task.name) == (plugin, name):
                await task.run()

    async def resolved(self, node_class: NodeClass) -> NodeClass:
        """Return a NodeClass with the status that the provider finds for it, as the core would.

        Looked up once; the same NodeClass has the same status ever after.
        """
        asked = node_class.model_dump_json(by_alias=True)
        known = self.found.get(asked)
        if known is None:
            resolution = await self.providers.resolve_node_class(node_class)
            plain = node_class.model_dump(mode="json", by_alias=True, exclude_none=True)
            status = resolved_status(node_class, resolution, now=self.clock.now())
            plain["status"] = {**plain.get("status", {}), **status}
            known = self.found[asked] = type(node_class).model_validate(plain)
        return known

    async def catalogue(self, node_class: NodeClass) -> tuple[InstanceType, ...]:
        """Return the catalogue of a NodeClass."""
        return await self.providers.list_instance_types(
            node_pool_for(node_class), await self.resolved(node_class)
        )

    async def request(
        self,
        name: str,
        node_class: NodeClass,
        *,
        requirements: Sequence[RequirementSpec] = (),
        taints: Sequence[TaintSpec] = (),
        startup_taints: Sequence[TaintSpec] = (),
    ) -> LaunchRequest:
        """Make the launch request for a claim that all types would suit which it may have."""
        allowed = Requirements.from_specs(requirements).get(INSTANCE_TYPE)
        types = [it for it in await self.catalogue(node_class) if allowed.has(it.name)]
        resource = type(node_class).resource
        names = tuple(it.name for it in types)
        claim = NodeClaim(
            api_version=API_VERSION,
            kind="NodeClaim",
            metadata=ObjectMeta(
                name=name,
                uid=f"uid-of-{name}",
                resource_version="1",
                labels={
                    NODE_POOL: "default",
                    node_class_label(resource.group, resource.kind): node_class.name,
                },
            ),
            spec=NodeClaimSpec(
                node_class_ref=NodeClassRef(
                    group=resource.group, kind=resource.kind, name=node_class.name
                ),
                requirements=(
                    RequirementSpec(key=INSTANCE_TYPE, operator="In", values=names),
                    *requirements,
                ),
                taints=tuple(taints),
                startup_taints=tuple(startup_taints),
            ),
        )
        return LaunchRequest(
            node_claim=claim,
            node_class=await self.resolved(node_class),
            instance_types=_by_price(types),
        )

    async def launch(self, request: LaunchRequest) -> LaunchOutcome:
        """Launch through the façade, and let the provider's tasks follow."""
        outcome = await self.providers.launch(request)
        if isinstance(outcome, LaunchedInstance):
            claim = launched_claim(request.node_claim, outcome)
            self.claims[claim.name] = claim
        await self.settle()
        return outcome

    def _waker(self, plugin: str) -> Callable[[str], None]:
        def wake(task: str) -> None:
            self.woken.add((plugin, task))

        return wake


def node_pool_for(node_class: NodeClass) -> NodePool:
    """Make the NodePool of a NodeClass."""
    resource = type(node_class).resource
    ref = NodeClassRef(group=resource.group, kind=resource.kind, name=node_class.name)
    return NodePool(
        api_version=API_VERSION,
        kind="NodePool",
        metadata=ObjectMeta(name="default", uid="uid-of-pool", resource_version="1"),
        spec=NodePoolSpec(template=NodeClaimTemplate(spec=TemplateSpec(node_class_ref=ref))),
    )


def _by_price(types: Sequence[InstanceType]) -> tuple[InstanceType, ...]:
    def price(it: InstanceType) -> tuple[float, str]:
        prices = [
            offering.price.amount
            for offering in it.offerings
            if offering.available and offering.capacity_type in CAPACITY_TYPES
        ]
        return min(prices, default=float("inf")), it.name

    return tuple(sorted(types, key=price))
