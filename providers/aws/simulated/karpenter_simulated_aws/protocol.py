"""Parses HTTP requests into calls, and writes the replies.

Parsers and serializers are moto's, driven by botocore's own description of each service; so every
parameter arrives under its name in the API, and an answer is written from the same names.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import parse_qsl, unquote_to_bytes
from xml.sax.saxutils import escape

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.server import HttpReply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moto.core.model import OperationModel, ServiceModel
    from moto.core.parse import RequestDict

    from karpenter_core.provider.kit.simulated.server import HttpRequest

__all__ = [
    "ApiCall",
    "AwsError",
    "operation_model",
    "read_call",
    "refuse",
    "reply",
    "wsgi_environ",
]

_REQUEST_ID: Final = "00000000-0000-0000-0000-000000000000"
_QUERY_SERVICES: Final = frozenset({"iam", "sts"})
_REST_SERVICES: Final = frozenset({"eks", "arc-zonal-shift"})
_SCOPE_PARTS: Final = 5  # access key, date, region, service, "aws4_request"


class AwsError(CloudError):
    """A refusal in the words of AWS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One request."""

    service: str
    """The name in the signature: `ec2`, `iam`, `arc-zonal-shift`."""
    action: str
    """As in the API: `CreateFleet`."""
    region: str
    access_key: str
    parameters: Mapping[str, object] = field(default_factory=dict[str, object])
    request: HttpRequest

    @property
    def name(self) -> str:
        """Service and action, `ec2:CreateFleet`, as IAM policies name it."""
        return f"{self.service}:{self.action}"


def read_call(request: HttpRequest) -> ApiCall | None:
    """Read a request; None when it is not signed, or not one of a service with known actions."""
    signature = request.headers.get("authorization", "")
    if "Credential=" not in signature:
        return None
    scope = signature.split("Credential=", 1)[1].split(",", 1)[0].strip().split("/")
    if len(scope) != _SCOPE_PARTS:
        return None
    access_key, _, region, service, _ = scope
    try:
        action, parameters = _action(service, request)
    except (LookupError, ValueError):
        return None
    return ApiCall(
        service=service,
        action=action,
        region=region,
        access_key=access_key,
        parameters=parameters,
        request=request,
    )


def wsgi_environ(request: HttpRequest) -> dict[str, object]:
    """Return a request as WSGI has it, for moto."""
    environ: dict[str, object] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(request.path).decode("latin-1"),
        "QUERY_STRING": request.query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(request.body)),
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(request.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        if name not in {"content-length", "content-type"}:
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
    return environ


def _action(service: str, request: HttpRequest) -> tuple[str, Mapping[str, object]]:
    from werkzeug.datastructures import MultiDict

    values: MultiDict[str, str] = MultiDict()
    uri_values: Mapping[str, object] = {}
    if service in _REST_SERVICES:
        action, uri_values = _routed(service, wsgi_environ(request))
    elif target := request.headers.get("x-amz-target", ""):
        action = target.rpartition(".")[2]
    else:
        values = MultiDict(parse_qsl(request.body.decode(), keep_blank_values=True))
        action = values["Action"]
    return action, _parsed(
        service,
        action,
        {
            "method": request.method,
            "values": values,
            "headers": {},
            "body": request.body,
            "url_path": unquote_to_bytes(request.path).decode("latin-1"),
            "url_params": uri_values,
        },
    )


def _routed(service: str, environ: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    from moto.core.request import Request
    from moto.core.routing import get_service_router

    operation, parameters = get_service_router(service).match(Request(dict(environ)))
    return str(operation.name), cast("Mapping[str, object]", parameters)


def _parsed(service: str, action: str, request: Mapping[str, object]) -> Mapping[str, object]:
    from moto.core.parse import PROTOCOL_PARSERS

    model = _model(service)
    parser = PROTOCOL_PARSERS[model.protocol](model.operation_model(action))
    return cast("Mapping[str, object]", parser.parse(cast("RequestDict", request)) or {})


def _model(service: str) -> ServiceModel:
    from moto.core.utils import get_service_model

    return get_service_model(service)


def operation_model(service: str, action: str) -> OperationModel:
    """Return botocore's description of an action."""
    return _model(service).operation_model(action)


def reply(call: ApiCall, answer: Mapping[str, object]) -> HttpReply:
    """Write an answer given under the names of the API."""
    from moto.core.serialize import get_serializer_class

    model = _model(call.service)
    serializer = get_serializer_class(model.service_name, model.protocol)(
        operation_model=model.operation_model(call.action),
    )
    written = serializer.serialize(answer)
    body = written["body"]
    return HttpReply(
        status=int(written["status_code"]),
        headers=tuple(cast("Mapping[str, str]", written["headers"]).items()),
        body=body.encode() if isinstance(body, str) else body,
    )


def refuse(call: ApiCall, error: CloudError) -> HttpReply:
    """Write a refusal as the service of the call does."""
    if call.service == "ec2":
        body = (
            f"<Response><Errors><Error><Code>{escape(error.code)}</Code>"
            f"<Message>{escape(error.message)}</Message></Error></Errors>"
            f"<RequestID>{_REQUEST_ID}</RequestID></Response>"
        )
        return HttpReply(
            status=error.status,
            headers=(("Content-Type", "text/xml"),),
            body=f'<?xml version="1.0" encoding="utf-8"?>\n{body}'.encode(),
        )
    if call.service in _QUERY_SERVICES:
        body = (
            f"<ErrorResponse><Error><Type>Sender</Type><Code>{escape(error.code)}</Code>"
            f"<Message>{escape(error.message)}</Message></Error>"
            f"<RequestId>{_REQUEST_ID}</RequestId></ErrorResponse>"
        )
        return HttpReply(
            status=error.status, headers=(("Content-Type", "text/xml"),), body=body.encode()
        )
    headers = [
        ("Content-Type", "application/x-amz-json-1.1"),
        ("x-amzn-errortype", error.code),
    ]
    if call.service == "sqs":
        headers.append(("x-amzn-query-error", f"{error.code};Sender"))
    return HttpReply(
        status=error.status,
        headers=tuple(headers),
        body=json.dumps({"__type": error.code, "message": error.message}).encode(),
    )
