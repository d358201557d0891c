"""Sends every write to Kubernetes: fences, counts and folds it into the state.

All writes of this process to Kubernetes go through here, so that they are counted, refused by the
fence after the lease is lost, failed on purpose by tests, and folded into the state at once: the next
decision sees them without waiting for the watch.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

import msgspec

from karpenter_core.errors import ApiError, NotFoundError, TooManyRequestsError
from karpenter_core.kube.pacing import time_limit
from karpenter_core.kube.refusals import is_in_doubt
from karpenter_core.kube.repeated_writes import RepeatedWrites
from karpenter_core.kube.resources import NODES, PODS, ResourceKind
from karpenter_core.kube.transport import NO_ANSWER, UNREACHABLE
from karpenter_core.state.events import ObjectWritten

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import ClusterApis, KubeApi
    from karpenter_core.kube.fence import WriteFence
    from karpenter_core.kube.metrics import KubeMetrics
    from karpenter_core.kube.wire.codecs import Codecs
    from karpenter_core.state.events import StateObject

__all__ = ["KubeWriter", "ProviderNodeWriter", "WriteAttempt", "WriteFaults", "WriteVerb"]

WriteVerb: TypeAlias = Literal["create", "patch", "delete", "evict"]
T = TypeVar("T")

_ATTEMPTS: Final = 5
_BASE_DELAY_SECONDS: Final = 0.2
_MAX_DELAY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAttempt:
    """One attempt at a write, as fault injection sees it: before it is sent, and after."""

    verb: WriteVerb
    kind: ResourceKind
    name: str
    namespace: str
    subresource: str = ""
    stage: Literal["request", "reply"] = "request"
    """`request`: raising loses the request. `reply`: it was done, raising loses the answer."""


WriteFaults: TypeAlias = "Callable[[WriteAttempt], Awaitable[None]]"


class KubeWriter:
    """Creates, patches, deletes and evicts; fenced, counted, folded."""

    def __init__(
        self,
        apis: ClusterApis,
        codecs: Codecs,
        *,
        clock: Clock,
        fence: WriteFence,
        sink: Callable[[ObjectWritten], None],
        on_written: Callable[[ResourceKind, StateObject], None] | None,
        metrics: KubeMetrics | None,
        faults: WriteFaults | None,
        jitter: Callable[[], float] | None,
    ) -> None:
        self._apis: Final = apis
        self._codecs: Final = codecs
        self._clock: Final = clock
        self._fence: Final = fence
        self._sink: Final = sink
        self._on_written: Final = on_written
        self._metrics: Final = metrics
        self._faults: Final = faults
        self._jitter: Final = jitter or random.Random().random  # noqa: S311 - spreads retries only
        self._repeated: Final = RepeatedWrites(clock)
        self.counts: Final[Counter[tuple[WriteVerb, str, str]]] = Counter()
        """Requests sent, by verb, kind and subresource."""

    async def create(
        self,
        kind: ResourceKind,
        manifest: JsonMapping,
        *,
        namespace: str = "",
        answer_seconds: float | None = None,
    ) -> StateObject:
        """Create an object from a manifest and return it as the server stored it.

        Without an answer in `answer_seconds` it is unknown whether the object was created, as after a
        broken connection. The wait for a turn that the server has asked for does not count.
        """
        metadata = manifest.get("metadata", {})
        name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
        op = WriteAttempt(verb="create", kind=kind, name=name, namespace=namespace)
        return self._fold(
            kind,
            await self._send_with_retries(
                op,
                lambda api: self._in_time(
                    op, api.create(kind, manifest, namespace=namespace), answer_seconds
                ),
            ),
        )

    async def patch(
        self,
        kind: ResourceKind,
        name: str,
        patch: JsonMapping,
        *,
        namespace: str = "",
        subresource: str = "",
        resource_version: str | None = None,
    ) -> StateObject:
        """Merge-patch an object and return it; with `resource_version` under optimistic lock.

        Raises:
            TooManyRequestsError: too much to do, or the object was patched again and again.
        """
        op = WriteAttempt(
            verb="patch", kind=kind, name=name, namespace=namespace, subresource=subresource
        )
        target = (kind.plural, subresource, namespace, name)
        self._repeated.check(target, patch)
        body = await self._send_with_retries(
            op,
            lambda api: api.patch(
                kind,
                name,
                patch,
                namespace=namespace,
                subresource=subresource,
                resource_version=resource_version,
            ),
            repeatable=True,
        )
        self._repeated.note(target, patch)
        return self._fold(kind, body)

    async def patch_by_operations(
        self, kind: ResourceKind, name: str, operations: Sequence[JsonMapping]
    ) -> StateObject:
        """Patch an object without a namespace by JSON patch operations (RFC 6902); return it.

        Raises:
            ConflictError: the operations do not fit the object as it is now.
            TooManyRequestsError: as for `patch`.
        """
        op = WriteAttempt(verb="patch", kind=kind, name=name, namespace="")
        target = (kind.plural, name)
        self._repeated.check(target, operations)
        body = await self._send_with_retries(
            op, lambda api: api.patch(kind, name, operations, style="json"), repeatable=True
        )
        self._repeated.note(target, operations)
        return self._fold(kind, body)

    async def patch_unread(
        self,
        kind: ResourceKind,
        name: str,
        patch: JsonMapping,
        *,
        namespace: str,
        resource_version: str | None,
    ) -> None:
        """Merge-patch an object of a kind that the state does not hold.

        Raises:
            NotFoundError: it is gone.
            ConflictError: its version is not this any more.
        """
        op = WriteAttempt(verb="patch", kind=kind, name=name, namespace=namespace)
        await self._send_with_retries(
            op,
            lambda api: api.patch(
                kind, name, patch, namespace=namespace, resource_version=resource_version
            ),
            repeatable=True,
        )

    async def delete(
        self,
        kind: ResourceKind,
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> StateObject | None:
        """Delete an object; returns it while finalizers or a grace period hold it, else None.

        Raises:
            NotFoundError: it is gone.
            ConflictError: UID or version are not these any more.
        """
        op = WriteAttempt(verb="delete", kind=kind, name=name, namespace=namespace)
        body = await self._send_with_retries(
            op,
            lambda api: api.delete(
                kind,
                name,
                namespace=namespace,
                uid=uid,
                resource_version=resource_version,
                grace_seconds=grace_seconds,
            ),
            repeatable=uid is not None,
        )
        head = _head.decode(body)
        if head.kind != kind.kind or head.metadata.deletion_timestamp is None:
            return None
        return self._fold(kind, body)

    async def evict(self, pod: PodView, *, grace_seconds: int | None = None) -> None:
        """Ask for a pod's eviction, under its UID.

        Raises:
            TooManyRequestsError: a disruption budget refuses now (see `causes`), or the API server
                has too much to do.
            NotFoundError, ConflictError: the pod is gone, or another one has its name.
        """
        op = WriteAttempt(
            verb="evict",
            kind=PODS,
            name=pod.name,
            namespace=pod.namespace,
            subresource="eviction",
        )
        await self._send_with_retries(
            op,
            lambda api: api.evict(
                pod.name, namespace=pod.namespace, uid=pod.uid, grace_seconds=grace_seconds
            ),
        )

    async def _in_time(self, op: WriteAttempt, send: Awaitable[T], seconds: float | None) -> T:
        if seconds is None:
            return await send
        try:
            async with time_limit(self._clock, seconds):
                return await send
        except TimeoutError:
            message = f"{op.verb} {op.kind.plural}: no answer within {round(seconds)} s"
            raise ApiError(message, status=0, reason=NO_ANSWER) from None

    def _fold(self, kind: ResourceKind, body: bytes) -> StateObject:
        written = self._codecs.for_kind(kind).decode(body)
        self._sink(ObjectWritten(written))
        if self._on_written is not None:
            self._on_written(kind, written)
        return written

    async def _send_with_retries(
        self,
        op: WriteAttempt,
        send: Callable[[KubeApi], Awaitable[T]],
        *,
        repeatable: bool = False,
    ) -> T:
        """Send, and send again only where that cannot do a thing twice."""
        api = self._apis.api_for(op.kind).with_fence(self._fence)
        for attempt in range(_ATTEMPTS):
            try:
                return await self._send(op, lambda: send(api))
            except ApiError as error:
                delay = self._retry_delay(op, error, attempt, repeatable=repeatable)
                if delay is None:
                    raise
            await self._clock.sleep(delay)
        message = "unreachable: the last attempt returns or raises"
        raise AssertionError(message)

    async def _send(self, op: WriteAttempt, send: Callable[[], Awaitable[T]]) -> T:
        self._fence.check()
        outcome = "failed"
        try:
            if self._faults is not None:
                await self._faults(op)
            self.counts[op.verb, op.kind.kind, op.subresource] += 1
            result = await send()
            if self._faults is not None:
                await self._faults(replace(op, stage="reply"))
        except ApiError as error:
            outcome = str(error.status)
            raise
        else:
            outcome = "ok"
            return result
        finally:
            if self._metrics is not None:
                labels = (op.verb, op.kind.kind, op.subresource, outcome)
                self._metrics.writes.labels(*labels).inc()

    def _retry_delay(
        self, op: WriteAttempt, error: ApiError, attempt: int, *, repeatable: bool
    ) -> float | None:
        """Say how long to wait before the same request again; None means: raise."""
        if attempt + 1 >= _ATTEMPTS:
            return None
        if isinstance(error, TooManyRequestsError):
            if op.verb == "evict" or error.retry_after is None:
                return None  # a pod that waits has a deadline, which the caller knows
            return min(error.retry_after.total_seconds(), _MAX_DELAY_SECONDS)
        never_sent = error.status == 0 and error.reason == UNREACHABLE
        if never_sent or (repeatable and is_in_doubt(error)):
            return self._jitter() * _BASE_DELAY_SECONDS * 2**attempt
        return None


class ProviderNodeWriter:
    """Writes Nodes for providers, through the process' writer."""

    __slots__ = ("_writer",)

    def __init__(self, writer: KubeWriter) -> None:
        self._writer: Final = writer

    async def create(self, manifest: Mapping[str, object]) -> NodeView:
        """Create a Node from a manifest; an existing one of that name is a ConflictError."""
        return _as_node(await self._writer.create(NODES, manifest))

    async def patch(self, name: str, patch: Mapping[str, object]) -> NodeView:
        """Merge-patch a Node (labels, annotations, spec)."""
        return _as_node(await self._writer.patch(NODES, name, patch))

    async def patch_status(self, name: str, patch: Mapping[str, object]) -> NodeView:
        """Merge-patch a Node's status."""
        return _as_node(await self._writer.patch(NODES, name, patch, subresource="status"))

    async def delete(self, name: str) -> None:
        """Delete a Node; one that is gone already is fine."""
        with suppress(NotFoundError):
            await self._writer.delete(NODES, name)


def _as_node(written: StateObject) -> NodeView:
    from karpenter_core.api.records import NodeView

    if not isinstance(written, NodeView):
        message = f"the API server answered a write of a Node with a {type(written).__name__}"
        raise TypeError(message)
    return written


class _HeadMeta(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None


class _Head(msgspec.Struct):
    kind: str = ""
    metadata: _HeadMeta = msgspec.field(default_factory=_HeadMeta)


_head: Final = msgspec.json.Decoder(_Head)
