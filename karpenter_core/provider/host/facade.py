"""Offers the loaded plug-ins to controllers as one typed interface.

Controllers know only this: no hook name, no plug-in object and no thread appears above it. A call
goes to the provider that owns the NodeClass kind; many calls become few batches; what a provider
does not implement has the default its hook documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

import structlog

from karpenter_core.errors import CloudProviderError, KarpenterError, PluginError
from karpenter_core.provider.contract import (
    Finding,
    LabelClasses,
    NodeClassResolution,
    Severity,
)
from karpenter_core.provider.host import hooks
from karpenter_core.provider.host.adjustments import adjust_catalogue
from karpenter_core.provider.host.answer_values import (
    check_gate,
    check_hash,
    check_listing,
    check_resolution,
    checked_drift,
)
from karpenter_core.provider.host.catalogue_check import CatalogueValidator
from karpenter_core.provider.host.dispatch import Dispatcher
from karpenter_core.provider.host.instances import BatchedInstanceCalls
from karpenter_core.provider.host.interruption_calls import InterruptionCalls
from karpenter_core.provider.host.reported_problems import ReportedProblems
from karpenter_core.provider.host.running_plugins import RunningPlugins
from karpenter_core.provider.host.status_check import status_problems
from karpenter_core.provider.kit.bounded_gather import gather_bounded
from karpenter_core.tracing import NO_TRACER

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from karpenter_core.api.nodeclaim import NodeClaim, NodeClassRef
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import (
        Decision,
        DriftOutcome,
        FetchOutcome,
        InstanceListing,
        Interruption,
        LaunchOutcome,
        LaunchRequest,
        LeaderFence,
        NodeClassHash,
        PollingPeriods,
        ProviderContext,
        ProviderInfo,
        RegistrationGate,
        RegistrationRefusal,
        SettingSpec,
        TerminateOutcome,
    )
    from karpenter_core.provider.host.executor import Executor
    from karpenter_core.provider.host.hooks import Hook
    from karpenter_core.provider.host.manager import Plugins
    from karpenter_core.provider.host.plugin_tasks import PluginTask
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.state.snapshot import StateNode
    from karpenter_core.tracing import Tracer

__all__ = ["Providers"]

Result = TypeVar("Result")


@final
class Providers:
    """All loaded plug-ins; selects the provider by `nodeClassRef`."""

    def __init__(
        self,
        plugins: Plugins,
        *,
        executor: Executor,
        clock: Clock,
        fence: LeaderFence,
        registry: CollectorRegistry,
        observing: bool = False,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """`observing`: the fence never permits a change, but NodeClasses may be resolved."""
        self._plugins: Final = plugins
        self._dispatcher: Final = Dispatcher(
            plugins,
            executor=executor,
            clock=clock,
            fence=fence,
            registry=registry,
            observing=observing,
            tracer=tracer,
        )
        self._running: Final = RunningPlugins(plugins, self._dispatcher)
        self._catalogues: Final = CatalogueValidator()
        self._problems: Final = ReportedProblems()
        self._interruptions: Final = InterruptionCalls(self._dispatcher, self._problems)
        self._instances: Final = {
            name: BatchedInstanceCalls(name, self._dispatcher) for name in plugins.providers
        }

    # -- who is there ----------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the providers."""
        return tuple(self._plugins.providers)

    @property
    def left_out(self) -> Mapping[str, KarpenterError]:
        """Plug-ins that could not start and were left out, with the reasons."""
        return self._running.left_out

    def infos(self) -> Mapping[str, ProviderInfo]:
        """Return the `ProviderInfo` of each provider."""
        return {name: provider.info for name, provider in self._plugins.providers.items()}

    def polling_periods(self, provider: str) -> PollingPeriods:
        """Return how often reading hooks of a provider are called."""
        return self._plugins.providers[provider].info.polling_periods

    def managed_kinds(self) -> frozenset[tuple[str, str]]:
        """Return group and kind of every NodeClass that some provider serves."""
        return frozenset(self._plugins.owners)

    def node_class_models(self) -> Mapping[tuple[str, str], type[NodeClass]]:
        """Return the model of each NodeClass kind, by group and kind."""
        return self._plugins.node_class_models()

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
        return self._running.labels

    def tasks(self) -> tuple[PluginTask, ...]:
        """Return the periodic tasks of all plug-ins; none before `start`."""
        return self._running.tasks

    def overdue_calls(self) -> int:
        """Return the number of open calls past their limit; several make the process unready."""
        return self._dispatcher.overdue()

    def open_launches(self) -> int:
        """Return the number of claims in open launch calls."""
        return sum(calls.open_launches for calls in self._instances.values())

    def subscribe_late_launches(
        self, callback: Callable[[LaunchRequest, LaunchOutcome], None]
    ) -> None:
        """Register a callback, on the event loop, for results of launches that no caller waits for."""
        for calls in self._instances.values():
            calls.on_late_launch = callback

    # -- life of the process -----------------------------------------------------------------------

    async def start(
        self, context_for: Callable[[str], ProviderContext], *, all_needed: bool = True
    ) -> None:
        """Start every plug-in; if one cannot start, stop those that did.

        Unless all are needed: one that cannot start is then left out (`left_out`), and callers
        that need its NodeClass kinds get the reason.

        Raises:
            KarpenterError: what a plug-in refused to start for.
        """
        await self._running.start(context_for, all_needed=all_needed)

    async def stop(self) -> None:
        """Send nothing more and stop every plug-in, the last one first; never raises."""
        for calls in self._instances.values():
            calls.close()
        await self._running.stop()
        self._dispatcher.close()

    # -- NodeClass -----------------------------------------------------------------------------

    def resolves(self, node_class: NodeClass) -> bool:
        """Return whether the provider of a NodeClass implements its resolution."""
        return self._dispatcher.implements(hooks.RESOLVE_NODE_CLASS, self._owner(node_class))

    def finalizes(self, node_class: NodeClass) -> bool:
        """Return whether the provider of a NodeClass implements its finalization."""
        return self._dispatcher.implements(hooks.FINALIZE_NODE_CLASS, self._owner(node_class))

    async def resolve_node_class(self, node_class: NodeClass) -> NodeClassResolution:
        """Return the resolution of a NodeClass; empty if the provider does not implement it.

        Raises:
            FencedError: this process does not lead; nothing was called.
        """
        name = self._owner(node_class)
        hook = hooks.RESOLVE_NODE_CLASS
        answer = await self._call_for_node_class(hook, name, node_class)
        if answer is None:
            return NodeClassResolution()
        resolution = check_resolution(answer, where=hook.at(name))
        kind = type(node_class).resource.kind
        for problem in status_problems(node_class, resolution.status):
            self._problems.report(
                "plug-in sets status fields that its NodeClass does not have", name, kind, problem
            )
        return resolution

    async def hash_node_class(self, node_class: NodeClass) -> NodeClassHash | None:
        """Return the hash for static drift; None if the provider does not implement it."""
        hook, name = hooks.HASH_NODE_CLASS, self._owner(node_class)
        found = await self._call_for_node_class(hook, name, node_class)
        if found is not None:
            check_hash(found, where=hook.at(name))
        return found

    async def finalize_node_class(self, node_class: NodeClass) -> None:
        """Delete the cloud resources created for a NodeClass; raises while some are left.

        Raises:
            FencedError: this process does not lead; nothing was called.
        """
        name = self._owner(node_class)
        await self._call_for_node_class(hooks.FINALIZE_NODE_CLASS, name, node_class)

    async def list_instance_types(
        self, node_pool: NodePool, node_class: NodeClass
    ) -> tuple[InstanceType, ...]:
        """Return the catalogue for a NodePool, with adjusted prices and risks."""
        hook, name = hooks.LIST_INSTANCE_TYPES, self._owner(node_class)
        with self._dispatcher.measure(hook, name):
            types = await self._dispatcher.call(
                hook,
                name,
                hooks.InstanceTypesArguments(node_pool=node_pool, node_class=node_class),
                key=(_version(node_pool), _version(node_class)),
            )
            self._catalogues.check(types, plugin=name)
            return await adjust_catalogue(types, provider=name, dispatcher=self._dispatcher)

    # -- instances -----------------------------------------------------------------------------

    async def launch(self, request: LaunchRequest) -> LaunchOutcome:
        """Launch one instance in a batch; return errors as outcomes.

        CallPendingError as outcome: the time limit passed. The claim is not launched again while
        the call is open; its result goes to the subscriber of late launches.

        Raises:
            FencedError: this process does not lead; nothing was sent.
        """
        name = self.provider_of(request.node_claim.spec.node_class_ref)
        with self._dispatcher.measure(hooks.LAUNCH_INSTANCES, name) as measured:
            return measured.note(await self._instances[name].launch(request))

    async def fetch(self, ref: NodeClassRef, provider_id: str) -> FetchOutcome:
        """Fetch one instance; the outcome is NodeClaimNotFoundError if it is gone."""
        name = self.provider_of(ref)
        with self._dispatcher.measure(hooks.FETCH_INSTANCES, name) as measured:
            return measured.note(await self._instances[name].fetch(provider_id))

    async def terminate(self, ref: NodeClassRef, provider_id: str) -> TerminateOutcome:
        """Start the termination of one instance; return whether it is gone.

        Raises:
            FencedError: this process does not lead; nothing was sent.
        """
        return await self.terminate_leaked(self.provider_of(ref), provider_id)

    async def terminate_leaked(self, provider: str, provider_id: str) -> TerminateOutcome:
        """Start the termination of an instance without a claim, by provider name.

        Raises:
            FencedError: this process does not lead; nothing was sent.
        """
        with self._dispatcher.measure(hooks.TERMINATE_INSTANCES, provider) as measured:
            return measured.note(await self._instances[provider].terminate(provider_id))

    async def list_instances(self, provider: str) -> InstanceListing:
        """List a provider's instances; check `complete` before concluding that one is missing.

        Raises:
            CloudProviderError: they could not be listed, or a value of the listing is invalid.
        """
        hook = hooks.LIST_INSTANCES
        with self._dispatcher.measure(hook, provider):
            listing = await self._dispatcher.call(hook, provider, hooks.NoArguments())
            return check_listing(listing, where=hook.at(provider))

    async def gate_registration(
        self, node_claim: NodeClaim, node: NodeView
    ) -> RegistrationGate | RegistrationRefusal | None:
        """Return the gate or refusal of a node's registration; None lets it register."""
        hook = hooks.GATE_REGISTRATION
        gate = await self._call_for_node(hook, node_claim, node)
        if gate is not None:
            provider = self.provider_of(node_claim.spec.node_class_ref)
            check_gate(gate, where=hook.at(provider))
        return gate

    def syncs(self, ref: NodeClassRef) -> bool:
        """Return whether the provider of a NodeClass implements the sync of instances."""
        return self._dispatcher.implements(hooks.SYNC_INSTANCE, self.provider_of(ref))

    async def sync_instance(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Update an instance in place, after its claim and Node.

        Raises:
            FencedError: this process does not lead; nothing was called.
        """
        await self._call_for_node(hooks.SYNC_INSTANCE, node_claim, node)

    async def detect_drift(
        self, node_claims: Sequence[NodeClaim], node_class: NodeClass
    ) -> tuple[DriftOutcome, ...]:
        """Return why each claim's instance has drifted, in the order of the claims.

        Asks for as many at once as the provider takes. What a call fails with is the outcome of
        each of its claims; never raises for some of them.
        """
        hook, name = hooks.DETECT_DRIFT, self._owner(node_class)
        if not self._dispatcher.implements(hook, name):
            return (None,) * len(node_claims)
        width = self._dispatcher.item_width(hook, name)
        size = self._dispatcher.limits(hook, name).size if width is None else 1

        async def detect(start: int) -> Sequence[DriftOutcome]:
            claims = tuple(node_claims[start : start + size])
            try:
                return await self._detect_drift(name, claims, node_class)
            except CloudProviderError as error:
                return [error] * len(claims)

        starts = range(0, len(node_claims), size)
        parts = await gather_bounded(detect, starts, at_once=width or 1)
        return tuple(outcome for part in parts for outcome in part)

    async def _detect_drift(
        self, name: str, claims: tuple[NodeClaim, ...], node_class: NodeClass
    ) -> Sequence[DriftOutcome]:
        hook = hooks.DETECT_DRIFT
        with self._dispatcher.measure(hook, name):
            outcomes = await self._dispatcher.call(
                hook,
                name,
                hooks.DriftArguments(node_claims=claims, node_class=node_class),
                key=(_version(node_class), tuple(_version(claim) for claim in claims)),
            )
        return [checked_drift(outcome, where=hook.at(name)) for outcome in outcomes]

    # -- interruptions -------------------------------------------------------------------------

    def polls_interruptions(self, provider: str) -> bool:
        """Return whether a provider implements the polling of interruptions."""
        return self._interruptions.are_polled(provider)

    def reads_interruptions(self, provider: str) -> bool:
        """Return whether a provider reads interruptions from Nodes."""
        return self._interruptions.are_read(provider)

    async def poll_interruptions(self, provider: str) -> tuple[Interruption, ...]:
        """Fetch a provider's interruptions that are not acknowledged."""
        return await self._interruptions.poll(provider)

    async def acknowledge_interruptions(self, provider: str, ids: Sequence[str]) -> None:
        """Acknowledge interruptions.

        Raises:
            FencedError: this process does not lead; nothing was called.
        """
        await self._interruptions.acknowledge(provider, ids)

    async def read_interruptions(
        self, ref: NodeClassRef, node: NodeView
    ) -> tuple[Interruption, ...]:
        """Read interruptions from a Node; runs inline, since the hook does no I/O."""
        return await self._interruptions.read(self.provider_of(ref), node)

    def invalid_announcements(self, provider: str) -> tuple[str, ...]:
        """Return what was logged about invalid values in a provider's interruptions."""
        return self._interruptions.invalid(provider)

    # -- open to any plug-in -------------------------------------------------------------------

    async def check(self) -> Mapping[str, tuple[Finding, ...]]:
        """Return the preflight findings of each plug-in; a failed check is a finding too."""
        return {
            name: await self._check_one(name) for name in self._running.implementers(hooks.CHECK)
        }

    async def _check_one(self, name: str) -> tuple[Finding, ...]:
        try:
            return await self._dispatcher.call(hooks.CHECK, name, hooks.NoArguments())
        except KarpenterError as error:
            return (Finding(severity=Severity.ERROR, message=f"the check failed: {error}"),)

    async def vetoes(self, candidate: StateNode) -> Mapping[str, str]:
        """Return the reasons of plug-ins against the disruption of a node; empty if there are none.

        A plug-in whose veto fails keeps the node: it cannot be known what it would have said.
        """
        hook = hooks.VETO_CANDIDATE
        reasons: dict[str, str] = {}
        for name in self._running.implementers(hook):
            try:
                reason = await self._dispatcher.ask(
                    hook, name, hooks.CandidateArguments(candidate=candidate), inline=True
                )
            except KarpenterError as error:
                reasons[name] = str(error)
            else:
                if reason is not None:
                    reasons[name] = reason
        return reasons

    async def observe_decision(self, decision: Decision) -> None:
        """Pass a decision to every plug-in that implements the hook; never raises."""
        hook = hooks.OBSERVE_DECISION
        for name in self._running.implementers(hook):
            try:
                await self._dispatcher.call(
                    hook, name, hooks.DecisionArguments(decision=decision), key=decision.id
                )
            except KarpenterError as error:
                _log().warning("plug-in failed to record a decision", plugin=name, error=str(error))

    # -- inside --------------------------------------------------------------------------------

    def _owner(self, node_class: NodeClass) -> str:
        resource = type(node_class).resource
        return self._serving(resource.group, resource.kind)

    async def _call_for_node_class(
        self, hook: Hook[hooks.NodeClassArguments, Result], name: str, node_class: NodeClass
    ) -> Result | None:
        """Call a hook about a NodeClass; None if its provider does not implement it."""
        if not self._dispatcher.implements(hook, name):
            return None
        return await self._dispatcher.call(
            hook, name, hooks.NodeClassArguments(node_class=node_class), key=_version(node_class)
        )

    async def _call_for_node(
        self,
        hook: Hook[hooks.RegisteringNodeArguments, Result],
        node_claim: NodeClaim,
        node: NodeView,
    ) -> Result | None:
        """Call a hook about a claim and its Node; None if its provider does not implement it."""
        name = self.provider_of(node_claim.spec.node_class_ref)
        if not self._dispatcher.implements(hook, name):
            return None
        return await self._dispatcher.call(
            hook,
            name,
            hooks.RegisteringNodeArguments(node_claim=node_claim, node=node),
            key=(_version(node_claim), node.uid, node.resource_version),
        )


def _log() -> structlog.typing.FilteringBoundLogger:
    return structlog.get_logger("provider")


def _version(item: NodeClaim | NodeClass | NodePool) -> Hashable:
    return (item.uid, item.name, item.metadata.resource_version)
