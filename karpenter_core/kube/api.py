"""Sends the verbs of the Kubernetes API; raises failures as typed errors."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import msgspec

from karpenter_core.errors import ApiError, ConflictError, InvalidError
from karpenter_core.kube.api_errors import error_of
from karpenter_core.kube.resources import LEASES, PODS, ResourceKind
from karpenter_core.kube.transport import NO_ANSWER, ApiRequest, ApiResponse, Transport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.clock import Clock
    from karpenter_core.kube.fence import WriteFence
    from karpenter_core.kube.metrics import KubeMetrics
    from karpenter_core.kube.rate_limits import RequestLimiter
    from karpenter_core.kube.server_clock import ServerClock

__all__ = ["PAGE_SIZE", "Body", "ClusterApis", "KubeApi", "PatchStyle"]

PAGE_SIZE: Final = 500  # objects a page; what client-go's pager asks for

Body: TypeAlias = "bytes | JsonMapping | Sequence[JsonMapping]"
PatchStyle: TypeAlias = Literal["merge", "json"]

_PATCH_TYPES: Final[dict[PatchStyle, str]] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
}


class KubeApi:
    """One cluster's API server."""

    __slots__ = ("_clock", "_limiter", "_metrics", "_server_clock", "_transport")

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        limiter: RequestLimiter | None = None,
        metrics: KubeMetrics | None = None,
        server_clock: ServerClock | None = None,
    ) -> None:
        """`server_clock` learns from the Date headers of the answers."""
        self._transport: Final = transport
        self._clock: Final = clock
        self._limiter: Final = limiter
        self._metrics: Final = metrics
        self._server_clock: Final = server_clock

    def with_fence(self, fence: WriteFence) -> KubeApi:
        """Return the same API server for writers: the fence is asked when a request's turn comes.

        Asked any earlier it tells nothing: a request may wait for seconds in the token bucket, or
        for minutes when the whole process was stopped there.
        """
        limiter = _FencedLimiter(self._limiter, fence)
        return KubeApi(
            self._transport,
            clock=self._clock,
            limiter=limiter,
            metrics=self._metrics,
            server_clock=self._server_clock,
        )

    async def get(
        self, kind: ResourceKind, name: str, *, namespace: str = "", subresource: str = ""
    ) -> bytes:
        """Return one object."""
        target = _RequestTarget(kind, namespace, name, subresource)
        return await self._send("get", target, "GET")

    async def list_page(
        self,
        kind: ResourceKind,
        *,
        namespace: str = "",
        limit: int = PAGE_SIZE,
        continue_token: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> bytes:
        """Return one page of a kind, read at the newest version; `limit` 0 asks for all of it."""
        query = _query(
            limit=str(limit) if limit else "",
            **{"continue": continue_token},
            labelSelector=label_selector,
            fieldSelector=field_selector,
        )
        return await self._send("list", _RequestTarget(kind, namespace), "GET", query=query)

    async def list_pages(
        self, kind: ResourceKind, *, namespace: str = "", limit: int = PAGE_SIZE
    ) -> AsyncGenerator[bytes]:
        """Yield every page of a kind; a token that expired on the way raises GoneError.

        The next page is on its way while the reader is busy with one.

        Raises:
            ApiError: also if a page names itself as the next one: the list would never end.
        """
        token = ""
        page = await self.list_page(kind, namespace=namespace, limit=limit)
        while True:
            before, token = token, _continue_token(page)
            if not token:
                yield page
                return
            if token == before:
                yield page
                raise ApiError(f"list {kind.plural}: a page continues with itself", status=0)
            following = asyncio.ensure_future(
                self.list_page(kind, namespace=namespace, limit=limit, continue_token=token)
            )
            try:
                yield page
                page = await following
            finally:
                if not following.done():
                    following.cancel()
                elif not following.cancelled():
                    following.exception()  # the reader has stopped and does not fetch it

    async def create(
        self,
        kind: ResourceKind,
        body: Body,
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> bytes:
        """Create an object (or post to a subresource of one) and return the answer."""
        target = _RequestTarget(kind, namespace, name, subresource)
        return await self._send("create", target, "POST", body=_encode(body))

    async def patch(
        self,
        kind: ResourceKind,
        name: str,
        body: Body,
        *,
        namespace: str = "",
        subresource: str = "",
        style: PatchStyle = "merge",
        resource_version: str | None = None,
    ) -> bytes:
        """Patch an object; with `resource_version` only if that is still its version.

        Raises:
            ConflictError: it is not, or a JSON patch does not fit the object as it is now.
        """
        if resource_version is not None:
            body = _locked(body, style, resource_version)
        target = _RequestTarget(kind, namespace, name, subresource)
        try:
            return await self._send(
                "patch", target, "PATCH", body=_encode(body), content_type=_PATCH_TYPES[style]
            )
        except InvalidError as error:
            if style == "json" and _LATE_CAUSES.issuperset(error.causes):
                raise ConflictError(str(error), status=error.status, reason=error.reason) from error
            raise

    async def delete(
        self,
        kind: ResourceKind,
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> bytes:
        """Delete an object, if UID and version are still these; returns it or a Status."""
        options = _delete_options(uid, resource_version, grace_seconds)
        target = _RequestTarget(kind, namespace, name)
        return await self._send("delete", target, "DELETE", body=_encode(options))

    async def evict(
        self, name: str, *, namespace: str, uid: str | None = None, grace_seconds: int | None = None
    ) -> None:
        """Ask for a pod's eviction.

        Raises:
            TooManyRequestsError: a disruption budget refuses now (see `causes`), or the API server
                has too much to do.
            ApiError: with status 500 when several budgets select the pod.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid, None, grace_seconds),
        }
        await self.create(PODS, eviction, namespace=namespace, name=name, subresource="eviction")

    @asynccontextmanager
    async def watch(
        self,
        kind: ResourceKind,
        *,
        namespace: str = "",
        resource_version: str = "",
        timeout_seconds: int = 0,
        send_initial_events: bool = False,
        field_selector: str = "",
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open a watch and iterate over its lines, one JSON event each."""
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=str(timeout_seconds) if timeout_seconds else "",
            sendInitialEvents="true" if send_initial_events else "",
            resourceVersionMatch="NotOlderThan" if send_initial_events else "",
            fieldSelector=field_selector,
        )
        target = _RequestTarget(kind, namespace)
        if self._limiter is not None:
            await self._limiter.acquire()
        request = ApiRequest(method="GET", path=target.path, query=query)
        sent = self._clock.monotonic()
        try:
            async with self._transport.stream(request) as (response, lines):
                self._note_date(response, sent)
                self._count(response.status, "GET")
                if response.status >= _REDIRECT:
                    raise error_of(response, f"watch {target}")
                yield lines
        except ApiError as error:
            if error.status == 0:
                self._count(0, "GET")
            raise

    async def request(self, request: ApiRequest) -> ApiResponse:
        """Send any other request; an error status is the caller's to judge."""
        if self._limiter is not None:
            await self._limiter.acquire()
        return await self._transport.request(request)

    async def close(self) -> None:
        """Let go of connections."""
        await self._transport.close()

    async def _send(
        self,
        verb: str,
        target: _RequestTarget,
        method: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = "application/json",
    ) -> bytes:
        if self._limiter is not None:
            await self._limiter.acquire()
        started = self._clock.monotonic()
        request = ApiRequest(
            method=method,
            path=target.path,
            query=query or {},
            body=body,
            content_type=content_type,
        )
        try:
            response = await self._transport.request(request)
        except ApiError as error:
            self._count(error.status, method)
            message = f"{verb} {target}: {error}"
            raise type(error)(
                message, status=error.status, reason=error.reason, retry_after=error.retry_after
            ) from error
        self._note_date(response, started)
        self._count(response.status, method)
        self._observe(verb, target, self._clock.monotonic() - started)
        if response.status >= _REDIRECT:
            raise error_of(response, f"{verb} {target}", is_change=method in _CHANGES)
        if (
            response.body.lstrip()[:1] != b"{"
        ):  # a proxy's page; whether anything was done is not known
            text = f"{verb} {target}: the answer is no object of the API: {response.body[:100]!r}"
            raise ApiError(text, status=0, reason=NO_ANSWER)
        return response.body

    def _note_date(self, response: ApiResponse, sent: float) -> None:
        if self._server_clock is not None:
            self._server_clock.note_answer(response.status, response.headers, sent=sent)

    def _count(self, status: int, method: str) -> None:
        if self._metrics is not None:
            code = str(status) if status else "<error>"  # client-go's word for "no answer"
            self._metrics.requests.labels(code, method).inc()

    def _observe(self, verb: str, target: _RequestTarget, seconds: float) -> None:
        if self._metrics is not None:
            kind = target.kind
            labels = (verb.upper(), kind.group, kind.version, kind.plural, target.subresource)
            self._metrics.request_duration.labels(*labels).observe(seconds)


_REDIRECT: Final = 300
"""The first status that is no success; an API server redirects nobody, a proxy may."""
_CHANGES: Final = frozenset({"PATCH", "DELETE"})
_LATE_CAUSES: Final = frozenset({"FieldValueDuplicate"})
"""Causes of a refusal that another writer explains: the list has the added entry by now.

A JSON patch with a failed test, or with a path that is gone, is refused without any cause.
"""


@dataclass(frozen=True, slots=True)
class _RequestTarget:
    """The target of a request, for its URL and for error messages."""

    kind: ResourceKind
    namespace: str
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        return self.kind.path(
            namespace=self.namespace, name=self.name, subresource=self.subresource
        )

    def __str__(self) -> str:
        what = f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural
        if not self.name:
            return what
        return (
            f'{what} "{self.namespace}/{self.name}"' if self.namespace else f'{what} "{self.name}"'
        )


class _FencedLimiter:
    """A limiter whose turn only the holder of the lease may take."""

    __slots__ = ("_fence", "_limiter")

    def __init__(self, limiter: RequestLimiter | None, fence: WriteFence) -> None:
        self._limiter: Final = limiter
        self._fence: Final = fence

    async def acquire(self) -> None:
        if self._limiter is not None:
            await self._limiter.acquire()
        self._fence.check()


class ClusterApis:
    """Returns the API of the cluster that keeps a kind.

    Usually one. With two kubeconfigs, our own kinds and the leases live in the `objects` cluster,
    and nodes, pods and all else in the `workload` cluster.
    """

    __slots__ = ("_object_groups", "objects", "workload")

    def __init__(
        self,
        objects: KubeApi,
        workload: KubeApi | None = None,
        *,
        node_class_groups: frozenset[str] = frozenset(),
    ) -> None:
        self.objects: Final = objects
        self.workload: Final = workload or objects
        self._object_groups: Final = node_class_groups | {"karpenter.sh", LEASES.group}

    def api_for(self, kind: ResourceKind) -> KubeApi:
        """Return the API server that keeps a kind."""
        return self.api_for_group(kind.group)

    def api_for_group(self, group: str) -> KubeApi:
        """Return the API server that keeps the kinds of an API group."""
        return self.objects if group in self._object_groups else self.workload


class _ListMeta(msgspec.Struct, gc=False):
    continue_token: str = msgspec.field(default="", name="continue")


class _ListHead(msgspec.Struct):
    metadata: _ListMeta


_list_head: Final = msgspec.json.Decoder(_ListHead)
_ITEMS: Final = b'"items":['
_HEAD_BYTES: Final = 8192
"""Length within which an API server begins the items of a page: their list's metadata is before them."""


def _continue_token(page: bytes) -> str:
    """Return the token of the next page; empty also for a page that its reader will refuse."""
    items = page.find(_ITEMS, 0, _HEAD_BYTES)
    for text in (page[:items] + _ITEMS + b"]}", page) if items > 0 else (page,):
        try:
            return _list_head.decode(text).metadata.continue_token
        except msgspec.MsgspecError:
            pass  # the metadata is behind the items, or this is no page
    return ""


def _query(**parameters: str) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value}


def _encode(body: Body) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def _locked(body: Body, style: PatchStyle, resource_version: str) -> Body:
    """Add the condition that the object is still at this version."""
    plain: object = msgspec.json.decode(body) if isinstance(body, bytes) else body
    if style == "json":
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version}
        return [test, *cast("Sequence[JsonMapping]", plain)]
    whole = cast("JsonMapping", plain)
    metadata: JsonObject = {**(whole.get("metadata") or {})}
    metadata["resourceVersion"] = resource_version
    return {**whole, "metadata": metadata}


def _delete_options(
    uid: str | None,
    resource_version: str | None,
    grace_seconds: int | None,
) -> JsonObject:
    options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
    expected = {"uid": uid, "resourceVersion": resource_version}
    if preconditions := {key: value for key, value in expected.items() if value is not None}:
        options["preconditions"] = preconditions
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options
