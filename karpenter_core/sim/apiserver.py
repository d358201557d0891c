"""The embedded API server: maps HTTP requests onto the registry."""

from __future__ import annotations

import base64
import binascii
import random
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, cast

import msgspec

from karpenter_core.kube.resources import NAMESPACES, PODS
from karpenter_core.kube.transport import ApiRequest, ApiResponse
from karpenter_core.sim import pods, status
from karpenter_core.sim.discovery import discover
from karpenter_core.sim.fields import Json, section
from karpenter_core.sim.registry import Registry, apply_patch
from karpenter_core.sim.selectors import field_predicate, label_predicate
from karpenter_core.sim.store import StoredObject
from karpenter_core.sim.versions import request_of_stored, response_in_version
from karpenter_core.sim.watches import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.clock import Clock
    from karpenter_core.sim.kinds import ServedKind
    from karpenter_core.sim.registry import PatchForm

__all__ = ["ApiServer", "is_watch", "render_error"]

_PATCH_FORMS: Final[Mapping[str, PatchForm]] = {
    "application/merge-patch+json": "merge",
    "application/json-patch+json": "json",
}
_SNAPSHOTS: Final = 64
_TRUE: Final = frozenset({"1", "true", "True"})


class _RequestTarget(msgspec.Struct, frozen=True):
    """The target of a request, read from its path."""

    served: ServedKind
    namespace: str | None
    name: str
    part: str


def is_watch(request: ApiRequest) -> bool:
    """Tell whether a request asks for a stream."""
    return request.method == "GET" and request.query.get("watch", "") in _TRUE


def render_error(error: Exception) -> ApiResponse:
    """Write a refusal as the real server does."""
    if isinstance(error, status.StatusError):
        retry = error.retry_after_seconds
        headers = {"content-type": "application/json"}
        if retry:
            headers["retry-after"] = str(retry)
        body = msgspec.json.encode(error.to_json())
        return ApiResponse(status=error.code, body=body, headers=headers)
    headers = {"content-type": "text/plain; charset=utf-8"}
    return ApiResponse(status=404, body=b"404 page not found\n", headers=headers)


class ApiServer:
    """One in-memory API server; clients reach it through `sim.frontend`."""

    def __init__(self, clock: Clock, *, history_size: int = 20_000, seed: int = 0) -> None:
        self.clock: Final = clock
        self.registry: Final = Registry(clock, history_size=history_size, seed=seed)
        self._random: Final = random.Random(seed)  # noqa: S311 - spreads time limits only
        self._snapshots: Final = OrderedDict[str, tuple[int, list[StoredObject]]]()
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.registry.create(NAMESPACES, {"metadata": {"name": name}})

    def handle(self, request: ApiRequest) -> ApiResponse:
        """Answer a request that is not a watch."""
        try:
            discovered = discover(self.registry, request.path)
            if discovered is not None:
                code, body = 200, discovered
            else:
                target = self._resolve(request.path)
                served = target.served
                if served.stored_version:
                    answer = self.handle(request_of_stored(request, served))
                    return response_in_version(answer, served)
                code, body = self._dispatch(target, request)
        except (status.StatusError, status.PageNotFoundError) as error:
            return render_error(error)
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return ApiResponse(status=code, body=payload, headers={"content-type": "application/json"})

    def watch(self, request: ApiRequest) -> Watch:
        """Open a watch.

        Raises:
            StatusError: 400, a parameter that cannot be used.
            PageNotFoundError: no such kind.
        """
        target, other = self._resolve(request.path), None
        if target.served.stored_version:
            other = target.served
            target = self._resolve(request_of_stored(request, other).path)
        query = request.query
        version = query.get("resourceVersion", "")
        if not version.isdigit() and version:
            raise status.bad_request(f'invalid resourceVersion "{version}"')
        initial_events = query.get("sendInitialEvents", "") in _TRUE
        if initial_events and query.get("resourceVersionMatch") != "NotOlderThan":
            raise status.invalid(
                target.served.kind,
                "",
                [status.FieldIssue("resourceVersionMatch", "Forbidden: must be NotOlderThan")],
            )
        from_now = initial_events or version in {"", "0"}
        limit = query.get("timeoutSeconds", "")
        name = f"metadata.name={target.name}" if target.name else ""
        return Watch(
            self.registry.store,
            target.served,
            namespace=target.namespace,
            selects=_selection(target.served, query, name),
            since=None if from_now else int(version),
            bookmarks=query.get("allowWatchBookmarks", "") in _TRUE,
            initial_events=initial_events,
            timeout_seconds=float(limit or self._random.uniform(1800, 3600)),
            other_version=other,
        )

    def compact(self) -> None:
        """Drop history and list snapshots: older watches and continue tokens get 410."""
        self.registry.store.compact()
        self._snapshots.clear()

    def _resolve(self, path: str) -> _RequestTarget:
        parts = path.strip("/").split("/")
        match parts:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise status.PageNotFoundError(path)
        namespace: str | None = None
        match rest:
            case ["namespaces", within, plural, *rest] if plural not in {"status", "finalize"}:
                namespace = within
            case [plural, *rest]:
                pass
            case _:
                raise status.PageNotFoundError(path)
        served = self.registry.served(group, version, plural)
        name, part, *surplus = (*rest, "", "")
        if any(surplus) or (namespace is not None and not served.kind.namespaced):
            raise status.PageNotFoundError(path)
        if not served.kind.namespaced:
            namespace = ""
        return _RequestTarget(served, namespace, name, part)

    def _dispatch(self, target: _RequestTarget, request: ApiRequest) -> tuple[int, Json | bytes]:
        match request.method, bool(target.name), target.part:
            case "GET", False, "":
                return 200, self._list(target, request.query)
            case "POST", False, "":
                return 201, self._create(target, request)
            case "DELETE", False, "":
                return 200, self._delete_collection(target, request)
            case "GET" | "PUT" | "PATCH" | "DELETE", True, "":
                return 200, self._object(target, request)
            case "GET" | "PUT" | "PATCH", True, "status" if target.served.status:
                return 200, self._object(target, request)
            case "GET" | "PUT" | "PATCH", True, "scale" if target.served.scale:
                return 200, self._scale(target, request)
            case "POST", True, "eviction" | "binding" if target.served.kind == PODS:
                act = pods.evict if target.part == "eviction" else pods.bind
                namespace, now = target.namespace or "", self.clock.now()
                body = _decode(request)
                return 201, act(self.registry, body, target.name, namespace, now=now)
            case _, _, "" | "status" | "scale" | "eviction" | "binding":
                raise status.StatusError(
                    405,
                    "MethodNotAllowed",
                    "the server does not allow this method on the requested resource",
                )
            case _:
                raise status.StatusError(
                    404, "NotFound", "the server could not find the requested resource"
                )

    # Objects

    def _create(self, target: _RequestTarget, request: ApiRequest) -> Json:
        obj = _decode(request)
        kind = target.served.kind
        for field, expected in (("kind", kind.kind), ("apiVersion", kind.api_version)):
            given = obj.get(field) or ("" if target.served.custom else expected)
            if given != expected:
                raise status.bad_request(
                    f'the {field} in the data ("{given}") does not match the expected "{expected}"'
                )
        if target.namespace is None:
            raise status.bad_request("an empty namespace may not be set during creation")
        return self.registry.create(kind, obj, target.namespace)

    def _object(self, target: _RequestTarget, request: ApiRequest) -> Json:
        kind, name, namespace = target.served.kind, target.name, target.namespace or ""
        match request.method:
            case "GET":
                return self.registry.read(kind, name, namespace)
            case "PUT":
                obj = _decode(request)
                return self.registry.update(kind, obj, name, namespace, part=target.part)
            case "PATCH":
                form, patch = _patch(request), _decode_any(request)
                return self.registry.patch(
                    kind, patch, name, namespace, part=target.part, form=form
                )
            case _:
                grace, preconditions = _delete_options(request)
                return self.registry.delete(
                    kind, name, namespace, grace_seconds=grace, preconditions=preconditions
                )

    def _delete_collection(self, target: _RequestTarget, request: ApiRequest) -> Json:
        selects = _selection(target.served, request.query)
        grace, _ = _delete_options(request)
        for stored in self.registry.store.all(target.served.kind, target.namespace):
            if selects is None or selects(stored.obj):
                namespace, name = stored.key
                self.registry.delete(target.served.kind, name, namespace, grace_seconds=grace)
        return status.success()

    def _scale(self, target: _RequestTarget, request: ApiRequest) -> Json:
        kind, name, namespace = target.served.kind, target.name, target.namespace or ""
        wanted_path, actual_path = target.served.scale or ("", "")
        obj = self.registry.read(kind, name, namespace)
        if request.method != "GET":
            scale = _scale_of(obj, wanted_path, actual_path)
            body = _decode_any(request)
            is_patch = request.method == "PATCH"
            given = apply_patch(scale, body, _patch(request)) if is_patch else cast("Json", body)
            sent = given.get("metadata", {}).get("resourceVersion")
            change: Json = {"metadata": {"resourceVersion": sent} if sent else {}}
            place = change
            *steps, leaf = wanted_path.strip(".").split(".")
            for step in steps:
                place = place.setdefault(step, {})
            place[leaf] = given.get("spec", {}).get("replicas", 0)
            obj = self.registry.patch(kind, change, name, namespace)
        return _scale_of(obj, wanted_path, actual_path)

    # Lists

    def _list(self, target: _RequestTarget, query: Mapping[str, str]) -> bytes:
        kind = target.served.kind
        version, objects, start = self._page_source(target, query)
        limit = int(query.get("limit") or 0)
        end = start + limit if limit else len(objects)
        metadata: Json = {"resourceVersion": str(version)}
        if end < len(objects):
            metadata["continue"] = self._remember(version, objects, end)
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                metadata["remainingItemCount"] = len(objects) - end
        typed = target.served.custom
        head = msgspec.json.encode(
            {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
        )
        items = b",".join(stored.encode(typed=typed) for stored in objects[start:end])
        return b'%b,"items":[%b]}' % (head[:-1], items)

    def _page_source(
        self, target: _RequestTarget, query: Mapping[str, str]
    ) -> tuple[int, list[StoredObject], int]:
        if token := query.get("continue", ""):
            try:
                key, _, start = base64.urlsafe_b64decode(token).decode().partition(":")
                place = int(start)
            except (ValueError, binascii.Error):
                raise status.bad_request("continue key is not valid") from None
            if key not in self._snapshots:
                raise status.expired("The provided continue parameter is too old")
            version, objects = self._snapshots[key]
            return version, objects, place
        selects = _selection(target.served, query)
        store = self.registry.store
        objects = store.all(target.served.kind, target.namespace)
        if selects is not None:
            objects = [stored for stored in objects if selects(stored.obj)]
        return store.version, objects, 0

    def _remember(self, version: int, objects: list[StoredObject], start: int) -> str:
        """Keep the version at which a paged list started, so that its pages are consistent."""
        key = f"{version}-{id(objects):x}"
        self._snapshots[key] = (version, objects)
        self._snapshots.move_to_end(key)
        while len(self._snapshots) > _SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return base64.urlsafe_b64encode(f"{key}:{start}".encode()).decode()


def _selection(
    served: ServedKind, query: Mapping[str, str], more_fields: str = ""
) -> Callable[[JsonMapping], bool] | None:
    fields = ",".join(filter(None, (query.get("fieldSelector", ""), more_fields)))
    by_field = field_predicate(fields, served.fields)
    by_label = label_predicate(query.get("labelSelector", ""))
    if by_field and by_label:
        return lambda obj: by_field(obj) and by_label(obj)
    return by_field or by_label


def _decode_any(request: ApiRequest) -> object:
    try:
        return msgspec.json.decode(request.body)
    except msgspec.DecodeError as error:
        raise status.bad_request(f"the body is not JSON: {error}") from error


def _decode(request: ApiRequest) -> Json:
    obj = _decode_any(request)
    if not isinstance(obj, dict):
        raise status.bad_request("the body is not an object")
    return cast("Json", obj)


def _patch(request: ApiRequest) -> PatchForm:
    media_type = request.content_type.partition(";")[0].strip()
    form = _PATCH_FORMS.get(media_type)
    if form is None:
        raise status.StatusError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join(_PATCH_FORMS)}",
        )
    return form


def _delete_options(request: ApiRequest) -> tuple[int | None, Json | None]:
    options: Json = _decode(request) if request.body else {}
    grace = options.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
    return None if grace is None else int(grace), options.get("preconditions")


def _scale_of(obj: Json, wanted_path: str, actual_path: str) -> Json:
    metadata = obj["metadata"]
    copied_fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in copied_fields if key in metadata},
        "spec": {"replicas": _number_at(obj, wanted_path)},
        "status": {"replicas": _number_at(obj, actual_path)},
    }


def _number_at(obj: Json, path: str) -> int:
    *steps, leaf = path.strip(".").split(".")
    for step in steps:
        obj = section(obj, step)
    return obj.get(leaf) or 0
