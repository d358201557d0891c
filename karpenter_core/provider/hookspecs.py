"""Declares the hooks of a plug-in, in the order of an instance's life.

All of them are plain synchronous functions: the core runs them in worker threads, so they may block.
An `async def` implementation is accepted and awaited on the event loop. An implementation may take
any subset of the arguments, by name; arguments may be added in later versions.

Hooks of a provider reach only the provider that owns the NodeClass kind in question, so none has to
ask "is this mine?". Those below "Open to any plug-in" reach every plug-in, provider or not; a plug-in
that is no provider may also have `karpenter_start`, `karpenter_stop`, `karpenter_declare_tasks` and
`karpenter_check`.

Any two calls may overlap, in different threads; equal calls (the same hook with the same arguments)
share one. A call past its limit (`BatchLimits.timeout`, two minutes by default) goes on, and what it
returns is still used. Amounts are in milli-cores, bytes and pieces, prices per hour, durations
`timedelta`, instants `datetime` with a time zone. How often each hook is called is a table in
`docs/provider-contract.md`.

Plural hooks answer with one outcome for each item, in the order of the items; an error for one item
is returned as a value (`karpenter_core.errors`), never raised. What is raised counts for all items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.provider.markers import hookspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.prices import Price
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import (
        CatalogueOffering,
        Decision,
        DriftOutcome,
        FetchOutcome,
        Finding,
        InstanceListing,
        Interruption,
        LabelClasses,
        LaunchOutcome,
        LaunchRequest,
        NodeClassHash,
        NodeClassResolution,
        PeriodicTask,
        ProviderContext,
        ProviderInfo,
        RegistrationGate,
        SettingSpec,
        TerminateOutcome,
    )
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.state.snapshot import StateNode


# -- Set-up and end ----------------------------------------------------------------------------


@hookspec(firstresult=True)
def karpenter_provider_info() -> ProviderInfo:
    """Say who this provider is and which NodeClass kinds it serves.

    Called once, when plug-ins are loaded and before any setting is known; it must do no I/O. A
    plug-in that implements it is a provider and must implement launch, fetch, list, terminate and
    list_instance_types as well.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_start(context: ProviderContext) -> None:
    """Get ready: read settings and files, make clients. Called once, before all later hooks.

    `context` stays valid until `karpenter_stop` returns. Raise SettingsError or BadInputError for
    what the user must mend: the process ends with that message. Never wait for the cloud here; a
    cloud that is down now must not keep the core from starting.

    Default: nothing.
    """


@hookspec(firstresult=True)
def karpenter_stop() -> None:
    """Let go of connections and files; no hook is called afterwards.

    Default: nothing.
    """


@hookspec(firstresult=True)
def karpenter_classify_labels() -> LabelClasses:
    """Name the labels this provider sets or owns: well-known, restricted, aliased.

    Called once, after `karpenter_start`. A pod may ask for a well-known label that its NodePool
    does not mention, and instance types define every one of them (PC-021).

    Default: no labels beyond the core's.
    """
    raise NotImplementedError


# -- NodeClass ---------------------------------------------------------------------------------


@hookspec(firstresult=True)
def karpenter_resolve_node_class(node_class: NodeClass) -> NodeClassResolution:
    """Find what the NodeClass refers to (networks, images …): its status and conditions.

    Called when the NodeClass changes and every few minutes. Return the condition `Ready` with
    status False, a reason and a message for what the user must mend, naming field and value; raise
    only when the cloud could not be asked, and the last resolution stays. `retry_after` asks for
    another call sooner than usual, where something is awaited.

    Default: nothing is found and no condition is set; the conditions that are there (a default of
    the CRD, say) stand.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_hash_node_class(node_class: NodeClass) -> NodeClassHash:
    """Digest the fields whose change means that running nodes have drifted.

    The core keeps value and version in annotations of the NodeClass and of the claims launched from it
    (`<group>/<kind>-hash`, `<group>/<kind>-hash-version`); where they differ, the reason of the drift is
    `NodeClassDrift`. The same fields give the same value in every process. Leave out fields that
    `karpenter_detect_drift` compares itself and those that are updated in place.

    Default: no static drift.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_finalize_node_class(node_class: NodeClass) -> None:
    """Remove what was made in the cloud for this NodeClass; it is being deleted, nothing uses it.

    Idempotent. Raise when something is left: it is tried again, and the NodeClass stays meanwhile.

    Default: there is nothing to remove.
    """


@hookspec(firstresult=True)
def karpenter_list_instance_types(
    node_pool: NodePool, node_class: NodeClass
) -> Sequence[InstanceType]:
    """List every instance type that nodes of this NodeClass could have, available or not.

    `capacity` (what the kubelet will report) and `overhead` (what it keeps from pods) are those of a
    node of this NodeClass, in milli-cores, bytes and pieces. Each offering has a zone, a
    capacity type and a price; `available` is False for what cannot be had now. Names are unique.
    Called on changes and every few minutes; answer from a cache where the cloud is slow.
    """
    raise NotImplementedError


# -- Instances ---------------------------------------------------------------------------------


@hookspec(firstresult=True)
def karpenter_launch_instances(requests: Sequence[LaunchRequest]) -> Sequence[LaunchOutcome]:
    """Launch one instance for each request and say, in the same order, what came of it.

    A claim is in at most one open call, but it *is* handed over again after a crash or an error:
    `request.token` must be the cloud's idempotency token (PC-031). `request.instance_types` is
    sorted by price and already filtered by the claim's requirements; choose among the available
    offerings that the claim's requirements allow. All requests of one call have the same NodeClass
    (unless the provider's batch key says otherwise).

    An outcome is a `LaunchedInstance` or one of these errors, per request:
        InsufficientCapacityError: none of the offerings can be had now, with the scope that is
            exhausted. The core masks it and schedules the pods again.
        NodeClassNotReadyError: the NodeClass stopped being usable meanwhile.
        ThrottledError: nothing was launched; tried again after `retry_after` (a wait that
            doubles where it is None) and a random share of it, as often as it takes.
        AuthError: nothing was launched; tried again later, with a growing back-off.
        LaunchFailedError: anything else that will not heal by waiting; `reason` is CamelCase and
            ends up in the `Launched` condition.

    Raise only when nothing was sent to the cloud for any request.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_fetch_instances(provider_ids: Sequence[str]) -> Sequence[FetchOutcome]:
    """Look up instances by provider id; NodeClaimNotFoundError for each that is gone.

    An instance that is shutting down is returned with `terminating` set. An answer that could not
    be had is any other CloudProviderError, never NodeClaimNotFoundError.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_list_instances() -> InstanceListing:
    """List every instance of this cluster, whether or not its NodeClaim still exists.

    The base of garbage collection in both directions: an instance launched for a claim is in the
    listing as soon as the launch was answered, with the claim's name and UID. Set `complete` to
    False when any part could not be read.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_gate_registration(node_claim: NodeClaim, node: NodeView) -> RegistrationGate | None:
    """Hold a node back from registering until something else has happened; None lets it pass.

    Called when the Node of a launched claim appears, again after `retry_after`, and stops at the
    first None.

    Default: None.
    """


@hookspec(firstresult=True)
def karpenter_sync_instance(node_claim: NodeClaim, node: NodeView) -> None:
    """Bring the instance in line with its claim and Node in place (tags, names).

    Called after registration, when labels or annotations of the claim change, when what its NodeClass
    asks for changes, and once by each new process; idempotent. What it raises is tried again.

    Default: nothing.
    """


@hookspec(firstresult=True)
def karpenter_detect_drift(
    node_claims: Sequence[NodeClaim], node_class: NodeClass
) -> Sequence[DriftOutcome]:
    """Say for each claim why its instance is no longer what the NodeClass asks for, else None.

    Compares the real instance (image, network, groups); changed fields are already covered by
    `karpenter_hash_node_class`. NodeClaimNotFoundError for an instance that is gone is fine.

    Default: None for every claim.
    """
    raise NotImplementedError


# -- Interruptions -----------------------------------------------------------------------------


@hookspec(firstresult=True)
def karpenter_poll_interruptions() -> Sequence[Interruption]:
    """Fetch announcements that were not acknowledged yet (a queue, an API).

    The same announcement may come any number of times until it is acknowledged. It is called every
    few seconds, and at once again after it has brought something, so it may wait for messages (long
    polling) but not for longer than its time limit; what costs money or quota it answers from what
    it fetched before. A message that cannot be read is one too, of kind `UNKNOWN`, and so is one that
    announces the end of no instance (`IRRELEVANT`), so that they are counted and acknowledged.

    Default: none.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_acknowledge_interruptions(ids: Sequence[str]) -> None:
    """Forget these announcements: the core has handled them. Unknown ids are fine.

    Default: nothing.
    """


@hookspec(firstresult=True)
def karpenter_read_interruptions(node: NodeView) -> Sequence[Interruption]:
    """Read announcements from a Node itself, where an agent of the cloud puts them (conditions).

    Called for each change of a managed Node; it must do no I/O.

    Default: none.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_terminate_instances(provider_ids: Sequence[str]) -> Sequence[TerminateOutcome]:
    """Start terminating each instance, or say that it is gone.

    `TerminationStatus.STARTED` when it was asked to go and may still be there; `Termination.GONE` once it
    is no more, and for ids that never were. The core asks again until it hears GONE, so the call
    must be idempotent.
    """
    raise NotImplementedError


# -- Background --------------------------------------------------------------------------------


@hookspec(firstresult=True)
def karpenter_declare_tasks() -> Sequence[PeriodicTask]:
    """Name periodic work of this provider: prices, quotas, orphan clean-up.

    Called once, after `karpenter_start`. `context.wake(name)` runs a task at once.

    Default: none.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_check() -> Sequence[Finding]:
    """Check what can be checked before it is needed: credentials, permissions, quotas, files.

    For `karpenter doctor`. Each problem is a finding with a remedy; raise nothing.

    Default: no findings.
    """
    raise NotImplementedError


# -- Open to any plug-in -----------------------------------------------------------------------


@hookspec
def karpenter_add_settings() -> Sequence[SettingSpec]:
    """Add flags and environment variables to the process; read them from `context.settings`.

    Called once, when plug-ins are loaded; it must do no I/O. Plug-ins may share a setting, under
    the same flag and variable and of the same type: what the user gives reaches each of them, and
    where nothing is given each has its own default.
    """
    raise NotImplementedError


@hookspec
def karpenter_add_commands(app: typer.Typer) -> None:
    """Add commands to the `karpenter` program.

    Called for every run of the program, so import what a command needs inside the command.
    """


@hookspec
def karpenter_adjust_prices(offerings: Sequence[CatalogueOffering]) -> Sequence[Price | None]:
    """Give offerings another price (discounts, commitments); None leaves one as it is.

    Called when a catalogue is built, with the whole of it, never per scheduling pass. Plug-ins are
    asked in the order of their names, each seeing the prices the one before it set.
    """
    raise NotImplementedError


@hookspec
def karpenter_rate_risk(offerings: Sequence[CatalogueOffering]) -> Sequence[float | None]:
    """Rate how likely (0 to 1) the cloud takes an instance away within an hour; None: unknown.

    Called when a catalogue is built, with the whole of it. The highest rating counts.
    """
    raise NotImplementedError


@hookspec
def karpenter_veto_candidate(candidate: StateNode) -> str | None:
    """Keep a node from being disrupted voluntarily: the reason, or None.

    Called for each candidate of each disruption pass; it must do no I/O.
    """


@hookspec
def karpenter_observe_decision(decision: Decision) -> None:
    """Take note of a decision the core has made, to log or forward it. Called after the fact."""
