"""The plug-ins behind one typed door.

Controllers know only this: no hook name, no plug-in object and no thread appears above it. A call
goes to the provider that owns the NodeClass kind; many calls become few batches; what a provider
does not implement has the default its hook documents.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, cast, final

import structlog

from karpenter_core.errors import CloudProviderError, KarpenterError, PluginError
from karpenter_core.provider.contract import (
    DriftFinding,
    Finding,
    InstanceListing,
    Interruption,
    LabelClasses,
    NodeClassHash,
    NodeClassResolution,
    PeriodicTask,
    RegistrationGate,
    Severity,
)
from karpenter_core.provider.host.adjustments import adjust_catalogue
from karpenter_core.provider.host.catalogue_check import CatalogueCheck
from karpenter_core.provider.host.dispatch import Dispatcher, checked_list
from karpenter_core.provider.host.instances import InstanceCalls
from karpenter_core.provider.host.labels import merge_label_classes
from karpenter_core.provider.host.status_check import status_problems
from karpenter_core.scheduling.instance_types import InstanceType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
    from datetime import timedelta

    from prometheus_client import CollectorRegistry

    from karpenter_core.api.nodeclaim import NodeClaim, NodeClassRef
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import (
        Decision,
        DriftOutcome,
        Fence,
        FetchOutcome,
        LaunchOutcome,
        LaunchRequest,
        ProviderContext,
        ProviderInfo,
        SettingSpec,
        TerminateOutcome,
    )
    from karpenter_core.provider.host.executor import Executor
    from karpenter_core.provider.host.manager import Plugins
    from karpenter_core.state.snapshot import StateNode

__all__ = ["PluginTask", "Providers"]

T = TypeVar("T")

TOLD_PROBLEMS: Final = 1000
"""How many places in statuses are remembered, to log each once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTask:
    """Periodic work of one plug-in, ready to be run by the core."""

    plugin: str
    name: str
    period: timedelta
    leader_only: bool
    run: Callable[[], Awaitable[None]]
    """Run it once, wherever plug-in code runs; raises CloudProviderError for what it raised.

    FencedError: it is for the leader, and this process does not lead; nothing was called."""


@final
class Providers:
    """Every loaded plug-in; picks the provider by `nodeClassRef`."""

    def __init__(
        self,
        plugins: Plugins,
        *,
        executor: Executor,
        clock: Clock,
        fence: Fence,
        registry: CollectorRegistry,
    ) -> None:
        self._plugins: Final = plugins
        self._dispatcher: Final = Dispatcher(
            plugins, executor=executor, clock=clock, fence=fence, registry=registry
        )
        self._started: Final[list[str]] = []
        self.left_out: Final[dict[str, KarpenterError]] = {}
        """Plug-ins that could not start and are done without, and why."""
        self._tasks: tuple[PluginTask, ...] = ()
        self._labels = LabelClasses()
        self._catalogues: Final = CatalogueCheck()
        self._told: Final[dict[tuple[str, str, str], None]] = {}
        """Plug-in, kind and place of what is wrong with a status, the oldest first; logged once."""
        self._instances: Final = {
            name: InstanceCalls(name, self._dispatcher) for name in plugins.providers
        }

    # -- who is there ----------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the providers."""
        return tuple(self._plugins.providers)

    def infos(self) -> Mapping[str, ProviderInfo]:
        """Return what each provider says of itself."""
        return {name: provider.info for name, provider in self._plugins.providers.items()}

    def managed_kinds(self) -> frozenset[tuple[str, str]]:
        """Return group and kind of every NodeClass that some provider serves."""
        return frozenset(self._plugins.owners)

    def node_class_models(self) -> Mapping[tuple[str, str], type[NodeClass]]:
        """Return the model of each NodeClass kind, by group and kind."""
        return {
            (model.resource.group, model.resource.kind): model
            for provider in self._plugins.providers.values()
            for model in provider.info.node_classes
        }

    def setting_specs(self) -> Mapping[str, tuple[SettingSpec, ...]]:
        """Return the settings of each plug-in."""
        return self._plugins.settings()

    def provider_of(self, ref: NodeClassRef) -> str:
        """Return the name of the provider that serves a NodeClass.

        Raises:
            PluginError: none does.
        """
        return self._serving(ref.group, ref.kind)

    def _serving(self, group: str, kind: str) -> str:
        """Return the name of the provider that serves a kind, and has started.

        Raises:
            PluginError: none does, or it could not start.
        """
        name = self._plugins.owners.get((group, kind))
        if name is None:
            raise PluginError(f"no loaded provider serves {kind}.{group}")
        if name in self.left_out:
            raise PluginError(f'provider "{name}" could not start: {self.left_out[name]}')
        return name

    def label_classes(self) -> LabelClasses:
        """Return the labels of all providers together; empty before `start`."""
        return self._labels

    def tasks(self) -> tuple[PluginTask, ...]:
        """Return the periodic work of all plug-ins; none before `start`."""
        return self._tasks

    def overdue_calls(self) -> int:
        """How many calls have passed their limit and are still open; readiness fails past a few."""
        return self._dispatcher.overdue()

    def open_launches(self) -> int:
        """How many claims are with a provider now."""
        return sum(calls.open_launches for calls in self._instances.values())

    def subscribe_late_launches(
        self, callback: Callable[[LaunchRequest, LaunchOutcome], None]
    ) -> None:
        """Be told, on the event loop, what came of launches that nobody waited for any more."""
        for calls in self._instances.values():
            calls.on_late_launch = callback

    # -- life of the process -----------------------------------------------------------------------

    async def start(
        self, context_for: Callable[[str], ProviderContext], *, all_needed: bool = True
    ) -> None:
        """Start every plug-in; when one cannot start, those that did are stopped again.

        Unless all are needed: one that cannot start is then done without (`left_out`), and whoever
        asks for what it serves is told why.

        Raises:
            KarpenterError: what a plug-in refused to start for.
        """
        try:
            for name in self._plugins.names:
                try:
                    await self._start_one(name, context_for)
                except KarpenterError as error:
                    if all_needed:
                        raise
                    self._started.remove(name)
                    self.left_out[name] = error
        except BaseException:
            await self.stop()
            raise
        self._labels = merge_label_classes(await self._classify_labels())
        self._tasks = await self._declared_tasks()

    async def stop(self) -> None:
        """Send nothing more and stop every plug-in, the last one first; never raises."""
        for calls in self._instances.values():
            calls.close()
        while self._started:
            name = self._started.pop()
            if self._dispatcher.implements("karpenter_stop", name):
                try:
                    await self._dispatcher.call("karpenter_stop", name)
                except KarpenterError as error:
                    _log().warning("plug-in did not stop cleanly", plugin=name, error=str(error))
        self._dispatcher.close()

    async def _start_one(self, name: str, context_for: Callable[[str], ProviderContext]) -> None:
        self._started.append(name)
        if not self._dispatcher.implements("karpenter_start", name):
            return
        try:
            await self._dispatcher.call("karpenter_start", name, {"context": context_for(name)})
        except CloudProviderError as error:
            origin = self._plugins.origin(name)
            raise PluginError(f'plug-in "{name}" ({origin}) could not start: {error}') from error

    async def _classify_labels(self) -> Mapping[str, LabelClasses]:
        hook = "karpenter_classify_labels"
        return {
            name: _expect(await self._dispatcher.call(hook, name), LabelClasses, hook, name)
            for name in self._there(hook)
        }

    def _there(self, hook: str) -> tuple[str, ...]:
        """Return the plug-ins that implement a hook, but for those left out."""
        names = self._plugins.implementers(hook)
        return tuple(name for name in names if name not in self.left_out)

    async def _declared_tasks(self) -> tuple[PluginTask, ...]:
        hook = "karpenter_declare_tasks"
        found: list[PluginTask] = []
        for name in self._there(hook):
            answer = await self._dispatcher.call(hook, name)
            declared = checked_list(answer, count=None, types=(PeriodicTask,), hook=hook, name=name)
            found.extend(
                self._task(name, task) for task in cast("Sequence[PeriodicTask]", declared)
            )
        return tuple(found)

    def _task(self, plugin: str, task: PeriodicTask) -> PluginTask:
        async def run() -> None:
            try:
                await self._dispatcher.run_task(task.run, lane=plugin, leader_only=task.leader_only)
            except KarpenterError:
                raise
            except (Exception, SystemExit) as error:
                raise CloudProviderError(
                    f'plug-in "{plugin}" failed in its task {task.name}: {error!r}'
                ) from error

        return PluginTask(
            plugin=plugin,
            name=task.name,
            period=task.period,
            leader_only=task.leader_only,
            run=run,
        )

    # -- NodeClass -----------------------------------------------------------------------------

    def resolves(self, node_class: NodeClass) -> bool:
        """Tell whether the provider of a NodeClass finds out what it refers to."""
        return self._dispatcher.implements("karpenter_resolve_node_class", self._owner(node_class))

    def finalizes(self, node_class: NodeClass) -> bool:
        """Tell whether the provider of a NodeClass has something to remove at its end."""
        return self._dispatcher.implements("karpenter_finalize_node_class", self._owner(node_class))

    async def resolve_node_class(self, node_class: NodeClass) -> NodeClassResolution:
        """Return what the NodeClass refers to; nothing when the provider resolves nothing.

        Raises:
            FencedError: this process does not lead; nothing was called.
        """
        hook, name = "karpenter_resolve_node_class", self._owner(node_class)
        if not self._dispatcher.implements(hook, name):
            return NodeClassResolution()
        answer = await self._about(hook, name, node_class)
        resolution = _expect(answer, NodeClassResolution, hook, name)
        kind = type(node_class).resource.kind
        for problem in status_problems(node_class, resolution.status):
            if self._is_new(name, kind, problem.path):
                _log().error(
                    "plug-in sets a status that its NodeClass does not have",
                    plugin=name,
                    kind=kind,
                    problem=problem.message,
                )
        return resolution

    def _is_new(self, plugin: str, kind: str, path: str) -> bool:
        """Whether nothing was said of this place in a status yet; it is from now on."""
        if (plugin, kind, path) in self._told:
            return False
        self._told[plugin, kind, path] = None
        if len(self._told) > TOLD_PROBLEMS:
            del self._told[next(iter(self._told))]
        return True

    async def hash_node_class(self, node_class: NodeClass) -> NodeClassHash | None:
        """Return the digest for static drift; None when the provider has none."""
        hook, name = "karpenter_hash_node_class", self._owner(node_class)
        if not self._dispatcher.implements(hook, name):
            return None
        answer = await self._about(hook, name, node_class)
        return _expect(answer, NodeClassHash, hook, name)

    async def finalize_node_class(self, node_class: NodeClass) -> None:
        """Remove what was made for a NodeClass; raises while something is left.

        Raises:
            FencedError: this process does not lead; nothing was called.
        """
        hook, name = "karpenter_finalize_node_class", self._owner(node_class)
        if self._dispatcher.implements(hook, name):
            await self._about(hook, name, node_class)

    async def list_instance_types(
        self, node_pool: NodePool, node_class: NodeClass
    ) -> tuple[InstanceType, ...]:
        """Return the catalogue for a NodePool, with what plug-ins make of prices and risks."""
        hook, name = "karpenter_list_instance_types", self._owner(node_class)
        with self._dispatcher.measure("GetInstanceTypes", name):
            answer = await self._dispatcher.call(
                hook,
                name,
                {"node_pool": node_pool, "node_class": node_class},
                key=(_version(node_pool), _version(node_class)),
            )
            listed = checked_list(answer, count=None, types=(InstanceType,), hook=hook, name=name)
            types = tuple(cast("Sequence[InstanceType]", listed))
            self._catalogues.check(types, plugin=name)
            return await adjust_catalogue(
                types, provider=name, plugins=self._plugins, dispatcher=self._dispatcher
            )

    # -- instances -----------------------------------------------------------------------------

    async def launch(self, request: LaunchRequest) -> LaunchOutcome:
        """Wait for this request's share of a batch; never raises for one item.

        CallPendingError as outcome: the time limit passed. The claim is not launched again while
        the call is open; its result goes to the subscriber of late launches.

        Raises:
            FencedError: this process does not lead; nothing was sent.
        """
        name = self.provider_of(request.node_claim.spec.node_class_ref)
        with self._dispatcher.measure("Create", name) as measured:
            return measured.note(await self._instances[name].launch(request))

    async def fetch(self, ref: NodeClassRef, provider_id: str) -> FetchOutcome:
        """Look one instance up; NodeClaimNotFoundError as outcome when it is gone."""
        name = self.provider_of(ref)
        with self._dispatcher.measure("Get", name) as measured:
            return measured.note(await self._instances[name].fetch(provider_id))

    async def terminate(self, ref: NodeClassRef, provider_id: str) -> TerminateOutcome:
        """Ask for one instance's end, and hear whether it is gone.

        Raises:
            FencedError: this process does not lead; nothing was sent.
        """
        return await self.terminate_leaked(self.provider_of(ref), provider_id)

    async def terminate_leaked(self, provider: str, provider_id: str) -> TerminateOutcome:
        """Ask a provider by name for the end of an instance that has no claim.

        Raises:
            FencedError: this process does not lead; nothing was sent.
        """
        with self._dispatcher.measure("Delete", provider) as measured:
            return measured.note(await self._instances[provider].terminate(provider_id))

    async def list_instances(self, provider: str) -> InstanceListing:
        """List a provider's instances; look at `complete` before missing something."""
        hook = "karpenter_list_instances"
        with self._dispatcher.measure("List", provider):
            answer = await self._dispatcher.call(hook, provider)
            return _expect(answer, InstanceListing, hook, provider)

    async def gate_registration(
        self, node_claim: NodeClaim, node: NodeView
    ) -> RegistrationGate | None:
        """Ask whether a node may register; None lets it pass."""
        hook, name = "karpenter_gate_registration", self._owner_of_claim(node_claim)
        if not self._dispatcher.implements(hook, name):
            return None
        answer = await self._about_node(hook, name, node_claim, node)
        return None if answer is None else _expect(answer, RegistrationGate, hook, name)

    def syncs(self, ref: NodeClassRef) -> bool:
        """Tell whether the provider of a NodeClass keeps instances in line in place."""
        return self._dispatcher.implements("karpenter_sync_instance", self.provider_of(ref))

    async def sync_instance(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Bring an instance in line with its claim and Node.

        Raises:
            FencedError: this process does not lead; nothing was called.
        """
        hook, name = "karpenter_sync_instance", self._owner_of_claim(node_claim)
        if self._dispatcher.implements(hook, name):
            await self._about_node(hook, name, node_claim, node)

    async def detect_drift(
        self, node_claims: Sequence[NodeClaim], node_class: NodeClass
    ) -> tuple[DriftOutcome, ...]:
        """Return why each claim's instance has drifted, in the order of the claims.

        Asks for as many at once as the provider takes. What a call fails with is the outcome of
        each of its claims; never raises for some of them.
        """
        hook, name = "karpenter_detect_drift", self._owner(node_class)
        if not self._dispatcher.implements(hook, name):
            return (None,) * len(node_claims)
        width = self._dispatcher.item_width(hook, name)
        size = self._dispatcher.limits(hook, name).size if width is None else 1
        turns = asyncio.Semaphore(width or 1)

        async def detect(claims: tuple[NodeClaim, ...]) -> Sequence[DriftOutcome]:
            async with turns:
                try:
                    return await self._detect_drift(hook, name, claims, node_class)
                except CloudProviderError as error:
                    return [error] * len(claims)

        starts = range(0, len(node_claims), size)
        found = [detect(tuple(node_claims[start : start + size])) for start in starts]
        return tuple(outcome for part in await asyncio.gather(*found) for outcome in part)

    async def _detect_drift(
        self, hook: str, name: str, claims: tuple[NodeClaim, ...], node_class: NodeClass
    ) -> Sequence[DriftOutcome]:
        with self._dispatcher.measure("IsDrifted", name):
            answer = await self._dispatcher.call(
                hook,
                name,
                {"node_claims": claims, "node_class": node_class},
                key=(_version(node_class), tuple(_version(claim) for claim in claims)),
            )
            types = (DriftFinding, CloudProviderError, type(None))
            listed = checked_list(answer, count=len(claims), types=types, hook=hook, name=name)
            return cast("Sequence[DriftOutcome]", listed)

    # -- interruptions -------------------------------------------------------------------------

    def polls_interruptions(self, provider: str) -> bool:
        """Tell whether a provider announces anything when it is asked."""
        return self._dispatcher.implements("karpenter_poll_interruptions", provider)

    def reads_interruptions(self, provider: str) -> bool:
        """Tell whether a provider finds announcements in Nodes."""
        return self._dispatcher.implements("karpenter_read_interruptions", provider)

    async def poll_interruptions(self, provider: str) -> tuple[Interruption, ...]:
        """Fetch what a provider announces and nobody has acknowledged."""
        hook = "karpenter_poll_interruptions"
        if not self._dispatcher.implements(hook, provider):
            return ()
        answer = await self._dispatcher.call(hook, provider)
        return _interruptions(answer, hook, provider)

    async def acknowledge_interruptions(self, provider: str, ids: Sequence[str]) -> None:
        """Tell a provider that these announcements were handled.

        Raises:
            FencedError: this process does not lead; nothing was called.
        """
        hook = "karpenter_acknowledge_interruptions"
        if ids and self._dispatcher.implements(hook, provider):
            await self._dispatcher.call(hook, provider, {"ids": tuple(ids)}, key=tuple(ids))

    async def read_interruptions(
        self, ref: NodeClassRef, node: NodeView
    ) -> tuple[Interruption, ...]:
        """Read announcements from a Node; runs at once, since the hook does no I/O."""
        hook, name = "karpenter_read_interruptions", self.provider_of(ref)
        if not self._dispatcher.implements(hook, name):
            return ()
        answer = await self._dispatcher.ask(hook, name, {"node": node}, inline=True)
        return _interruptions(answer, hook, name)

    # -- open to any plug-in -------------------------------------------------------------------

    async def check(self) -> Mapping[str, tuple[Finding, ...]]:
        """Return the preflight findings of each plug-in; a check that fails is one too."""
        return {name: await self._check_one(name) for name in self._there("karpenter_check")}

    async def _check_one(self, name: str) -> tuple[Finding, ...]:
        hook = "karpenter_check"
        try:
            answer = await self._dispatcher.call(hook, name)
            listed = checked_list(answer, count=None, types=(Finding,), hook=hook, name=name)
        except KarpenterError as error:
            return (Finding(severity=Severity.ERROR, message=f"the check failed: {error}"),)
        return tuple(cast("Sequence[Finding]", listed))

    async def vetoes(self, candidate: StateNode) -> Mapping[str, str]:
        """Return why plug-ins keep a node from being disrupted, by plug-in; empty when none does.

        A plug-in whose veto fails keeps the node: it cannot be known what it would have said.
        """
        hook = "karpenter_veto_candidate"
        reasons: dict[str, str] = {}
        for name in self._there(hook):
            try:
                answer = await self._dispatcher.ask(
                    hook, name, {"candidate": candidate}, inline=True
                )
            except KarpenterError as error:
                reasons[name] = str(error)
            else:
                reason = next(iter(cast("list[object]", answer)), None)
                if reason is not None:
                    reasons[name] = str(reason)
        return reasons

    async def observe_decision(self, decision: Decision) -> None:
        """Show a decision to every plug-in that watches; never raises."""
        hook = "karpenter_observe_decision"
        for name in self._there(hook):
            try:
                await self._dispatcher.call(hook, name, {"decision": decision}, key=decision.id)
            except KarpenterError as error:
                _log().warning("plug-in failed to observe", plugin=name, error=str(error))

    # -- inside --------------------------------------------------------------------------------

    def _owner(self, node_class: NodeClass) -> str:
        resource = type(node_class).resource
        return self._serving(resource.group, resource.kind)

    def _owner_of_claim(self, node_claim: NodeClaim) -> str:
        return self.provider_of(node_claim.spec.node_class_ref)

    async def _about(self, hook: str, name: str, node_class: NodeClass) -> object:
        return await self._dispatcher.call(
            hook, name, {"node_class": node_class}, key=_version(node_class)
        )

    async def _about_node(
        self, hook: str, name: str, node_claim: NodeClaim, node: NodeView
    ) -> object:
        return await self._dispatcher.call(
            hook,
            name,
            {"node_claim": node_claim, "node": node},
            key=(_version(node_claim), node.uid, node.resource_version),
        )


def _log() -> structlog.typing.FilteringBoundLogger:
    return structlog.get_logger("provider")


def _version(item: NodeClaim | NodeClass | NodePool) -> Hashable:
    return (item.uid, item.name, item.metadata.resource_version)


def _expect(answer: object, wanted: type[T], hook: str, name: str) -> T:
    if not isinstance(answer, wanted):
        raise CloudProviderError(
            f'plug-in "{name}": {hook} must return {wanted.__name__}, not {answer!r}'
        )
    return answer


def _interruptions(answer: object, hook: str, name: str) -> tuple[Interruption, ...]:
    if answer is None:
        return ()
    listed = checked_list(answer, count=None, types=(Interruption,), hook=hook, name=name)
    return tuple(cast("Sequence[Interruption]", listed))
