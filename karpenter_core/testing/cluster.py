"""A test's own view of a cluster: plain JSON over HTTP, no product code.

`ClusterClient` reads a kubeconfig and sends requests. `ClusterMirror` follows kinds by list and watch
and keeps the objects as they are, with the instant each was first and last seen, so that a test
waits for facts instead of polling and can ask afterwards what ever existed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self, TypeAlias, cast, final

import aiohttp
import yaml

from karpenter_core.api.json_objects import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

    from karpenter_core.kube.resources import ResourceKind

__all__ = ["ClusterClient", "ClusterError", "ClusterMirror", "Object", "ObservedObject"]

Object: TypeAlias = JsonObject
"""An object of the API as it came over the wire."""

RETRY_SECONDS: Final = 0.25
PAGE: Final = 500
LINE_BYTES: Final = 8 * 1024**2


class ClusterError(Exception):
    """The API server refused a request; carries its `Status`."""

    def __init__(self, method: str, path: str, code: int, status: Object) -> None:
        super().__init__(f"{method} {path}: {code} {status.get('message', status)}")
        self.code: Final = code
        self.status: Final = status

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the server found wrong."""
        causes = self.status.get("details", {}).get("causes", [])
        return tuple(str(cause.get("field", "")) for cause in causes)


@final
class ClusterClient:
    """Requests to the API server that a kubeconfig names; an async context manager."""

    __slots__ = ("_session", "_ssl", "url")

    def __init__(self, kubeconfig: Path) -> None:
        config = cast("Object", yaml.safe_load(kubeconfig.read_text()))
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user: Object = _named(config.get("users", []), context.get("user", "")).get("user", {})
        self.url: Final[str] = str(cluster["server"]).rstrip("/")
        self._ssl: Final = _ssl_context(cluster, user) if self.url.startswith("https") else None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._ssl or False),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            read_bufsize=LINE_BYTES,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send one request and return the answer.

        Raises:
            ClusterError: the server refused it.
        """
        async with self.session.request(
            method,
            f"{self.url}{path}",
            params=query,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type, "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=60),
        ) as response:
            text = await response.text()
            answer: Object = _json_or_text(text)
            if not response.ok:
                raise ClusterError(method, path, response.status, answer)
            return answer

    async def answers(self, path: str) -> bool:
        """Tell whether the server answers this path with success."""
        try:
            await self.request("GET", path)
        except (ClusterError, aiohttp.ClientError, OSError):
            return False
        return True

    async def get(self, kind: ResourceKind, name: str, namespace: str = "default") -> Object:
        """Return one object."""
        return await self.request("GET", kind.path(namespace=namespace, name=name))

    async def list(self, kind: ResourceKind, **query: str) -> list[Object]:
        """Return all objects of a kind, in every namespace."""
        items, _ = await self.list_from(kind, query)
        return items

    async def list_from(
        self,
        kind: ResourceKind,
        query: Mapping[str, str],
    ) -> tuple[list[Object], str]:
        """Return all objects of a kind and the resourceVersion to watch from."""
        items: list[Object] = []
        page: dict[str, str] = {**query, "limit": str(PAGE)}
        while True:
            answer = await self.request("GET", kind.path(), query=page)
            items += answer["items"]
            token = answer["metadata"].get("continue")
            if not token:
                return items, answer["metadata"]["resourceVersion"]
            page["continue"] = token

    async def create(self, kind: ResourceKind, manifest: Mapping[str, object]) -> Object:
        """Create an object in the namespace its manifest names, else in `default`."""
        body: Object = dict(manifest)
        namespace = body.get("metadata", {}).get("namespace", "default")
        return await self.request("POST", kind.path(namespace=namespace), body)

    async def patch(
        self,
        kind: ResourceKind,
        name: str,
        patch: Mapping[str, object],
        *,
        namespace: str = "default",
        subresource: str = "",
    ) -> Object:
        """Merge-patch an object or one of its subresources."""
        return await self.request(
            "PATCH",
            kind.path(namespace=namespace, name=name, subresource=subresource),
            dict(patch),
            content_type="application/merge-patch+json",
        )

    async def delete(self, kind: ResourceKind, name: str, namespace: str = "default") -> None:
        """Delete an object; one that is gone already is fine."""
        try:
            await self.request("DELETE", kind.path(namespace=namespace, name=name))
        except ClusterError as error:
            if error.code != 404:  # noqa: PLR2004 - not found
                raise

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session."""
        if self._session is None:
            raise RuntimeError("use the client as an async context manager")
        return self._session


@final
class ObservedObject:
    """One object that exists or once existed, with the loop times of what happened to it."""

    __slots__ = ("deleted_at", "first_seen", "last_seen", "object")

    def __init__(self, value: Object, now: float) -> None:
        self.object = value
        self.first_seen: Final = now
        self.last_seen = now
        self.deleted_at: float | None = None


@final
class ClusterMirror:
    """Follows kinds by list and watch; an async context manager.

    Objects are kept by UID, the deleted ones too: `ever` holds all that was seen.
    A broken connection, an expired version or a restarted server leads to a new list.
    """

    __slots__ = ("_changed", "_client", "_kinds", "_records", "_synced", "_tasks")

    def __init__(self, client: ClusterClient, kinds: Iterable[ResourceKind]) -> None:
        self._client: Final = client
        self._kinds: Final = tuple(kinds)
        self._records: Final[dict[str, dict[str, ObservedObject]]] = {
            kind.plural: {} for kind in self._kinds
        }
        self._synced: Final = {kind.plural: asyncio.Event() for kind in self._kinds}
        self._changed: Final = asyncio.Event()
        self._tasks: Final[list[asyncio.Task[None]]] = []

    async def __aenter__(self) -> Self:
        for kind in self._kinds:
            self._tasks.append(asyncio.create_task(self._follow(kind)))
        await asyncio.gather(*(event.wait() for event in self._synced.values()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ever(self, kind: ResourceKind) -> Sequence[ObservedObject]:
        """Return every object of a kind that was seen, in the order of first sight."""
        return tuple(self._records[kind.plural].values())

    def objects(self, kind: ResourceKind) -> list[Object]:
        """Return the objects of a kind that exist."""
        return [record.object for record in self.ever(kind) if record.deleted_at is None]

    def forget_deleted(self) -> None:
        """Drop what no longer exists, so that the next story begins with clean pages."""
        for records in self._records.values():
            for uid in [uid for uid, record in records.items() if record.deleted_at is not None]:
                del records[uid]

    async def changed(self, seconds: float) -> bool:
        """Wait for the next change, but no longer than this; tell whether there was one."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        return self._changed.is_set()

    async def _follow(self, kind: ResourceKind) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, ClusterError, TimeoutError, OSError):
                version = await self._relist(kind)
                await self._watch(kind, version)
            await asyncio.sleep(RETRY_SECONDS)

    async def _relist(self, kind: ResourceKind) -> str:
        items, version = await self._client.list_from(kind, {})
        present = {item["metadata"]["uid"] for item in items}
        for item in items:
            self._see(kind, item)
        for uid, record in self._records[kind.plural].items():
            if uid not in present and record.deleted_at is None:
                record.deleted_at = asyncio.get_running_loop().time()
        self._synced[kind.plural].set()
        self._changed.set()
        return version

    async def _watch(self, kind: ResourceKind, version: str) -> None:
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "600",
        }
        url = f"{self._client.url}{kind.path()}"
        async with self._client.session.get(url, params=query) as response:
            if not response.ok:
                return
            async for line in response.content:
                event = json.loads(line)
                match event["type"]:
                    case "ADDED" | "MODIFIED":
                        self._see(kind, event["object"])
                    case "DELETED":
                        self._see(kind, event["object"], deleted=True)
                    case "ERROR":
                        return
                    case _:
                        continue
                self._changed.set()

    def _see(self, kind: ResourceKind, value: Object, *, deleted: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        records = self._records[kind.plural]
        record = records.setdefault(value["metadata"]["uid"], ObservedObject(value, now))
        record.object = value
        record.last_seen = now
        record.deleted_at = now if deleted else None


def _named(entries: Iterable[Object], name: str) -> Object:
    empty: Object = {}
    return next((entry for entry in entries if entry["name"] == name), empty)


def _ssl_context(cluster: Object, user: Object) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    if "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    return context


def _json_or_text(text: str) -> Object:
    try:
        return json.loads(text)
    except ValueError:
        return {"message": text}
