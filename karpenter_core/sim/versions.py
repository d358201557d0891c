"""Serves all versions of a kind, as definitions without conversion do.

An object is stored once. Under another version it is the same object with another `apiVersion`;
a deprecated version adds a warning to each answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import msgspec

from karpenter_core.sim import status

if TYPE_CHECKING:
    from karpenter_core.kube.transport import ApiRequest, ApiResponse
    from karpenter_core.sim.fields import Json
    from karpenter_core.sim.kinds import ServedKind

__all__ = ["line_in_version", "request_of_stored", "response_in_version"]


def request_of_stored(request: ApiRequest, served: ServedKind) -> ApiRequest:
    """Return a request of another version as one of the stored version.

    Raises:
        StatusError: 400, the body has another version than the path.
    """
    kind = served.kind
    before, after = f"/{kind.group}/{kind.version}/", f"/{kind.group}/{served.stored_version}/"
    path = request.path.replace(before, after, 1)
    return replace(request, path=path, body=_body_of_stored(request.body, served))


def response_in_version(response: ApiResponse, served: ServedKind) -> ApiResponse:
    """Return an answer about stored objects as one of another version."""
    headers = {**response.headers}
    if served.warning:
        headers["warning"] = f'299 - "{served.warning}"'
    try:
        body = msgspec.json.decode(response.body)
    except msgspec.DecodeError:
        return replace(response, headers=headers)
    return replace(response, body=msgspec.json.encode(_in_version(body, served)), headers=headers)


def line_in_version(line: bytes, served: ServedKind) -> bytes:
    """Return a line of a watch of stored objects as one of another version."""
    event = msgspec.json.decode(line)
    event["object"] = _in_version(event["object"], served)
    return msgspec.json.encode(event) + b"\n"


def _body_of_stored(body: bytes, served: ServedKind) -> bytes:
    try:
        given = msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        return body
    obj = cast("Json", given) if isinstance(given, dict) else {}
    if not obj.get("apiVersion"):
        return body
    expected = served.kind.api_version
    if obj["apiVersion"] != expected:
        raise status.bad_request(
            f'the apiVersion in the data ("{obj["apiVersion"]}") does not match the expected '
            f'"{expected}"'
        )
    return msgspec.json.encode({**obj, "apiVersion": _stored_api_version(served)})


def _in_version(obj: Json, served: ServedKind) -> Json:
    if obj.get("apiVersion") != _stored_api_version(served):
        return obj
    changed: Json = {**obj, "apiVersion": served.kind.api_version}
    if "items" in changed:
        changed["items"] = [_in_version(item, served) for item in changed["items"]]
    return changed


def _stored_api_version(served: ServedKind) -> str:
    return replace(served.kind, version=served.stored_version).api_version
