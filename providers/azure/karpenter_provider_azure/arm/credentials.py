"""Gets tokens for Azure Resource Manager from the default credential chain.

In a cluster the chain ends at workload identity: the variables `AZURE_CLIENT_ID`, `AZURE_TENANT_ID` and
`AZURE_FEDERATED_TOKEN_FILE` are set by its webhook.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import closing
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

from karpenter_provider_azure.arm.errors import NoTokenError
from karpenter_provider_azure.arm.transport import make_transport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from azure.core.credentials import AccessToken
    from azure.core.rest import HttpRequest, HttpResponse

    from karpenter_provider_azure.arm.transport import SdkTransport
    from karpenter_provider_azure.cloud_environment import CloudEnvironment

__all__ = ["CappedCredential", "TokenCredential", "find_credential", "token_failure"]

LONGEST_SECONDS: Final = 2 * 3600
"""A token is used for two hours at most, so that changed permissions of an identity take effect."""

READ_SECONDS: Final = 20
"""The longest wait for a token."""

_CONNECT_SECONDS: Final = 5
_RENEWED_SECONDS: Final = 300
"""A token is renewed this long before it expires, as by the SDK."""
_THROTTLED: Final = 429
_SERVER_FAULT: Final = 500
_AUTHORITY_HOST: Final = "AZURE_AUTHORITY_HOST"
_TOKEN_FILE: Final = "AZURE_FEDERATED_TOKEN_FILE"  # noqa: S105 - the name of a variable


_CREDENTIAL: Final = re.compile(
    r"^\t*(\w+Credential): (?:\1 authentication unavailable\. )?", re.MULTILINE
)
_ELSEWHERE: Final = re.compile(
    r"\b(?:To mitigate this issue|Visit https|Please visit|See the troubleshooting|Trace ID|Correlation ID)"
)
_ENDS_OF_CHAIN: Final = frozenset({"AzureDeveloperCliCredential", "AzureCliCredential"})
"""Credentials of people, which come last."""
_LONGEST_REASON: Final = 500
_Credential = TypeVar("_Credential")


class TokenCredential(Protocol):
    """A credential of the SDK."""

    def get_token(self, *scopes: str, claims: str | None = None) -> AccessToken:
        """Return a token with the fields `token` and `expires_on`."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


def find_credential(
    cloud: CloudEnvironment,
    *,
    ca_bundle: str = "",
    read_seconds: float = READ_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> CappedCredential:
    """Return the default chain of credentials; nothing is imported or asked before a token is due.

    `ca_bundle` is a file with the certificates that the token endpoint is verified by; it has
    `read_seconds` to answer.
    """
    given = os.environ if environment is None else environment
    outages = AuthorityOutages(cloud.authority)

    def make() -> TokenCredential:
        return _chain(cloud, outages.transport(ca_bundle, read_seconds), given)

    return CappedCredential(make, outages=outages)


@final
class AuthorityOutages:
    """Counts requests to the service that gives tokens which it did not answer, failed at, or throttled.

    A chain of credentials tells of that only in the text of its error, as of a refusal.
    """

    def __init__(self, authority: str) -> None:
        self._authority: Final = authority
        self.count = 0

    def transport(self, ca_bundle: str, read_seconds: float) -> SdkTransport:
        """Return a transport of the SDK that counts."""
        from azure.core.exceptions import AzureError

        transport = make_transport(
            connect_seconds=_CONNECT_SECONDS, read_seconds=read_seconds, ca_bundle=ca_bundle
        )
        send: Callable[..., HttpResponse] = transport.send

        def send_and_count(request: HttpRequest, **options: object) -> HttpResponse:
            try:
                answer = send(request, **options)
            except AzureError:
                self._note_outage(request)
                raise
            if answer.status_code == _THROTTLED or answer.status_code >= _SERVER_FAULT:
                self._note_outage(request)
            return answer

        vars(transport)["send"] = send_and_count
        return transport

    def _note_outage(self, request: HttpRequest) -> None:
        if request.url.startswith(self._authority):
            self.count += 1


def _chain(
    cloud: CloudEnvironment, transport: SdkTransport, given: Mapping[str, str]
) -> TokenCredential:
    from azure import identity

    def made(kind: Callable[..., _Credential], **options: object) -> _Credential:
        return kind(
            authority=cloud.authority,
            transport=transport,
            retry_total=0,  # the call that needs the token is made again
            # The service that lists authorities knows those of Azure's own clouds only.
            disable_instance_discovery=not cloud.is_named,
            **options,
        )

    excluded = ("shared_token_cache", "visual_studio_code", "powershell", "broker")
    options = {f"exclude_{name}_credential": True for name in excluded}
    if given.get(_AUTHORITY_HOST) or not given.get(_TOKEN_FILE):
        return made(identity.DefaultAzureCredential, **options)
    # The default chain does not pass its authority on to workload identity.
    return identity.ChainedTokenCredential(
        made(identity.WorkloadIdentityCredential),
        made(identity.DefaultAzureCredential, **options, exclude_workload_identity_credential=True),
    )


@final
class CappedCredential:
    """Keeps one token for each scope, for two hours at most; callable from any thread."""

    def __init__(
        self,
        make: Callable[[], TokenCredential],
        *,
        outages: AuthorityOutages | None,
        now: Callable[[], float] = time.time,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        """`make` is called for each token: the SDK's credentials keep theirs until they expire.

        `now` is in seconds since 1970.
        """
        self._make: Final = make
        self._outages: Final = outages or AuthorityOutages("")
        self._now: Final = now
        self._longest_seconds: Final = longest_seconds
        self._lock: Final = Lock()
        self._tokens: Final[dict[tuple[str, ...], AccessToken]] = {}
        self.generation = 0
        """Counts the times that tokens were forgotten."""

    def get_token(
        self,
        *scopes: str,
        claims: str | None = None,
        **_options: object,
    ) -> AccessToken:
        """Return a token; a token with `claims` is always a new one.

        Raises:
            NoTokenError: no credential gave one, and the last one has expired.
        """
        from azure.core.credentials import AccessToken

        with self._lock:  # threads that need a token at once wait for one request
            token = None if claims else self._tokens.get(scopes)
            if token is not None and token.expires_on - self._now() > _RENEWED_SECONDS:
                return token
            try:
                given = self._request(scopes, claims)
            except NoTokenError:
                if token is None or token.expires_on <= self._now():
                    raise
                return token
            latest = int(self._now() + self._longest_seconds)
            token = AccessToken(given.token, min(given.expires_on, latest))
            self._tokens[scopes] = token
            return token

    def forget_tokens(self, generation: int) -> None:
        """Get new tokens for the next calls, unless another call has asked for that since then."""
        with self._lock:
            if generation == self.generation:
                self.generation += 1
                self._tokens.clear()

    def close(self) -> None:
        """Forget all tokens."""
        with self._lock:
            self._tokens.clear()

    def _request(self, scopes: tuple[str, ...], claims: str | None) -> AccessToken:
        from azure.core.exceptions import AzureError

        outages = self._outages.count
        try:
            with closing(self._make()) as credential:
                return (
                    credential.get_token(*scopes, claims=claims)
                    if claims
                    else credential.get_token(*scopes)
                )
        except (AzureError, OSError, ValueError) as error:
            reason = token_failure(str(getattr(error, "message", "") or error))
            raise NoTokenError(
                f"no token for {scopes[0]}: {reason}",
                is_unanswered=self._outages.count > outages,
            ) from error


def token_failure(text: str) -> str:
    """Return the cause in the text of a failed chain of credentials, in one line.

    The text has a part for each credential up to the one that failed, and links. Credentials that are not
    configured are named alone.
    """
    parts = [(found[1], found.end()) for found in _CREDENTIAL.finditer(text)]
    if not parts:
        return _one_line(text)
    names = list(dict.fromkeys(name for name, _ in parts))
    last, start = parts[-1]
    if last in _ENDS_OF_CHAIN:
        return f"no credential is configured; tried {', '.join(names)}"
    others = f" (not configured: {', '.join(names[:-1])})" if names[:-1] else ""
    return f"{last}: {_one_line(text[start:])}{others}"


def _one_line(text: str) -> str:
    """Return the sentences before those that only lead somewhere else."""
    line = " ".join(text.split())
    shown = _ELSEWHERE.split(line)[0].strip() or line
    return shown if len(shown) <= _LONGEST_REASON else f"{shown[:_LONGEST_REASON]}…"
