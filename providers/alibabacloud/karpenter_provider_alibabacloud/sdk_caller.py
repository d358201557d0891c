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
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast, final

from karpenter_core.provider.kit.calls.bounded_reads import (
    UnusableAnswerError,
    read_bounded_pool_answer,
)
from karpenter_provider_alibabacloud.codes import NO_CREDENTIALS, ApiError
from karpenter_provider_alibabacloud.sdk_models import load_models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
_LAUNCHES: Final = frozenset({"CreateAutoProvisioningGroup", "RunInstances"})
"""Actions that are answered when instances are made, which takes longer than other calls."""


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
        self._models: Final[Any] = load_models(_PACKAGES[service])
        protocol = endpoint.protocol or "https"
        config: Any = import_module("alibabacloud_tea_openapi.utils_models").Config(
            credential=credential.client,
            region_id=endpoint.region,
            endpoint=endpoint.host(service),
            protocol=protocol,
            connect_timeout=round(connect_seconds * 1000),
            read_timeout=round(read_seconds * 1000),
            max_idle_conns=connections,
            user_agent="karpenter",
        )
        self._client: Final[Any] = import_module(f"{_PACKAGES[service]}.client").Client(config)
        self._methods: Final = _methods(cast("type[object]", type(self._client)))
        host: str = self._client._endpoint  # noqa: SLF001 - the SDK's table of hosts is no other way to be read
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
        once.call_api = call_api
        method = getattr(once, name)
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
        options: Any = import_module("darabonba.runtime").RuntimeOptions
        if action in _LAUNCHES:
            return options(read_timeout=self._launch_read_milliseconds)
        return options()

    def _failure(self, action: str, error: Exception) -> ApiError:
        no_credentials: Any = import_module(
            "alibabacloud_credentials.exceptions"
        ).CredentialException
        answered: Any = import_module("alibabacloud_tea_openapi.exceptions").AlibabaCloudException
        action = f"{self._service}:{action}"
        inner = getattr(error, "inner_exception", error)
        if isinstance(inner, no_credentials):
            return ApiError(NO_CREDENTIALS, str(inner), action=action)
        if not isinstance(error, answered):
            return ApiError("", f"no answer: {getattr(inner, 'message', inner)}", action=action)
        said: Any = error
        data: Mapping[str, object] = said.data or {}
        # The SDK's own message has the status and the request's id in its text.
        message = data.get("Message") or data.get("message") or said.message
        wait: int | None = said.retry_after
        return ApiError(
            "" if said.code in {None, "None"} else said.code,
            str(message or ""),
            "" if said.request_id in {None, "None"} else said.request_id,
            said.status_code or 0,
            None if wait is None else timedelta(milliseconds=wait),
            action=action,
        )


def request_model(
    models: Any, action: str, parameters: Mapping[str, object]
) -> tuple[Any, list[str]]:
    """Return the SDK's model of a request, and the parameters that it does not know (`Tag.1.Keyy`)."""
    model = getattr(models, f"{action}Request")()
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
    from requests import Session
    from requests.utils import get_environ_proxies

    core: Any = import_module("darabonba.core").DaraCore
    sessions: dict[str, Session] = core._sessions  # noqa: SLF001 - it has no other door
    proxies = {} if direct else get_environ_proxies(f"{protocol}://{host}")
    key = f"{protocol}://{host.rstrip('/')}:80:pool={connections}"
    session = Session()
    session.trust_env = False
    # A redirect would take the token of the credentials along, in a header of Alibaba Cloud's own.
    vars(session)["get_redirect_target"] = _no_redirect
    adapter = _routed(core, protocol, connections, proxies, answer_seconds=answer_seconds)
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
    core: Any,
    protocol: str,
    connections: int,
    proxies: Mapping[str, str],
    *,
    answer_seconds: float,
) -> Any:
    """Return the SDK's own adapter, with its TLS settings, sending by `proxies` alone.

    It reads answers up to a size and for a time: the SDK reads them whole. Plain HTTP gets an adapter without TLS: the SDK would read all root certificates for it.
    """
    from requests.adapters import HTTPAdapter
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    adapter: Any = (
        HTTPAdapter(pool_maxsize=connections)
        if protocol == "http"
        else core.get_adapter(protocol, pool_size=connections)
    )
    send = adapter.send

    def routed(request: object, **options: Any) -> object:
        response = send(request, **(options | {"proxies": proxies}))
        try:
            response._content = read_bounded_pool_answer(  # noqa: SLF001 - where requests itself has it
                response.raw, seconds=answer_seconds, decode=True
            )
        except (UnusableAnswerError, HTTPError) as error:
            # The SDK takes errors of this kind for no answer.
            raise RequestException(str(error)) from error
        response._content_consumed = True  # noqa: SLF001
        return response

    adapter.send = routed
    return adapter


def _silence() -> None:
    """Leave what the SDK logs to the process's own handlers."""
    for name in ("darabonba-core", "alibabacloud-tea", "credentials"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.WARNING)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
