"""Parses HTTP requests into calls, and writes the replies.

Three forms of RPC reach the same call: the action in a header (what the SDKs send by default), the
action among the parameters (the classic form), parameters in the query or in a form body.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import parse_qsl, unquote

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.server import HttpReply
from karpenter_simulated_alibabacloud.parameters import RequestParameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.provider.kit.simulated.server import HttpRequest

__all__ = ["ApiCall", "nested", "read_call", "refuse", "reply"]

_SERVICES: Final = {"2014-05-26": "ecs", "2016-04-28": "vpc", "2015-12-15": "cs"}
_NOT_FOUND: Final = 404
# Parameters of the protocol, not of any action.
_PROTOCOL: Final = frozenset(
    {
        "AccessKeyId",
        "Action",
        "Format",
        "SecurityToken",
        "Signature",
        "SignatureMethod",
        "SignatureNonce",
        "SignatureType",
        "SignatureVersion",
        "Timestamp",
        "Version",
    }
)
_ROUTES: Final = (
    ("GET", re.compile(r"/clusters/(?P<ClusterId>[^/]+)"), "DescribeClusterDetail"),
    ("GET", re.compile(r"/clusters/(?P<ClusterId>[^/]+)/nodepools"), "DescribeClusterNodePools"),
    (
        "POST",
        re.compile(r"/clusters/(?P<ClusterId>[^/]+)/attachscript"),
        "DescribeClusterAttachScripts",
    ),
    ("GET", re.compile(r"/api/v1/metadata/versions"), "DescribeKubernetesVersionMetadata"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One request, understood."""

    service: str
    """`ecs`, `vpc` or `cs`."""
    action: str
    """As in the API: `RunInstances`."""
    parameters: RequestParameters
    request: HttpRequest

    @property
    def name(self) -> str:
        """Service and action, `ecs:RunInstances`, as RAM policies name it."""
        return f"{self.service}:{self.action}"


def read_call(request: HttpRequest) -> ApiCall:
    """Understand a request.

    Raises:
        CloudError: there is no such action.
    """
    flat = dict(parse_qsl(request.query, keep_blank_values=True))
    content_type = request.headers.get("content-type", "")
    if request.path != "/":
        return _rest_call(request, flat)
    if content_type.startswith("application/x-www-form-urlencoded"):
        flat |= dict(parse_qsl(request.body.decode(), keep_blank_values=True))
    action = request.headers.get("x-acs-action") or flat.get("Action", "")
    version = request.headers.get("x-acs-version") or flat.get("Version", "")
    service = _SERVICES.get(version)
    if service is None or not action:
        raise CloudError(
            "InvalidAction.NotFound",
            f"Specified api is not found, please check your url and method: {action} {version}.",
            status=_NOT_FOUND,
        )
    own = {name: value for name, value in flat.items() if name not in _PROTOCOL}
    return ApiCall(
        service=service,
        action=action,
        parameters=RequestParameters(nested(own.items())),
        request=request,
    )


def _rest_call(request: HttpRequest, query: Mapping[str, str]) -> ApiCall:
    for method, pattern, action in _ROUTES:
        found = pattern.fullmatch(request.path)
        if found is None or method != request.method:
            continue
        values: dict[str, object] = dict(query)
        if request.body:
            values |= cast("dict[str, object]", json.loads(request.body))
        values |= {name: unquote(value) for name, value in found.groupdict().items()}
        return ApiCall(
            service="cs", action=action, parameters=RequestParameters(values), request=request
        )
    raise CloudError(
        "InvalidAction.NotFound",
        f"Specified api is not found: {request.method} {request.path}.",
        status=_NOT_FOUND,
    )


def nested(flat: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Build mappings and lists of names with dots: `Tag.1.Key` is of the first item of `Tag`."""
    root: dict[str, object] = {}
    for name, value in flat:
        *path, last = name.split(".")
        at = root
        for part in path:
            found = at.setdefault(part, {})
            if not isinstance(found, dict):
                raise CloudError("InvalidParameter", f"The parameter {name} contradicts {part}.")
            at = cast("dict[str, object]", found)
        at[last] = value
    return {name: _listed(value) for name, value in root.items()}


def _listed(value: object) -> object:
    """Make lists of mappings whose keys are numbers."""
    if not isinstance(value, dict):
        return value
    items = cast("dict[str, object]", value)
    if items and all(key.isdigit() for key in items):
        return [_listed(items[key]) for key in sorted(items, key=int)]
    return {key: _listed(each) for key, each in items.items()}


def reply(answer: object, *, request_id: str, service: str = "ecs") -> HttpReply:
    """Write an answer: a mapping or a list as JSON, text as it is."""
    if isinstance(answer, str):
        return _reply(200, answer.encode(), request_id, content_type="text/plain;charset=utf-8")
    body: object = answer
    if isinstance(answer, dict) and service != "cs":
        body = {**cast("dict[str, object]", answer), "RequestId": request_id}
    return _reply(200, json.dumps(body, separators=(",", ":")).encode(), request_id)


def refuse(
    error: CloudError, *, request_id: str, service: str, region: str, retry_after_ms: int = 0
) -> HttpReply:
    """Write a refusal as the service of the call does."""
    host = f"{service}.{region}.aliyuncs.com"
    if service == "cs":
        body = {"code": error.code, "message": error.message, "requestId": request_id}
    else:
        body = {
            "RequestId": request_id,
            "HostId": host,
            "Code": error.code,
            "Message": error.message,
            "Recommend": f"https://api.aliyun.com/troubleshoot?q={error.code}&product={service}",
        }
    extra = (("x-acs-retry-after", str(retry_after_ms)),) if retry_after_ms > 0 else ()
    return _reply(error.status, json.dumps(body).encode(), request_id, extra=extra)


def _reply(
    status: int,
    body: bytes,
    request_id: str,
    *,
    content_type: str = "application/json;charset=utf-8",
    extra: tuple[tuple[str, str], ...] = (),
) -> HttpReply:
    headers = (("Content-Type", content_type), ("x-acs-request-id", request_id), *extra)
    return HttpReply(status=status, headers=headers, body=body)
