"""Parses Resource Manager calls; routes them by method and resource type.

Paths are read without regard to case; `ArmCall` keeps the casing that was sent, and the resource type in
the casing of its route. The list of a collection has the method `LIST`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast, final
from urllib.parse import parse_qsl, unquote

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_azure.arm_paths import parse_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.provider.kit.simulated.server import HttpRequest
    from karpenter_simulated_azure.arm_paths import ArmPath

    Handler = Callable[["ArmCall"], "ArmReply"]
    """Answers a call; raises `CloudError`."""

__all__ = [
    "ApiVersions",
    "ArmCall",
    "ArmFault",
    "ArmReply",
    "ArmRoute",
    "ArmRoutes",
    "Handler",
    "error_object",
]

LIST: Final = "LIST"
"""The method of a GET that names a collection."""


@final
class ArmFault(CloudError):  # noqa: N818 - a refusal that the cloud sends
    """An error in the form of Azure Resource Manager, for an answer or a long-running operation."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 400,
        target: str = "",
        details: Sequence[JsonMapping] = (),
        innererror: JsonMapping | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after_seconds: float | None = None,
        is_flat: bool = False,
    ) -> None:
        super().__init__(code, message, status=status, retry_after_seconds=retry_after_seconds)
        self.is_flat: Final = is_flat
        """Whether an answer has it without `error` around it, as answers of AKS."""
        self.target: Final = target
        self.details: Final = tuple(details)
        """Further errors, each with `code` and `message`."""
        self.innererror: Final = innererror
        self.headers: Final = dict(headers or {})


def error_object(error: CloudError) -> JsonObject:
    """Return the object that stands under `error` in answers and in failed operations."""
    found: JsonObject = {"code": error.code, "message": error.message}
    if isinstance(error, ArmFault):
        if error.target:
            found["target"] = error.target
        if error.details:
            found["details"] = [dict(each) for each in error.details]
        if error.innererror is not None:
            found["innererror"] = dict(error.innererror)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersions:
    """The api-versions that a resource type accepts, by date."""

    earliest: str = "2016-02-01"
    latest: str = "2026-12-31"
    previews: bool = True
    """Whether versions that end in `-preview` are accepted."""

    def accept(self, version: str) -> bool:
        """Return whether a version is accepted."""
        found = re.fullmatch(r"(\d{4}-\d{2}-\d{2})(-preview)?", version)
        return (
            found is not None
            and self.earliest <= found[1] <= self.latest
            and (self.previews or found[2] is None)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmReply:
    """The answer of a handler; the application adds the headers that every answer has."""

    status: int = 200
    body: JsonMapping | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRoute:
    """The calls of one method on one resource type."""

    method: str
    """`GET`, `LIST`, `PUT`, `PATCH`, `POST` or `DELETE`."""
    resource_type: str
    """In canonical casing: `Microsoft.Compute/virtualMachines/extensions`."""
    handler: Handler
    api_versions: ApiVersions | None
    """None if the path has no api-version."""
    operation_class: str
    action: str
    """The name in the log, in faults and in metrics: `virtualMachines:put`."""
    public: bool = False
    """Whether it is answered without a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCall:
    """One request that a route matches."""

    route: ArmRoute
    method: str
    """`LIST` for the GET of a collection."""
    path: str
    """As sent, decoded, without the query."""
    subscription: str = ""
    resource_group: str = ""
    resource_type: str = ""
    """In canonical casing: `Microsoft.Compute/virtualMachines`."""
    names: tuple[str, ...] = ()
    """The names of the resource and its parents, as sent, outermost first; a list has no own name."""
    api_version: str = ""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    """By name in lower case: `$filter`, `$skiptoken`, `forcedeletion`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """By name in lower case."""
    body: JsonObject = field(default_factory=dict[str, "object"])
    """The JSON body; empty if there is none."""
    content: bytes = b""
    """The body as sent."""
    base_url: str = ""
    """The URL that the caller reached the cloud by: `https://127.0.0.1:41234`."""

    @property
    def action(self) -> str:
        """The name of its route: `virtualMachines:put`."""
        return self.route.action

    @property
    def name(self) -> str:
        """The action, for patterns of faults."""
        return self.route.action

    @property
    def service(self) -> str:
        """The namespace of the resource provider: `Microsoft.Compute`."""
        return self.resource_type.partition("/")[0]

    @property
    def operation_class(self) -> str:
        """The class whose rate limits it: `compute-put-vm`."""
        return self.route.operation_class

    @property
    def resource_name(self) -> str:
        """The innermost name, as sent; empty for a list in a group or a subscription."""
        return self.names[-1] if self.names else ""

    @property
    def parameters(self) -> Mapping[str, object]:
        """Its parts for the log and for the conditions of faults."""
        return {
            "path": self.path,
            "name": self.resource_name,
            "resource_group": self.resource_group,
            "query": self.query,
            "headers": self.headers,
            "body": self.body,
        }


@final
class ArmRoutes:
    """The routes of a simulated Azure."""

    def __init__(self) -> None:
        self._routes: Final[dict[tuple[str, str], ArmRoute]] = {}
        self._pages: Final[list[tuple[str, re.Pattern[str], ArmRoute]]] = []

    def add(
        self,
        method: str,
        resource_type: str,
        handler: Handler,
        *,
        api_versions: ApiVersions = ApiVersions(),
        operation_class: str = "",
        action: str = "",
    ) -> None:
        """Add the handler of a method on a resource type.

        Without an operation class it is derived from type and method: `compute-put-vm`,
        `network-reads`, `reads`. The action is the last part of the type with the method, as
        `virtualMachines:put`, unless one is given.
        """
        route = ArmRoute(
            method=method,
            resource_type=resource_type,
            handler=handler,
            api_versions=api_versions,
            operation_class=operation_class or _operation_class(method, resource_type),
            action=action or f"{resource_type.rpartition('/')[2]}:{method.lower()}",
        )
        self._routes[method, resource_type.lower()] = route

    def add_page(
        self, method: str, pattern: str, handler: Handler, *, action: str, public: bool = True
    ) -> None:
        """Add the handler of a path outside of Azure Resource Manager; `names` has the groups.

        The pattern is a regular expression for the whole path, without regard to case.
        """
        route = ArmRoute(
            method=method,
            resource_type="",
            handler=handler,
            api_versions=None,
            operation_class="",
            action=action,
            public=public,
        )
        self._pages.append((method, re.compile(pattern, re.IGNORECASE), route))

    def read(self, request: HttpRequest) -> ArmCall:
        """Return the call of a request.

        Raises:
            ArmFault: there is no such path or resource type, or the body is not a JSON object.
        """
        query = {
            name.lower(): value for name, value in parse_qsl(request.query, keep_blank_values=True)
        }
        base_url = f"https://{request.headers.get('host', '')}"
        for method, pattern, route in self._pages:
            found = pattern.fullmatch(request.path)
            if found is not None and method == request.method:
                return ArmCall(
                    route=route,
                    method=method,
                    path=request.path,
                    names=tuple(unquote(each) for each in found.groups()),
                    query=query,
                    headers=request.headers,
                    content=request.body,
                    base_url=base_url,
                )
        parts = parse_path(request.path)
        if parts is None:
            raise ArmFault(
                "InvalidRequestUri", f"The request uri {request.path} is not valid.", status=400
            )
        listed = request.method == "GET" and parts.is_collection
        method = LIST if listed else request.method
        route = self._routes.get((method, parts.resource_type.lower()))
        if route is None:
            raise self._unknown_type(parts, query.get("api-version", ""), request.method)
        return ArmCall(
            route=route,
            method=method,
            path=unquote(request.path),
            subscription=parts.subscription,
            resource_group=parts.resource_group,
            resource_type=route.resource_type,
            names=parts.names,
            api_version=query.get("api-version", ""),
            query=query,
            headers=request.headers,
            body=_read_body(request),
            content=request.body,
            base_url=base_url,
        )

    def _unknown_type(self, parts: ArmPath, api_version: str, method: str) -> ArmFault:
        wanted = parts.resource_type.lower()
        if any(known == wanted for _, known in self._routes):
            return ArmFault(
                "HttpMethodNotSupported",
                f"The HTTP method {method} is not supported at the scope of {wanted}.",
                status=405,
            )
        namespace, kind = parts.types[0], "/".join(parts.types[1:])
        return ArmFault(
            "InvalidResourceType",
            f"The resource type '{kind}' could not be found in the namespace '{namespace}' for api"
            f" version '{api_version}'.",
            status=404,
        )


_UPDATES: Final = dict.fromkeys(("PUT", "PATCH", "DELETE", "POST"), "compute-update-vm")
_VM_CLASSES: Final[Mapping[str, Mapping[str, str]]] = {
    "microsoft.compute/virtualmachines": {
        **_UPDATES,
        "PUT": "compute-put-vm",
        "DELETE": "compute-delete-vm",
        "GET": "compute-get-vm",
        LIST: "compute-list-vms",
    },
    "microsoft.compute/virtualmachines/extensions": {
        **_UPDATES,
        "GET": "compute-get-vm",
        LIST: "compute-get-vm",
    },
}
"""The documented policies for virtual machines, by type in lower case and method."""


def _operation_class(method: str, resource_type: str) -> str:
    namespace = resource_type.partition("/")[0]
    of_vm = _VM_CLASSES.get(resource_type.lower(), {})
    if method in of_vm:
        return of_vm[method]
    kind = "reads" if method in {"GET", LIST} else "deletes" if method == "DELETE" else "writes"
    for known in ("compute", "network"):
        if namespace.lower() == f"microsoft.{known}":
            return f"{known}-{kind}"
    return "graph" if namespace == "Microsoft.ResourceGraph" else kind


def _read_body(request: HttpRequest) -> JsonObject:
    if not request.body:
        return {}
    try:
        found: object = json.loads(request.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ArmFault(
            "InvalidRequestContent",
            "The request content was invalid and could not be deserialized as a JSON object.",
        )
    return cast("JsonObject", found)
