"""The hooks of the kwok provider.

Nodes are real API objects that kwok (or the embedded cluster's kubelets) bring to Ready; instances
live in a store of their own, so that the core is tested as by a real cloud: launches are idempotent
by token, replies get lost, capacity runs out, spot instances are reclaimed.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, TypeVar, final

from karpenter_core.errors import CloudProviderError, NodeClassNotReadyError
from karpenter_core.provider.contract import (
    CONTRACT_VERSION,
    Finding,
    LabelClasses,
    PeriodicTask,
    ProviderInfo,
    Severity,
)
from karpenter_core.provider.kit.node_names import refusal_of_name
from karpenter_core.provider.kit.plugin import ProviderPlugin, repair_policies
from karpenter_core.provider.markers import hookimpl
from karpenter_provider_kwok.api import GROUP, KWOKNodeClass
from karpenter_provider_kwok.catalogue import extra_labels, load_catalogue, read_catalogue
from karpenter_provider_kwok.catalogue_default import default_catalogue_text
from karpenter_provider_kwok.cloud import KwokCloud
from karpenter_provider_kwok.faults import CloudOperation
from karpenter_provider_kwok.instance_store import InstanceStore
from karpenter_provider_kwok.labels import INSTANCE_LABELS, PROVIDER_ID_PREFIX
from karpenter_provider_kwok.registrar import TASK_NAME, TASK_PERIOD, NodeRegistrar
from karpenter_provider_kwok.settings import SETTINGS, KwokSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import typer

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import (
        FetchOutcome,
        InstanceListing,
        Interruption,
        LaunchOutcome,
        LaunchRequest,
        ProviderContext,
        RegistrationRefusal,
        TerminateOutcome,
    )
    from karpenter_provider_kwok.active_faults import CallFault
    from karpenter_provider_kwok.faults import KwokFault

__all__ = ["KwokProvider"]

T = TypeVar("T")

_UNHEALTHY_FOR: Final = timedelta(minutes=10)  # upstream's kwok provider


@final
class KwokProvider(ProviderPlugin["_StartedProvider"]):
    """The plug-in; one object for each process."""

    info = ProviderInfo(
        name="kwok",
        contract_version=CONTRACT_VERSION,
        node_classes=(KWOKNodeClass,),
        repair_policies=repair_policies(
            ("Ready", status, _UNHEALTHY_FOR) for status in ("False", "Unknown")
        ),
        creates_nodes=True,
    )
    title = "kwok"
    settings = SETTINGS

    def start_provider(self, context: ProviderContext) -> _StartedProvider:
        """Read catalogue and faults, open the store."""
        return _StartedProvider(context)

    @property
    def cloud(self) -> KwokCloud:
        """The simulated cloud, for tests and demonstrations; there is one while started."""
        return self.running.cloud

    @property
    def store(self) -> InstanceStore:
        """The store of the simulated cloud's instances."""
        return self.running.store

    @hookimpl
    def karpenter_add_commands(self, app: typer.Typer) -> None:
        """Add `karpenter kwok …`."""
        import typer

        from karpenter_provider_kwok.commands import add_commands

        kwok = typer.Typer(
            no_args_is_help=True,
            help="Show instances and catalogue of the simulated cloud of the provider kwok.",
        )
        add_commands(kwok)
        app.add_typer(kwok, name="kwok")

    @hookimpl
    async def karpenter_stop(self) -> None:
        """Close the store; on the event loop, where the registrar's alarm lives."""
        self.stop_provider()

    @hookimpl
    def karpenter_classify_labels(self) -> LabelClasses:
        """Name the instance labels, and what else the catalogue's offerings set."""
        return LabelClasses(
            well_known=INSTANCE_LABELS | extra_labels(self.running.catalogue),
            restricted_domains=frozenset({GROUP}),
        )

    @hookimpl
    def karpenter_list_instance_types(self) -> Sequence[InstanceType]:
        """Sell the same to every NodePool and NodeClass, at the prices of now."""
        running = self.running
        return _priced(running.catalogue, running.cloud.disturbances.prices())

    @hookimpl
    def karpenter_launch_instances(
        self, requests: Sequence[LaunchRequest]
    ) -> Sequence[LaunchOutcome] | Awaitable[Sequence[LaunchOutcome]]:
        """Launch the cheapest offering in stock for each; their Nodes follow."""
        running = self.running

        def launch() -> list[LaunchOutcome]:
            ready = [request for request in requests if not _unready(request)]
            launched = iter(running.cloud.launch(ready))
            outcomes = [_unready(request) or next(launched) for request in requests]
            running.wake()
            return outcomes

        latency = running.settings.launch_latency
        return running.disturbed(CloudOperation.LAUNCH, launch, latency=latency)

    @hookimpl
    def karpenter_gate_registration(
        self, node_claim: NodeClaim, node: NodeView
    ) -> RegistrationRefusal | None:
        """Refuse a Node that is not named like the instance: another one has written its id."""
        name = node_claim.status.provider_id.removeprefix(PROVIDER_ID_PREFIX)
        return refusal_of_name(node, name)

    @hookimpl
    def karpenter_fetch_instances(
        self, provider_ids: Sequence[str]
    ) -> Sequence[FetchOutcome] | Awaitable[Sequence[FetchOutcome]]:
        """Fetch instances."""
        running = self.running

        def fetch() -> list[FetchOutcome]:
            if not running.cloud.knows_all(provider_ids):
                running.adopt()
            return running.cloud.fetch(provider_ids)

        return running.disturbed(CloudOperation.FETCH, fetch)

    @hookimpl
    def karpenter_list_instances(self) -> InstanceListing | Awaitable[InstanceListing]:
        """List instances, those found as Nodes only among them."""
        running = self.running

        def list_all() -> InstanceListing:
            running.adopt()
            return running.cloud.list()

        return running.disturbed(CloudOperation.LIST, list_all)

    @hookimpl
    def karpenter_poll_interruptions(self) -> Sequence[Interruption]:
        """Announce spot reclaims that were asked for."""
        self.running.cloud.disturbances.refresh()
        announced = self.running.cloud.poll_interruptions()
        if announced:
            self.running.wake()
        return announced

    @hookimpl
    def karpenter_acknowledge_interruptions(self, ids: Sequence[str]) -> None:
        """Forget announcements."""
        self.running.cloud.acknowledge_interruptions(ids)

    @hookimpl
    def karpenter_terminate_instances(
        self, provider_ids: Sequence[str]
    ) -> Sequence[TerminateOutcome] | Awaitable[Sequence[TerminateOutcome]]:
        """Let instances go; their Nodes, where there still are any, follow."""
        running = self.running

        def terminate() -> list[TerminateOutcome]:
            if not running.cloud.knows_all(provider_ids):
                running.adopt()
            outcomes = running.cloud.terminate(provider_ids)
            running.wake()
            return outcomes

        return running.disturbed(CloudOperation.TERMINATE, terminate)

    @hookimpl
    def karpenter_declare_tasks(self) -> Sequence[PeriodicTask]:
        """Create and delete Nodes as instances come and go."""
        return (PeriodicTask(name=TASK_NAME, period=TASK_PERIOD, run=self.running.registrar.run),)

    @hookimpl
    def karpenter_check(self) -> Sequence[Finding]:
        """Say what is sold and whether instances outlive the process."""
        running = self.running
        sold = f"{len(running.catalogue)} instance types"
        findings = [Finding(severity=Severity.OK, message=f"the simulated cloud has {sold}")]
        if not running.settings.keeps_state:
            findings.append(
                Finding(
                    severity=Severity.WARNING,
                    message="the simulated cloud loses its instances when the process ends",
                    remedy="set --kwok-state-file to a file",
                )
            )
        return findings


@final
class _StartedProvider:
    """The parts of a started provider."""

    def __init__(self, context: ProviderContext) -> None:
        self.settings: Final = KwokSettings.from_context(context)
        self.catalogue: Final = _catalogue(self.settings)
        self._context: Final = context
        self.store: Final = InstanceStore(self.settings.state_file)
        try:
            self.cloud: Final = KwokCloud(
                self.store,
                now=context.clock.now,
                registration_delay=self._registration_delay,
                termination_delay=self.settings.termination_delay,
                extra_labels=extra_labels(self.catalogue),
            )
            if self.settings.faults_file is not None:
                self.cloud.disturbances.read_file(self.settings.faults_file)
        except BaseException:
            self.store.close()
            raise
        self.registrar: Final = NodeRegistrar(self.store, self.cloud.disturbances, context)

    def wake(self) -> None:
        """Have the Nodes looked after at once."""
        self._context.wake(TASK_NAME)

    def adopt(self) -> None:
        """Take in Nodes that the store does not know."""
        self.cloud.adopt(tuple(self._context.read_nodes().values()))

    def disturbed(
        self, operation: CloudOperation, act: Callable[[], T], *, latency: timedelta = timedelta()
    ) -> T | Awaitable[T]:
        """Do something as a cloud does it on a bad day; at once when nothing is wrong."""
        disturbance = self.cloud.disturbances.disturb(operation)
        if latency or disturbance.before or disturbance.after:
            return self._slowly(disturbance, act, disturbance.before + latency)
        return _reply(disturbance, act())

    async def _slowly(self, disturbance: CallFault, act: Callable[[], T], before: timedelta) -> T:
        await self._context.clock.sleep(before.total_seconds())
        result = act()
        await self._context.clock.sleep(disturbance.after.total_seconds())
        return _reply(disturbance, result)

    def close(self) -> None:
        """Let go of everything."""
        self.registrar.stop()
        self.store.close()

    def _registration_delay(self, request: LaunchRequest) -> timedelta:
        node_class = request.node_class
        annotated_delay = (
            node_class.spec.node_registration_delay
            if isinstance(node_class, KWOKNodeClass)
            else None
        )
        return (
            self.settings.registration_delay
            if annotated_delay is None
            else annotated_delay.timedelta
        )


def _catalogue(settings: KwokSettings) -> tuple[InstanceType, ...]:
    if settings.instance_types_file is not None:
        return read_catalogue(settings.instance_types_file)
    return _shipped_catalogue()


@cache
def _shipped_catalogue() -> tuple[InstanceType, ...]:
    """Read the catalogue that comes along, once for all the clouds of a process."""
    return load_catalogue(default_catalogue_text(), file="(shipped)")


@lru_cache(maxsize=16)
def _priced(
    catalogue: tuple[InstanceType, ...], faults: tuple[KwokFault, ...]
) -> tuple[InstanceType, ...]:
    """Return a catalogue as faults price it; the same object while they are the same."""
    if not faults:
        return catalogue
    return tuple(
        replace(it, offerings=tuple(_offering(it, offering, faults) for offering in it.offerings))
        for it in catalogue
    )


def _offering(it: InstanceType, offering: Offering, faults: tuple[KwokFault, ...]) -> Offering:
    amount = offering.price.amount
    for fault in faults:
        if fault.matches_offering(it.name, offering.zone, offering.capacity_type):
            amount = amount * fault.percent / 100
    if amount == offering.price.amount:
        return offering
    return replace(offering, price=replace(offering.price, amount=amount))


def _unready(request: LaunchRequest) -> NodeClassNotReadyError | None:
    """Refuse a launch for a NodeClass that says it is not ready."""
    for condition in request.node_class.status.conditions:
        if condition.type == "Ready" and condition.status == "False":
            name = request.node_class.name
            return NodeClassNotReadyError(f"KWOKNodeClass {name} is not ready: {condition.message}")
    return None


def _reply(disturbance: CallFault, result: T) -> T:
    if disturbance.reply_lost:
        raise CloudProviderError("connection reset while waiting for the reply")
    return result
