"""Sends single requests through the SDK's pipeline for Azure Resource Manager.

All clients of the SDK share it (`azure-mgmt-core`); no generated client is loaded.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final
from urllib.parse import urlsplit

from karpenter_core.errors import SettingsError
from karpenter_provider_azure.arm.credentials import find_credential
from karpenter_provider_azure.arm.errors import ArmError, error_of_answer
from karpenter_provider_azure.arm.transport import make_transport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from azure.core.rest import HttpRequest, HttpResponse
    from azure.mgmt.core import ARMPipelineClient

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_provider_azure.arm.credentials import CappedCredential
    from karpenter_provider_azure.arm.transport import SdkTransport
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["ArmAnswer", "SdkSender"]

_ArmClient: TypeAlias = "ARMPipelineClient[HttpRequest, HttpResponse]"

CONNECT_SECONDS: Final = 5
READ_SECONDS: Final = 20
"""Azure answers writes before it carries them out; three attempts fit into the time of a hook."""

_CONNECTIONS: Final = 64
_HTTPS_PORT: Final = 443
_REFUSED: Final = 400
_UNAUTHENTICATED: Final = 401


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAnswer:
    """An answer that is no error."""

    status: int
    body: JsonObject
    """Empty if the answer has no body."""
    headers: Mapping[str, str]
    """By name in lower case."""


@final
class SdkSender:
    """Sends requests to one endpoint; callable from any thread. Each request is one attempt."""

    def __init__(
        self,
        settings: AzureSettings,
        *,
        credential: CappedCredential | None,
        authentication_policy: object,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        """Raise `SettingsError` for an endpoint without TLS, unless there is an authentication policy."""
        cloud = settings.cloud
        self.endpoint: Final = cloud.resource_manager
        """The URL of Azure Resource Manager."""
        if authentication_policy is None and urlsplit(self.endpoint).scheme != "https":
            raise SettingsError(
                f"the endpoint of Azure Resource Manager must be an https URL, not {self.endpoint}: "
                "tokens are not sent without TLS"
            )
        self._settings: Final = settings
        self._scope: Final = cloud.scope
        self._credential: Final = credential or find_credential(
            cloud, ca_bundle=settings.ca_bundle, read_seconds=read_seconds
        )
        self._read_seconds: Final = read_seconds
        self._authentication_policy: Final = authentication_policy
        self._lock: Final = Lock()
        self._client: _ArmClient | None = None
        _limit_logs(is_on=settings.enable_azure_sdk_logging)

    def is_own(self, url: str) -> bool:
        """Whether a URL is of this endpoint or a region of it: `eastus.management.azure.com`."""
        own, other = urlsplit(self.endpoint), urlsplit(url)
        try:
            # Azure writes links with and without the usual port.
            is_same_port = (own.port or _HTTPS_PORT) == (other.port or _HTTPS_PORT)
        except ValueError:
            return False
        host, own_host = other.hostname or "", own.hostname or ""
        return (
            other.scheme == own.scheme
            and is_same_port
            and not other.username
            and (host == own_host or host.endswith(f".{own_host}"))
        )

    def check_token(self) -> None:
        """Get a token.

        Raises:
            NoTokenError: no credential gives one.
        """
        self.token()

    def token(self) -> str:
        """Return a token for Azure Resource Manager.

        Raises:
            NoTokenError: no credential gives one.
        """
        return str(self._credential.get_token(self._scope).token)

    def send(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: JsonMapping | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ArmAnswer:
        """Send one request; `path` may be a URL of this endpoint.

        A request whose token Azure does not accept (status 401) was not carried out, and is sent once more
        with a new token: the old one may have been revoked.

        Raises:
            ArmError: it was refused, or not answered (status 0).
            NoTokenError: no credential gave a token, and nothing was sent.
        """
        generation = self._credential.generation
        answer = self._sent(method, path, parameters, body, headers)
        if answer[0].status_code == _UNAUTHENTICATED:
            self._credential.forget_tokens(generation)
            answer = self._sent(method, path, parameters, body, headers)
        return _answer(*answer)

    def _sent(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None,
        body: JsonMapping | None,
        headers: Mapping[str, str] | None,
    ) -> tuple[HttpResponse, bytes]:
        """Return the response and its content."""
        from azure.core.exceptions import AzureError
        from azure.core.rest import HttpRequest

        client = self._open_client()
        request = HttpRequest(
            method,
            client.format_url(path),
            params=parameters,
            json=body,
            headers=dict(headers or {}),
        )
        try:
            # The pipeline would decode an answer that is not a stream, and keep it beside ours.
            with client.send_request(request, stream=True) as response:
                return response, response.read()
        except (AzureError, OSError) as error:
            raise ArmError(f"no answer: {error}", status=0) from error

    def close(self) -> None:
        """Close the connections; a request afterwards opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
        self._credential.close()

    def _open_client(self) -> _ArmClient:
        with self._lock:
            if self._client is None:
                self._client = self._make_client()
            return self._client

    def _make_client(self) -> _ArmClient:
        """Return the pipeline of the SDK's clients, without the operations of any service.

        Its steps are those that the generated clients have, in their order; nothing is sent again.
        """
        from azure.core.pipeline import policies
        from azure.mgmt.core import ARMPipelineClient
        from azure.mgmt.core import policies as arm

        authentication = self._authentication_policy or arm.ARMChallengeAuthenticationPolicy(
            self._credential, self._scope
        )
        steps: list[object] = [
            policies.RequestIdPolicy(),
            policies.UserAgentPolicy(user_agent="karpenter-core"),
            policies.ProxyPolicy(),
            policies.ContentDecodePolicy(),
            arm.ARMAutoResourceProviderRegistrationPolicy(),
            policies.RedirectPolicy(),
            policies.RetryPolicy(retry_total=0),
            authentication,
            policies.NetworkTraceLoggingPolicy(),
            policies.DistributedTracingPolicy(),
            policies.SensitiveHeaderCleanupPolicy(),
            arm.ARMHttpLoggingPolicy(),
        ]
        transport = _transport(self._settings.ca_bundle, self._read_seconds)
        return ARMPipelineClient(self.endpoint, policies=steps, transport=transport)


def _transport(ca_bundle: str, read_seconds: float) -> SdkTransport:
    """Return the SDK's transport, with as many connections as threads that call."""
    from requests import Session
    from requests.adapters import HTTPAdapter

    session = Session()
    adapter = HTTPAdapter(pool_maxsize=_CONNECTIONS, max_retries=0)
    for scheme in ("https://", "http://"):
        session.mount(scheme, adapter)
    return make_transport(
        connect_seconds=CONNECT_SECONDS,
        read_seconds=read_seconds,
        ca_bundle=ca_bundle,
        session=session,
    )


def _answer(response: HttpResponse, content: bytes) -> ArmAnswer:
    """Return an answer.

    Raises:
        ArmError: the answer is an error; or it cannot be read, which is as no answer (status 0).
    """
    status = response.status_code
    headers = {name.lower(): str(value) for name, value in response.headers.items()}
    if status >= _REFUSED:
        raise error_of_answer(status, _error_body(content), headers)
    if not content.strip():
        return ArmAnswer(status=status, body={}, headers=headers)
    try:
        body: object = json.loads(content)
    except ValueError as error:
        raise ArmError(f"the answer of status {status} is not JSON", status=0) from error
    if not isinstance(body, dict):
        raise ArmError(f"the answer of status {status} is no JSON object", status=0)
    return ArmAnswer(status=status, body=cast("JsonObject", body), headers=headers)


def _error_body(content: bytes) -> JsonObject:
    """Return the body of an error; text that is no JSON, as of a proxy, becomes the message."""
    try:
        body: object = json.loads(content)
    except ValueError:
        body = None
    if isinstance(body, dict):
        return cast("JsonObject", body)
    return {"message": content[:200].decode(errors="replace").strip()}


def _limit_logs(*, is_on: bool) -> None:
    """Show the SDK's lines only with the level DEBUG: it writes several at INFO for each request."""
    is_shown = is_on and logging.getLogger().isEnabledFor(logging.DEBUG)
    logging.getLogger("azure").setLevel(logging.NOTSET if is_shown else logging.ERROR)
