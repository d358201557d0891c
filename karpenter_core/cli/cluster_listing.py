"""Lists once every kind of a live cluster that scheduling reads.

Only GET requests are sent, so a role with `list` is sufficient; a watch is opened only by a command that
follows the cluster (`cli.watched_cluster`). Objects in files are
added to the cluster as if they had been applied, which shows the effect of a change in advance.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar, final

from karpenter_core.cli.cluster_input import LocatedObject
from karpenter_core.errors import ApiError, FencedError, GoneError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.kube.transport import ApiRequest, ApiResponse, Transport
    from karpenter_core.kube.wire.codecs import Codecs
    from karpenter_core.operator.settings import Settings
    from karpenter_core.state.events import StateObject

__all__ = [
    "ClusterListing",
    "connected",
    "is_needed",
    "list_cluster",
    "list_kinds",
    "overlay_objects",
    "read_manifests",
    "read_pages",
]

T = TypeVar("T")

CLUSTER: Final = "the cluster"
"""The source of objects that are in no file, for messages."""

_FORBIDDEN: Final = 403
_NEEDED_KINDS: Final = frozenset({"Pod", "Node", "NodePool", "NodeClaim"})
"""Kinds that a plan needs; other kinds that cannot be listed are left out, with a note."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterListing:
    """The objects of a cluster, and the kinds that could not be listed."""

    objects: tuple[StateObject, ...]
    notes: tuple[str, ...]


@asynccontextmanager
async def connected(
    settings: Settings,
    clock: Clock,
    *,
    node_class_groups: frozenset[str],
    may_watch: bool = False,
) -> AsyncGenerator[ClusterApis]:
    """Connect to the cluster, or the two clusters, of the settings; writes are refused.

    Watches are refused too, unless the command follows the cluster.

    Raises:
        SettingsError: no cluster is found, or a kubeconfig cannot be used.
    """
    from karpenter_core.kube.api import ClusterApis, KubeApi
    from karpenter_core.kube.client import connect

    transports: list[Transport] = []
    try:
        transports.append(
            await connect(
                kubeconfig=settings.kubeconfig or None,
                context=settings.context or None,
                clock=clock,
            )
        )
        if settings.workload_kubeconfig:
            transports.append(await connect(kubeconfig=settings.workload_kubeconfig, clock=clock))
        apis = [
            KubeApi(_ReadOnlyTransport(transport, may_watch=may_watch), clock=clock)
            for transport in transports
        ]
        yield ClusterApis(*apis, node_class_groups=node_class_groups)
    finally:
        for transport in transports:
            await transport.close()


@final
class _ReadOnlyTransport:
    """A connection to an API server that sends only GET requests."""

    def __init__(self, transport: Transport, *, may_watch: bool) -> None:
        self._transport: Final = transport
        self._may_watch: Final = may_watch

    async def request(self, request: ApiRequest) -> ApiResponse:
        if request.method != "GET" or "watch" in request.query:
            _refuse(request)
        return await self._transport.request(request)

    def stream(
        self, request: ApiRequest
    ) -> AbstractAsyncContextManager[tuple[ApiResponse, AsyncIterator[bytes]]]:
        if request.method != "GET" or not self._may_watch:
            _refuse(request)
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


def _refuse(request: ApiRequest) -> NoReturn:
    raise FencedError(f"this command only reads: {request.method} {request.path}")


def is_needed(kind: ResourceKind) -> bool:
    """Tell whether nothing can be planned without this kind."""
    return kind.kind in _NEEDED_KINDS


# -- listing ---------------------------------------------------------------------------------------


async def list_cluster(apis: ClusterApis, codecs: Codecs) -> ClusterListing:
    """List every kind that scheduling reads.

    Raises:
        ApiError: pods, nodes, NodePools or NodeClaims cannot be listed.
    """
    objects: list[StateObject] = []
    notes: list[str] = []
    kinds = list_kinds(
        apis,
        codecs.kinds,
        lambda kind, body: codecs.for_kind(kind).decode_list(body),
        notes,
        absence="planned as if there were none",
    )
    async for _, pages in kinds:
        for page in pages:
            objects += page.objects
            notes += (f"left out: {invalid}" for invalid in page.invalid)
    return ClusterListing(objects=tuple(objects), notes=tuple(notes))


async def list_kinds(
    apis: ClusterApis,
    kinds: Iterable[ResourceKind],
    read_page: Callable[[ResourceKind, bytes], T],
    notes: list[str],
    *,
    absence: str,
) -> AsyncIterator[tuple[ResourceKind, list[T]]]:
    """Yield each kind with its pages, each as `read_page` returns it.

    Kinds that cannot be listed are left out. Those that a plan needs, if the cluster does not know them,
    and those that may not be listed get a note; `absence` says there what follows.

    Raises:
        ApiError: pods, nodes, NodePools or NodeClaims cannot be listed.
    """
    for kind in kinds:
        try:
            pages = await read_pages(apis, kind, read_page)
        except NotFoundError:
            if is_needed(kind):
                notes.append(f"the cluster does not know {kind.plural} ({kind.api_version})")
            continue
        except ApiError as error:
            if error.status != _FORBIDDEN or is_needed(kind):
                raise
            notes.append(f"{error}; {absence}")
            continue
        yield kind, pages


async def read_pages(
    apis: ClusterApis, kind: ResourceKind, read_page: Callable[[ResourceKind, bytes], T]
) -> list[T]:
    """List one kind page by page; start again once if a page has expired."""

    async def read() -> list[T]:
        return [read_page(kind, body) async for body in apis.api_for(kind).list_pages(kind)]

    try:
        return await read()
    except GoneError:
        return await read()


async def read_manifests(apis: ClusterApis, kind: ResourceKind) -> list[JsonObject]:
    """List one kind as `read_pages` does; return its objects as they are stored."""
    return [item for page in await read_pages(apis, kind, _items) for item in page]


def _items(_: ResourceKind, body: bytes) -> list[JsonObject]:
    return list(json.loads(body)["items"] or ())


# -- what if ---------------------------------------------------------------------------------------


def overlay_objects(
    objects: Iterable[StateObject], additions: Sequence[LocatedObject]
) -> list[LocatedObject]:
    """Return the cluster's objects with those of files replacing or added to them.

    An object of a file takes over the UID of the object that it replaces, so that owner references
    stay valid. Derived objects (such as a namespace) give way to the objects of the cluster.
    """
    placed = {
        _identity(cluster_object): LocatedObject(CLUSTER, cluster_object)
        for cluster_object in objects
    }
    for addition in additions:
        identity = _identity(addition.found)
        before = placed.get(identity)
        if before is None:
            placed[identity] = addition
        elif not addition.is_implied:
            placed[identity] = addition._replace(found=_with_uid(addition.found, before.found.uid))
    return list(placed.values())


def _identity(state_object: StateObject) -> tuple[str, str, str]:
    return (
        type(state_object).__name__,
        str(getattr(state_object, "namespace", "")),
        state_object.name,
    )


def _with_uid(state_object: StateObject, uid: str) -> StateObject:
    import msgspec

    from karpenter_core.api.base import KubernetesObject

    if isinstance(state_object, KubernetesObject):
        metadata = state_object.metadata.model_copy(update={"uid": uid})
        return state_object.model_copy(update={"metadata": metadata})
    return msgspec.structs.replace(state_object, uid=uid)
