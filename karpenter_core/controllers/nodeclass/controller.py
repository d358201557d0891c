"""Resolves NodeClasses into their status and cleans up after deleted ones.

A NodeClass whose provider neither resolves, hashes nor finalises it is never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import msgspec
import structlog

from karpenter_core.api.conditions import READY, UNKNOWN, ConditionRules, find_condition
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.notices import Notice
from karpenter_core.controllers.nodeclass.hashes import NodeClassHashes
from karpenter_core.controllers.reconciling.reconciler import (
    DONE,
    ExponentialBackoff,
    Reconciler,
    ReconcileResult,
)
from karpenter_core.controllers.reconciling.refusal_reports import (
    despite_refusal,
    reporting_refusals,
)
from karpenter_core.errors import CloudProviderError, InvalidError, NotFoundError
from karpenter_core.kube.resources import custom_kind
from karpenter_core.lifecycle.nodeclass.hashing import is_hash_current, with_migrated_hash
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.conditions import Condition, ConditionStatus
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.controllers.live_reader import LiveReader
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.provider.contract import NodeClassResolution
    from karpenter_core.provider.host.facade import Providers

__all__ = [
    "NodeClassController",
    "resolved_status",
    "termination_finalizer",
    "unresolved_conditions",
]

RESOLVE_PERIOD: Final = timedelta(minutes=5)
MIN_PERIOD: Final = timedelta(seconds=1)
RESOLUTION_FAILED: Final = "ResolutionFailed"
"""Reason of `Ready` while the cloud has not answered about a new NodeClass, or its status cannot be stored."""
MAX_STATUS_BYTES: Final = 1024 * 1024
"""etcd stores objects of 1.5 MiB, the spec and a record of all fields included."""
IN_USE_RETRY_SECONDS: Final = 10.0
MAX_NAMES: Final = 5
"""The most NodeClaims that an Event names when they keep a NodeClass (upstream)."""

NodeClassKey: TypeAlias = "tuple[str, str, str]"


@final
class NodeClassController:
    """The controller `nodeclass`."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        providers: Providers,
        runtime: ControllerRuntime,
        claims: LiveReader,
    ) -> None:
        self._writer = writer
        self._claims = claims
        self._cluster_state = writer.cluster_state
        self._providers = providers
        self._runtime = runtime
        self._resolved: dict[NodeClassKey, tuple[str, int, float]] = {}
        self._hashes = NodeClassHashes(providers)
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[NodeClassKey] = Reconciler(
            self.name,
            reporting_refusals(
                self.reconcile,
                objects=lambda: self._cluster_state.snapshot().node_classes,
                publish=writer.publish,
            ),
            runtime=runtime,
            backoff=ExponentialBackoff(base_seconds=1.0),
            log_field="NodeClass",
        )
        writer.cluster_state.subscribe(ObjectKind.NODE_CLASS, self._on_class)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodeclass"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        for key in self._cluster_state.snapshot().node_classes:
            self._reconciler.wake(key)
        await self._reconciler.run()

    async def reconcile(self, key: NodeClassKey) -> ReconcileResult:
        """Update one NodeClass' status, or finalise it if it is deleted."""
        node_class = self._cluster_state.snapshot().node_classes.get(key)
        if node_class is None:
            self._resolved.pop(key, None)
            return DONE
        if node_class.is_deleting:
            return await self._finalize(key, node_class)
        if self._providers.finalizes(node_class):
            node_class = await self._add_finalizer(node_class)
        return await despite_refusal(
            self._write_hash(key, node_class),
            lambda: self._resolve(
                key, self._cluster_state.snapshot().node_classes.get(key, node_class)
            ),
        )

    async def _resolve(self, key: NodeClassKey, node_class: NodeClass) -> ReconcileResult:
        """Resolve a NodeClass and write its status, unless the last resolution is still valid."""
        if not self._providers.resolves(node_class):
            return DONE
        wait = self._resolved_for(key, node_class)
        if wait > 0:
            return ReconcileResult(requeue_after=wait)
        try:
            resolution = await self._providers.resolve_node_class(node_class)
        except CloudProviderError as error:
            await self._write_failure(node_class, error)
            raise
        await self._write_status(node_class, resolution)
        valid_seconds = _period(resolution).total_seconds()
        self._resolved[key] = (
            node_class.uid,
            node_class.metadata.generation,
            self._runtime.clock.monotonic() + valid_seconds,
        )
        return ReconcileResult(requeue_after=valid_seconds)

    def _resolved_for(self, key: NodeClassKey, node_class: NodeClass) -> float:
        """Return the seconds for which the last resolution of this generation is still valid."""
        resolved = self._resolved.get(key)
        if resolved is None or resolved[:2] != (node_class.uid, node_class.metadata.generation):
            return 0.0
        return resolved[2] - self._runtime.clock.monotonic()

    async def _add_finalizer(self, node_class: NodeClass) -> NodeClass:
        """Add the finalizer before anything is created for the NodeClass."""
        finalizer = termination_finalizer(node_class)
        if finalizer in node_class.metadata.finalizers:
            return node_class
        finalizers = [*node_class.metadata.finalizers, finalizer]
        return await self._patch(node_class, {"metadata": {"finalizers": finalizers}})

    async def _write_hash(self, key: NodeClassKey, node_class: NodeClass) -> None:
        """Write the hash, after the claims that have a hash of another version."""
        annotations = await self._hashes.annotations_of(node_class)
        if not annotations or annotations.items() <= node_class.metadata.annotations.items():
            return
        if not is_hash_current(node_class, annotations):
            for claim in _claims_using(self._shown_claims(), key):
                if not claim.is_deleting:
                    migrated = with_migrated_hash(claim, node_class, annotations)
                    await self._writer.write_claim(claim, migrated)
        await self._patch(node_class, {"metadata": {"annotations": dict(annotations)}})

    async def _finalize(self, key: NodeClassKey, node_class: NodeClass) -> ReconcileResult:
        finalizer = termination_finalizer(node_class)
        if finalizer not in node_class.metadata.finalizers:
            return DONE
        shown = _claims_using(self._shown_claims(), key)
        users = [claim.name for claim in shown]
        if not users:  # as far as the watch tells, which may be behind
            users = await self._live_claims_using(key)
        if users:
            self._log.info(
                "nodeclass is deleted after its nodeclaims",
                nodeclaims=len(users),
                name=node_class.name,
            )
            self._writer.publish(_waiting_for(node_class, users))
            return ReconcileResult(requeue_after=IN_USE_RETRY_SECONDS)
        await self._providers.finalize_node_class(node_class)
        kept = [item for item in node_class.metadata.finalizers if item != finalizer]
        with suppress(NotFoundError):
            await self._patch(node_class, {"metadata": {"finalizers": kept or None}})
            self._log.info("finalized nodeclass", name=node_class.name)
        return DONE

    def _shown_claims(self) -> Iterable[NodeClaim]:
        return self._cluster_state.snapshot().node_claims.values()

    async def _live_claims_using(self, key: NodeClassKey) -> list[str]:
        """Return the names of the claims of a NodeClass that the API server has.

        One that cannot be read may be among them, and its node may run on what the provider would delete.
        """
        claims, unreadable = await self._claims.read_all()
        users = _claims_using((each for each in claims if isinstance(each, NodeClaim)), key)
        return [*(claim.name for claim in users), *(each.name for each in unreadable)]

    async def _write_status(self, node_class: NodeClass, resolution: NodeClassResolution) -> None:
        before = node_class.status.model_dump(mode="json", exclude_none=True)
        after = resolved_status(node_class, resolution, now=self._runtime.clock.now())
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        if not changed:
            return
        if problem := _size_problem(after):
            await self._write_refusal(node_class, problem)
            return
        try:
            await self._patch(node_class, {"status": changed}, subresource="status")
        except InvalidError as error:
            await self._write_refusal(node_class, f"the status is refused: {error}")

    async def _write_refusal(self, node_class: NodeClass, problem: str) -> None:
        """Write that the status cannot be stored; without it nothing is launched for the NodeClass."""
        error = CloudProviderError(problem)
        self._log.error(
            "the status of a nodeclass is not stored", name=node_class.name, error=problem
        )
        await self._write_unresolved(node_class, error)

    async def _write_failure(self, node_class: NodeClass, error: CloudProviderError) -> None:
        """Write why a new NodeClass has no status; what was found before an outage stays."""
        ready = find_condition(node_class.status.conditions, READY)
        if ready is not None and (ready.reason != RESOLUTION_FAILED or ready.message == str(error)):
            return
        await self._write_unresolved(node_class, error)

    async def _write_unresolved(self, node_class: NodeClass, error: CloudProviderError) -> None:
        conditions = unresolved_conditions(node_class, error, now=self._runtime.clock.now())
        if conditions != _manifests(node_class.status.conditions):
            body: dict[str, object] = {"status": {"conditions": conditions}}
            await self._patch(node_class, body, subresource="status")

    async def _patch(
        self, node_class: NodeClass, body: dict[str, object], *, subresource: str = ""
    ) -> NodeClass:
        stored = await self._writer.kube_writer.patch(
            custom_kind(type(node_class).resource),
            node_class.name,
            body,
            subresource=subresource,
            resource_version=node_class.metadata.resource_version,
        )
        return cast("NodeClass", stored)

    def _on_class(self, name: str) -> None:
        for key in self._cluster_state.snapshot().node_classes:
            if key[2] == name:
                self._reconciler.wake(key)


def _period(resolution: NodeClassResolution) -> timedelta:
    """Return how long a resolution is valid; a provider may shorten the default."""
    if resolution.retry_after is None:
        return RESOLVE_PERIOD
    return min(max(resolution.retry_after, MIN_PERIOD), RESOLVE_PERIOD)


def _claims_using(claims: Iterable[NodeClaim], key: NodeClassKey) -> list[NodeClaim]:
    return [
        claim
        for claim in claims
        if (ref := claim.spec.node_class_ref) and (ref.group, ref.kind, ref.name) == key
    ]


def _waiting_for(node_class: NodeClass, users: list[str]) -> Notice:
    names = sorted(users)
    listed = ", ".join(names[:MAX_NAMES])
    more = len(names) - MAX_NAMES
    return Notice(
        regarding=node_class.ref,
        type="Normal",
        reason="WaitingOnNodeClaimTermination",
        message=f"Waiting on NodeClaim termination for {listed}"
        + (f" and {more} other(s)" if more > 0 else ""),
        dedupe=(node_class.uid,),
    )


def termination_finalizer(node_class: NodeClass) -> str:
    """Return the finalizer that holds a NodeClass until its provider has cleaned up."""
    return f"{type(node_class).resource.group}/termination"


def resolved_status(
    node_class: NodeClass, resolution: NodeClassResolution, *, now: datetime
) -> dict[str, object]:
    """Return the status fields that a resolution sets, conditions among them."""
    given: tuple[Condition, ...] = resolution.conditions
    rules = ConditionRules(
        dependents=tuple(item.type for item in given if item.type != READY),
    )
    conditions = node_class.status.conditions
    for item in sorted(given, key=lambda condition: condition.type == READY):
        conditions = rules.set(
            conditions,
            type=item.type,
            status=cast("ConditionStatus", item.status),
            reason=item.reason or item.type,
            message=item.message,
            now=now,
            generation=node_class.metadata.generation,
        )
    status = dict(resolution.status)
    ready = find_condition(conditions, READY)
    if given:
        status["conditions"] = _manifests(conditions)
    elif ready is not None and ready.reason == RESOLUTION_FAILED:
        status["conditions"] = _manifests(item for item in conditions if item is not ready)
    return status


def unresolved_conditions(
    node_class: NodeClass, error: CloudProviderError, *, now: datetime
) -> list[dict[str, object]]:
    """Return the conditions of a NodeClass that has never been resolved: Ready is unknown."""
    return _manifests(
        ConditionRules().set(
            node_class.status.conditions,
            type=READY,
            status=UNKNOWN,
            reason=RESOLUTION_FAILED,
            message=str(error),
            now=now,
            generation=node_class.metadata.generation,
        )
    )


def _size_problem(status: Mapping[str, object]) -> str:
    """Return why a status is too large to be stored, with its largest field; empty if it is not."""
    sizes = {name: len(msgspec.json.encode(value)) for name, value in status.items()}
    size = sum(sizes.values())
    if size <= MAX_STATUS_BYTES:
        return ""
    name = max(sizes, key=sizes.__getitem__)
    value = status[name]
    is_list = isinstance(value, Sequence)
    entries = f" in {len(cast('Sequence[object]', value))} entries" if is_list else ""
    return (
        f"the status would have {size} bytes, {sizes[name]} of them in {name}{entries}, and may have "
        f"{MAX_STATUS_BYTES}; make the terms of the spec that select {name} narrower"
    )


def _manifests(conditions: Iterable[Condition]) -> list[dict[str, object]]:
    return [item.model_dump(mode="json", exclude_none=True) for item in conditions]
