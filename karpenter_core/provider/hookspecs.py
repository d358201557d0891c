"""Declares the hooks of a plug-in, in the order of an instance's life.

Hooks are plain synchronous functions: the core runs them in worker threads, so they may block. An
`async def` implementation is accepted and awaited on the event loop. An implementation may take any
subset of the arguments, by name; later versions may add arguments.

The core calls a hook of a provider only for NodeClass kinds that the provider owns. It calls the
hooks below "Open to any plug-in" on every plug-in; a plug-in that is no provider may also implement
`karpenter_start`, `karpenter_stop`, `karpenter_declare_tasks` and `karpenter_check`.

Any two calls may overlap, in different threads; equal calls (the same hook with the same arguments)
share one execution. A call past its limit (`BatchLimits.timeout`, two minutes by default) continues,
and its result is still used. Amounts are milli-cores, bytes and counts, prices are per hour,
durations are `timedelta`, times are `datetime` with a time zone. `docs/provider-contract.md` has a
table of how often each hook is called.

Plural hooks return one outcome for each item, in the order of the items. An error of one item is
returned as its outcome (`karpenter_core.errors`); an exception applies to all items.
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
        Conversion,
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
        RegistrationRefusal,
        SettingSpec,
        TerminateOutcome,
    )
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.state.snapshot import StateNode


# -- Set-up and end ----------------------------------------------------------------------------


@hookspec(firstresult=True)
def karpenter_provider_info() -> ProviderInfo:
    """Return the name of this provider and the NodeClass kinds that it serves.

    Called once, when plug-ins are loaded and before settings are known; it must do no I/O. A plug-in
    that implements it is a provider, and must also implement launch, fetch, list, terminate and
    list_instance_types.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_start(context: ProviderContext) -> None:
    """Read settings and files, and create clients. Called once, before all later hooks.

    `context` is valid until `karpenter_stop` returns. Raise SettingsError or BadInputError for errors
    that the user has to correct: the process ends with that message. Do not wait for the cloud: the
    core must be able to start while the cloud is down.

    Default: nothing.
    """


@hookspec(firstresult=True)
def karpenter_stop() -> None:
    """Close connections and files; no hook is called afterwards.

    Default: nothing.
    """


@hookspec(firstresult=True)
def karpenter_classify_labels() -> LabelClasses:
    """Return the labels that this provider sets or owns: well-known, restricted, aliased.

    Called once, after `karpenter_start`. A pod may require a well-known label that its NodePool does
    not mention, and instance types define every one of them (PC-021).

    Default: the labels of the core only.
    """
    raise NotImplementedError


# -- NodeClass ---------------------------------------------------------------------------------


@hookspec(firstresult=True)
def karpenter_resolve_node_class(node_class: NodeClass) -> NodeClassResolution:
    """Resolve the references of the NodeClass (networks, images …) to status and conditions.

    Called when the NodeClass changes and every few minutes. For an error that the user has to correct,
    return the condition `Ready` with status False, a reason, and a message that names field and value.
    Raise only if the cloud cannot be reached; the core then keeps the last resolution. With
    `retry_after` the core calls again earlier than usual.

    Default: no status is set, existing conditions (a default of the CRD, for example) are kept.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_hash_node_class(node_class: NodeClass) -> NodeClassHash:
    """Hash the fields whose change means that running nodes have drifted.

    The core keeps value and version in annotations of the NodeClass and of the claims launched from it
    (`<group>/<kind>-hash`, `<group>/<kind>-hash-version`); if they differ, the drift reason is
    `NodeClassDrift`. The same fields must give the same value in every process. Exclude fields that
    `karpenter_detect_drift` compares, and fields that are updated in place.

    Default: no static drift.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_finalize_node_class(node_class: NodeClass) -> None:
    """Delete the cloud resources created for this NodeClass, which is being deleted and unused.

    Idempotent. Raise while resources are left: the core retries, and keeps the NodeClass meanwhile.

    Default: nothing.
    """


@hookspec(firstresult=True)
def karpenter_list_instance_types(
    node_pool: NodePool, node_class: NodeClass
) -> Sequence[InstanceType]:
    """List every instance type that nodes of this NodeClass could have, available or not.

    `capacity` (reported by the kubelet) and `overhead` (reserved, not available to pods) are those of
    a node of this NodeClass, in milli-cores, bytes and counts. Each offering has a zone, a capacity
    type and a price; `available` is False if it has no capacity now. Names are unique. Called on
    changes and every few minutes; return cached data if the cloud is slow.
    """
    raise NotImplementedError


# -- Instances ---------------------------------------------------------------------------------


@hookspec(firstresult=True)
def karpenter_launch_instances(requests: Sequence[LaunchRequest]) -> Sequence[LaunchOutcome]:
    """Launch one instance for each request; return one outcome for each, in the same order.

    A claim is in at most one open call, but it *is* requested again after a crash or an error:
    `request.token` must be the cloud's idempotency token, or in a cloud without tokens the name or a
    tag by which the instance is found again (PC-031). `request.instance_types` is
    sorted by price and already filtered by the claim's requirements; choose among the available
    offerings that the claim's requirements allow. All requests of one call have the same NodeClass
    (unless the provider's batch key is different).

    An outcome is a `LaunchedInstance` or one of these errors:
        InsufficientCapacityError: no offering has capacity now, with the exhausted scope. The core
            makes it unavailable and schedules the pods again.
        NodeClassNotReadyError: the NodeClass became unusable meanwhile.
        ThrottledError: nothing was launched; the core retries after `retry_after` (without it, after
            a wait that doubles) plus a random share of it, without limit.
        AuthError: nothing was launched; the core retries with a growing back-off.
        LaunchFailedError: any other error that retries cannot solve; `reason` is CamelCase and
            becomes the reason of the `Launched` condition.

    Raise only if nothing was sent to the cloud for any request.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_fetch_instances(provider_ids: Sequence[str]) -> Sequence[FetchOutcome]:
    """Fetch instances by provider ID; NodeClaimNotFoundError for each that does not exist.

    An instance that is shutting down is returned with `terminating` set. If the cloud does not
    answer, return any other CloudProviderError, never NodeClaimNotFoundError.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_list_instances() -> InstanceListing:
    """List every instance of this cluster, whether or not its NodeClaim still exists.

    Garbage collection uses the listing in both directions: an instance is in the listing as soon as
    its launch has returned, with the name and UID of its claim. Set `complete` to False if any part
    could not be read, and `as_of` if the listing may be behind.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_gate_registration(
    node_claim: NodeClaim, node: NodeView
) -> RegistrationGate | RegistrationRefusal | None:
    """Delay or refuse the registration of a node; None lets it register.

    Called when a Node with the provider ID of a launched claim appears, and again after `retry_after`
    until it returns None. A kubelet chooses the provider ID of its Node: refuse a Node that cannot be
    the instance's, for example because the cloud gives another name to it. The claim then waits for
    its own Node.

    Default: None.
    """


@hookspec(firstresult=True)
def karpenter_sync_instance(node_claim: NodeClaim, node: NodeView) -> None:
    """Update tags and the name of the instance in place, after its claim and Node.

    Called after registration, when labels or annotations of the claim change, when the relevant
    fields of its NodeClass change, and once by each new process; idempotent. The core retries after
    an exception.

    Default: nothing.
    """


@hookspec(firstresult=True)
def karpenter_detect_drift(
    node_claims: Sequence[NodeClaim], node_class: NodeClass
) -> Sequence[DriftOutcome]:
    """Return for each claim why its instance no longer matches the NodeClass, or None.

    Compares the real instance (image, network, groups); `karpenter_hash_node_class` already covers
    changed fields. NodeClaimNotFoundError is permitted for an instance that is gone.

    Default: None for every claim.
    """
    raise NotImplementedError


# -- Interruptions -----------------------------------------------------------------------------


@hookspec(firstresult=True)
def karpenter_poll_interruptions() -> Sequence[Interruption]:
    """Fetch interruptions that were not acknowledged yet, from a queue or an API.

    An interruption may be returned any number of times until it is acknowledged. Called every few
    seconds, and immediately after a result that was not empty, so it may wait for messages (long
    polling) within its time limit. If a request costs money or quota, return data fetched earlier.
    Return a message that cannot be parsed with the kind `UNKNOWN`, and a message that announces no
    end of an instance with the kind `IRRELEVANT`, so that both are counted and acknowledged. Return a
    launch that failed after the cloud had accepted it with the kind `LAUNCH_FAILED` and its error.

    Default: none.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_acknowledge_interruptions(ids: Sequence[str]) -> None:
    """Delete the messages of these interruptions, which the core has handled; ignore unknown ids.

    Default: nothing.
    """


@hookspec(firstresult=True)
def karpenter_read_interruptions(node: NodeView) -> Sequence[Interruption]:
    """Read interruptions that an agent of the cloud reports on the Node, for example as conditions.

    Called for each change of a managed Node; it must do no I/O.

    Default: none.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_terminate_instances(provider_ids: Sequence[str]) -> Sequence[TerminateOutcome]:
    """Start terminating each instance, or report that it is gone.

    Return `TerminationStatus.STARTED` while the instance may still exist, and
    `TerminationStatus.GONE` if it does not exist or never did. The core repeats the call until it
    returns GONE, so it must be idempotent.
    """
    raise NotImplementedError


# -- Background --------------------------------------------------------------------------------


@hookspec(firstresult=True)
def karpenter_declare_tasks() -> Sequence[PeriodicTask]:
    """Declare periodic work of this provider: prices, quotas, orphan clean-up.

    Called once, after `karpenter_start`. `context.wake(name)` runs a task immediately.

    Default: none.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def karpenter_check() -> Sequence[Finding]:
    """Check credentials, permissions, quotas and files, for `karpenter doctor`.

    Each problem is a finding with a remedy; raise nothing.

    Default: no findings.
    """
    raise NotImplementedError


# -- Open to any plug-in -----------------------------------------------------------------------


@hookspec
def karpenter_add_settings() -> Sequence[SettingSpec]:
    """Add flags and environment variables to the process; read them from `context.settings`.

    Called once, when plug-ins are loaded; it must do no I/O. Several plug-ins may declare the same
    setting with the same flag, variable and type: each gets the value of the user, or its own default.
    """
    raise NotImplementedError


@hookspec
def karpenter_add_commands(app: typer.Typer) -> None:
    """Add commands to the `karpenter` program.

    Called for every run of the program, so import modules that a command needs inside the command.
    """


@hookspec
def karpenter_declare_conversions() -> Sequence[Conversion]:
    """Declare conversions of older kinds and of node groups of a cloud, for `karpenter convert`.

    Called by that command only, before any set-up; it must do no I/O.
    """
    raise NotImplementedError


@hookspec
def karpenter_adjust_prices(offerings: Sequence[CatalogueOffering]) -> Sequence[Price | None]:
    """Return another price for offerings (discounts, commitments), or None for no change.

    Called with the whole catalogue when it is built, never per scheduling pass. Plug-ins are called
    in the order of their names; each gets the prices that the previous one returned.
    """
    raise NotImplementedError


@hookspec
def karpenter_rate_risk(offerings: Sequence[CatalogueOffering]) -> Sequence[float | None]:
    """Return the probability (0 to 1) that an instance is reclaimed within an hour; None: unknown.

    Called with the whole catalogue when it is built. The highest value counts.
    """
    raise NotImplementedError


@hookspec
def karpenter_veto_candidate(candidate: StateNode) -> str | None:
    """Return a reason to exclude a node from voluntary disruption, or None.

    Called for each candidate of each disruption pass; it must do no I/O.
    """


@hookspec
def karpenter_observe_decision(decision: Decision) -> None:
    """Receive a decision of the core after it was made, for example to log or forward it."""
