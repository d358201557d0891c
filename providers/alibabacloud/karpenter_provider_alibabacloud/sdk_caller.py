"""Calls one service's generated SDK with plain mappings.

Requests are checked, and answers are returned as they came. The module makes up for what the SDK
lacks: it has no endpoint inside a VPC for the regions of its own table; it sends everything through
the proxies that the environment names, hosts of `NO_PROXY` too; and it writes debug lines to
standard error.
"""

from __future__ import annotations

import copy
import inspect
import logging
import re
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast, final

from karpenter_core.provider.kit.calls.bounded_reads import (
    UnusableAnswerError,
    read_bounded_pool_answer,
)
from karpenter_provider_alibabacloud.codes import NO_CREDENTIALS, ApiError
from karpenter_provider_alibabacloud.sdk_models import load_models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    from alibabacloud_tea_openapi.utils_models import Config
    from requests import PreparedRequest, Response
    from requests.adapters import HTTPAdapter

    from karpenter_provider_alibabacloud.api_answers import ApiAnswer
    from karpenter_provider_alibabacloud.credentials import Credential

__all__ = ["SdkCaller", "ServiceEndpoint", "request_model", "unknown_names"]

_PACKAGES: Final = {
    "ecs": "alibabacloud_ecs20140526",
    "vpc": "alibabacloud_vpc20160428",
    "cs": "alibabacloud_cs20151215",
}
# Documented for ECS, VPC and ACK in all regions; the SDK's table of exceptions ignores the network.
_VPC_HOSTS: Final = {
    "ecs": "ecs-vpc.{region}.aliyuncs.com",
    "vpc": "vpc-vpc.{region}.aliyuncs.com",
    "cs": "cs-anony-vpc.{region}.aliyuncs.com",
}
_OPTIONS: Final = "_with_options"
_OUTAGE: Final = re.compile(
    r'\bhttp_?code[:=] ?(?:429|5\d\d)\b|"Code": ?"Throttling\b', re.IGNORECASE
)
"""Texts of the credentials library about answers that give no keys now, and may later."""
_LAUNCHES: Final = frozenset({"CreateAutoProvisioningGroup", "RunInstances"})
"""Actions that are answered when instances are made, which takes longer than other calls."""


class _ServiceClient(Protocol):
    """The part of a generated client that all services have."""

    def call_api(self, params: object, request: object, runtime: object) -> ApiAnswer: ...


class _RequestModel(Protocol):
    """The model of a request that the SDK generates."""

    def from_map(self, m: object) -> object: ...

    def to_map(self) -> Mapping[str, object]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEndpoint:
    """The endpoint of a service."""

    region: str
    network: str
    address: str
    """`host:port` instead of the region's own."""
    protocol: str
    """`https` when empty."""

    def host(self, service: str) -> str | None:
        """Return the host to speak to, or None for the one the SDK knows."""
        if self.address:
            return self.address
        if self.network == "vpc":
            return _VPC_HOSTS[service].format(region=self.region)
        return None


@final
class SdkCaller:
    """The SDK's client of one service; callable from any thread. Each call is one try."""

    def __init__(
        self,
        service: str,
        endpoint: ServiceEndpoint,
        *,
        credential: Credential,
        connect_seconds: float,
        read_seconds: float,
        launch_read_seconds: float,
        connections: int,
    ) -> None:
        self._launch_read_milliseconds: Final = round(launch_read_seconds * 1000)
        self._service: Final = service
        from alibabacloud_tea_openapi.utils_models import Config

        self._models: Final = load_models(_PACKAGES[service])
        protocol = endpoint.protocol or "https"
        config = Config(
            credential=credential.client,
            region_id=endpoint.region,
            endpoint=endpoint.host(service),
            protocol=protocol,
            connect_timeout=round(connect_seconds * 1000),
            read_timeout=round(read_seconds * 1000),
            max_idle_conns=connections,
            user_agent="karpenter",
        )
        make: Callable[[Config], _ServiceClient] = import_module(
            f"{_PACKAGES[service]}.client"
        ).Client
        self._client: Final = make(config)
        self._methods: Final = _methods(type(self._client))
        host: str = vars(self._client)["_endpoint"]
        self._close_session: Final = _routed_session(
            protocol,
            host,
            connections,
            direct=bool(endpoint.address),
            answer_seconds=read_seconds,
        )
        _silence()

    def call(self, action: str, parameters: Mapping[str, object]) -> ApiAnswer:
        """Call once.

        Raises:
            ApiError: it was refused, or there was no answer.
            TypeError: the API has no such action or parameter.
        """
        name = self._methods.get(action.lower())
        if name is None:
            raise TypeError(f"{self._service} has no action {action}")
        answers: list[ApiAnswer] = []

        def call_api(params: object, request: object, runtime: object) -> ApiAnswer:
            answers.append(self._client.call_api(params, request, runtime))
            return {}

        # The SDK's method makes the request; its answer is taken before it is read into models.
        once = copy.copy(self._client)
        vars(once)["call_api"] = call_api
        method: Callable[..., object] = getattr(once, name)
        arguments = self._arguments(action, parameters, inspect.signature(method))
        try:
            method(*arguments)
        except Exception as error:
            raise self._failure(action, error) from error
        body = answers[0].get("body")
        return cast("ApiAnswer", body) if isinstance(body, dict) else {"body": body}

    def close(self) -> None:
        """Close the connections."""
        self._close_session()

    def _arguments(
        self, action: str, parameters: Mapping[str, object], signature: inspect.Signature
    ) -> list[object]:
        unread = dict(parameters)
        arguments: list[object] = []
        for name in signature.parameters:
            match name:
                case "request" | "tmp_req":
                    request, unknown = request_model(self._models, action, unread)
                    unread = dict.fromkeys(unknown)
                    arguments.append(request)
                case "headers":
                    arguments.append({})
                case "runtime":
                    arguments.append(self._runtime(action))
                case _:  # a part of the path
                    value = unread.pop(_camel(name), None)
                    if not value:
                        raise TypeError(f"{self._service}:{action} needs {_camel(name)}")
                    arguments.append(value)
        if unread:
            raise TypeError(
                f"{self._service}:{action} has no parameter {', '.join(sorted(unread))}"
            )
        return arguments

    def _runtime(self, action: str) -> object:
        from darabonba.runtime import RuntimeOptions

        if action in _LAUNCHES:
            return RuntimeOptions(read_timeout=self._launch_read_milliseconds)
        return RuntimeOptions()

    def _failure(self, action: str, error: Exception) -> ApiError:
        from alibabacloud_credentials.exceptions import CredentialException
        from alibabacloud_tea_openapi.exceptions import AlibabaCloudException

        action = f"{self._service}:{action}"
        inner = getattr(error, "inner_exception", error)
        if isinstance(inner, CredentialException) and not _is_outage(str(inner)):
            return ApiError(NO_CREDENTIALS, str(inner), action=action)
        if not isinstance(error, AlibabaCloudException):
            return ApiError("", f"no answer: {getattr(inner, 'message', inner)}", action=action)
        data = error.data or {}
        # The SDK's own message has the status and the request's id in its text.
        message = data.get("Message") or data.get("message") or error.message
        wait = error.retry_after
        return ApiError(
            _text(error.code),
            str(message or ""),
            _text(error.request_id),
            error.status_code or 0,
            None if wait is None else timedelta(milliseconds=wait),
            action=action,
        )


def _is_outage(text: str) -> bool:
    """Whether the service that gives keys failed or throttled: the library tells it in its text alone."""
    return _OUTAGE.search(text) is not None


def _text(value: str | None) -> str:
    """Return a text of an error; the SDK writes `None` where there is none."""
    return "" if value is None or value == "None" else value


def request_model(
    models: ModuleType, action: str, parameters: Mapping[str, object]
) -> tuple[_RequestModel, list[str]]:
    """Return the SDK's model of a request, and the parameters that it does not know (`Tag.1.Keyy`)."""
    make: Callable[[], _RequestModel] = getattr(models, f"{action}Request")
    model = make()
    given = _plain(parameters)
    model.from_map(given)
    return model, sorted(unknown_names(given, model.to_map()))


def unknown_names(given: object, known: object, path: str = "") -> Iterator[str]:
    """Yield the names in `given` that got lost in `known`; entries of lists are counted from 1."""
    if isinstance(given, dict):
        known_values = cast("dict[str, object]", known) if isinstance(known, dict) else {}
        for name, value in cast("dict[str, object]", given).items():
            if name not in known_values:
                yield f"{path}{name}"
            else:
                yield from unknown_names(value, known_values[name], f"{path}{name}.")
    elif isinstance(given, list):  # of which a model keeps all entries
        entries = zip(cast("list[object]", given), cast("list[object]", known), strict=True)
        for position, (entry, kept_entry) in enumerate(entries, start=1):
            yield from unknown_names(entry, kept_entry, f"{path}{position}.")


def _plain(value: object) -> object:
    from collections.abc import Mapping as AnyMapping

    if isinstance(value, AnyMapping):
        mapping = cast("Mapping[str, object]", value)
        return {name: _plain(part) for name, part in mapping.items() if part is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in cast("Sequence[object]", value)]
    return value


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


@cache
def _methods(client: type[object]) -> Mapping[str, str]:
    """Return the methods that make one call, by the action in lower case.

    The generator writes `describe_vswitches` for `DescribeVSwitches`: no rule leads from one to the
    other, but without the underscores they are the same.
    """
    return {
        name.removesuffix(_OPTIONS).replace("_", ""): name
        for name in dir(client)
        if name.endswith(_OPTIONS)
    }


def _routed_session(
    protocol: str, host: str, connections: int, *, direct: bool, answer_seconds: float
) -> Callable[[], None]:
    """Give the SDK the session that it will look for; return what closes it.

    The SDK keeps sessions by endpoint and makes one where there is none. It passes the environment's
    proxies with each request without looking at `NO_PROXY`, so they are decided on here, once, by the
    rules that everything else of this process follows.
    """
    from darabonba.core import DaraCore
    from requests import Session
    from requests.utils import get_environ_proxies

    sessions: dict[str, Session] = vars(DaraCore)["_sessions"]  # it has no other door
    proxies = {} if direct else get_environ_proxies(f"{protocol}://{host}")
    key = f"{protocol}://{host.rstrip('/')}:80:pool={connections}"
    session = Session()
    session.trust_env = False
    # A redirect would take the token of the credentials along, in a header of Alibaba Cloud's own.
    vars(session)["get_redirect_target"] = _no_redirect
    adapter = _routed(protocol, connections, proxies, answer_seconds=answer_seconds)
    session.mount(f"{protocol}://", adapter)
    sessions[key] = session

    def close() -> None:
        session.close()
        if sessions.get(key) is session:
            del sessions[key]

    return close


def _no_redirect(_response: object) -> None:
    """Take a redirect for an answer like any other."""


def _routed(
    protocol: str,
    connections: int,
    proxies: Mapping[str, str],
    *,
    answer_seconds: float,
) -> HTTPAdapter:
    """Return the SDK's own adapter, with its TLS settings, sending by `proxies` alone.

    It reads answers up to a size and for a time: the SDK reads them whole. Plain HTTP gets an adapter without TLS: the SDK would read all root certificates for it.
    """
    from darabonba.core import DaraCore
    from requests.adapters import HTTPAdapter
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    adapter = (
        HTTPAdapter(pool_maxsize=connections)
        if protocol == "http"
        else DaraCore.get_adapter(protocol, pool_size=connections)
    )
    send: Callable[..., Response] = adapter.send

    def routed(request: PreparedRequest, **options: object) -> Response:
        response = send(request, **(options | {"proxies": proxies}))
        try:
            content = read_bounded_pool_answer(response.raw, seconds=answer_seconds, decode=True)
        except (UnusableAnswerError, HTTPError) as error:
            # The SDK takes errors of this kind for no answer.
            raise RequestException(str(error)) from error
        # Where requests itself has it.
        vars(response).update(_content=content, _content_consumed=True)
        return response

    vars(adapter)["send"] = routed
    return adapter


def _silence() -> None:
    """Leave what the SDK logs to the process's own handlers."""
    for name in ("darabonba-core", "alibabacloud-tea", "credentials"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.WARNING)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
