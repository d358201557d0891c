"""Makes all calls of Azure Resource Manager.

Requests go through the pipeline that the SDK's clients share (`SdkSender`), which adds tokens and request
ids. Bodies and answers are JSON under the names of the API. The SDK's own retries are off.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, cast, final
from urllib.parse import urlsplit

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.calls.caller import CloudCaller
from karpenter_core.provider.kit.calls.operation_limits import OperationLimits
from karpenter_core.provider.kit.calls.pages import token_pages
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_provider_azure.arm.errors import ArmNotFoundError, arm_failure, call_error
from karpenter_provider_azure.arm.sdk_sender import READ_SECONDS, ArmAnswer, SdkSender
from karpenter_provider_azure.json_values import listed_items

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.provider.kit.calls.caller import AttemptObserver
    from karpenter_provider_azure.arm.credentials import CappedCredential
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["NETWORK_API_VERSION", "ArmAnswer", "ArmClient", "operation_class", "remaining_requests"]

_PREFIX: Final = "x-ms-ratelimit-remaining-"
_RESOURCE: Final = f"{_PREFIX}resource"
_TENANT_QUOTA: Final = "x-ms-user-quota-remaining"
"""Of Resource Graph."""


def remaining_requests(headers: Mapping[str, str]) -> dict[str, int]:
    """Return the number of remaining requests by limit, such as `subscription-writes`.

    `headers` are by name in lower case. Limits of a resource provider have its name:
    `Microsoft.Compute/PutVM3Min`. What cannot be read is left out.
    """
    found: dict[str, int] = {}
    for name, value in headers.items():
        if name == _RESOURCE:
            for entry in value.split(","):
                limit, _, count = entry.strip().rpartition(";")
                _put(found, limit, count)
        elif name == _TENANT_QUOTA:
            _put(found, "graph", value)
        elif name.startswith(_PREFIX):
            _put(found, name.removeprefix(_PREFIX), value)
    return found


def _put(found: dict[str, int], limit: str, count: str) -> None:
    text = count.strip()
    if limit and text.isdecimal():
        found[limit] = int(text)


NETWORK_API_VERSION: Final = "2024-05-01"
"""Of reads of Microsoft.Network."""
RETRIES: Final = RetryPolicy(
    throttled_attempts=3, longest_backoff_seconds=10, longest_call_seconds=60
)
"""A call that is throttled for longer raises `ThrottledError`, and holds no thread meanwhile."""

_NAMESPACES: Final = {"microsoft.compute": "compute", "microsoft.network": "network"}
_GRAPH: Final = "microsoft.resourcegraph"
_KINDS: Final = {"GET": "reads", "HEAD": "reads", "DELETE": "deletes"}
"""Other methods write."""
_VM_CLASSES: Final = {"PUT": "compute-put-vm", "DELETE": "compute-delete-vm"}
"""Of one virtual machine by method; others update it (Azure, compute throttling limits)."""
_POLLS: Final = frozenset({"operations", "operationresults"})


def operation_class(method: str, path: str) -> str:
    """Return the class that Azure counts a call in: `compute-put-vm`, `network-reads`, `graph`, `reads`.

    Compute counts creations, updates, deletions, reads and listings of virtual machines apart, and polls of
    operations. Other calls are counted by their resource provider, or by Azure Resource Manager.
    """
    segments = path.lower().split("?")[0].strip("/").split("/")
    of_provider = segments[segments.index("providers") + 1 :] if "providers" in segments else []
    namespace, names = "".join(of_provider[:1]), of_provider[1:]
    if namespace == _GRAPH:
        return "graph"
    service = _NAMESPACES.get(namespace)
    kind = _KINDS.get(method.upper(), "writes")
    if service is None:
        return kind
    if not _POLLS.isdisjoint(names[2:3]):
        return f"{service}-polls"
    if names[:1] != ["virtualmachines"]:
        return f"{service}-{kind}"
    if kind == "reads":
        return "compute-get-vm" if names[1:] else "compute-list-vms"
    is_of_part = len(names) > 2  # noqa: PLR2004 - type and name of the virtual machine itself
    return _VM_CLASSES.get("" if is_of_part else method.upper(), "compute-update-vm")


@final
class ArmClient:
    """Calls Azure Resource Manager for one subscription; callable from any thread.

    All methods raise `ArmNotFoundError` for status 404, `ArmError` for other refusals, `ThrottledError`
    for 429, `AuthError` for 401, 403 and without a token, and `UncertainCallError` without an answer.
    """

    def __init__(
        self,
        settings: AzureSettings,
        *,
        credential: CappedCredential | None = None,
        authentication_policy: object = None,
        observe: AttemptObserver | None,
        observe_remaining: Callable[[Mapping[str, int]], None] | None,
        retries: RetryPolicy = RETRIES,
        read_seconds: float = READ_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Nothing is imported or asked before the first call.

        `authentication_policy` is one of the SDK's policies and replaces tokens of `credential`, for an
        endpoint without TLS. `observe_remaining` receives the remaining requests by limit.
        `read_seconds` is the longest wait for an answer of Azure, or for a token.

        Raises:
            SettingsError: the endpoint has no TLS; tokens are not sent over it.
        """
        self.subscription_id: Final = settings.azure_subscription_id
        self.location: Final = settings.location
        self._sender: Final = SdkSender(
            settings,
            credential=credential,
            authentication_policy=authentication_policy,
            read_seconds=read_seconds,
        )
        self._observe_remaining: Final = observe_remaining
        self._caller: Final = CloudCaller(
            arm_failure,
            policy=retries,
            limits=OperationLimits(monotonic=time.monotonic),
            make_error=call_error,
            observe=observe,
            sleep=sleep,
        )

    def get(
        self,
        path: str,
        *,
        api_version: str,
        action: str,
        query: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Return the body of a GET."""
        answer = self.send("GET", path, api_version=api_version, action=action, query=query)
        return answer.body

    def list_all(
        self,
        path: str,
        *,
        api_version: str,
        action: str,
        query: Mapping[str, str] | None = None,
    ) -> list[JsonObject]:
        """Return the items of all pages of a listing.

        Raises:
            CloudProviderError: a page is missing, has no items, or the pages go in a circle: a part of a
                listing is never returned.
        """

        def fetch(link: str | None) -> JsonObject:
            if link is None:
                return self.get(path, api_version=api_version, action=action, query=query)
            try:
                return self.follow(link, action=action).body
            except ArmNotFoundError as error:  # the first page does exist
                raise CloudProviderError(f"a page of the listing is missing: {error}") from error

        pages = token_pages(
            fetch,
            lambda page: cast("str | None", page.get("nextLink")),
            listing=action,
            token_name="nextLink",  # noqa: S106 - no password
        )
        return listed_items(pages, "value", action=action)

    def send(
        self,
        method: str,
        path: str,
        *,
        api_version: str,
        action: str,
        body: JsonMapping | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ArmAnswer:
        """Return the answer to one request; a long-running operation is not waited for.

        `path` begins with a slash; ids in it are quoted by the caller. The request must be one that can
        be made again after it was carried out: a PUT of the same body, a DELETE, a query.
        """
        parameters = {"api-version": api_version, **(query or {})}
        return self._call(
            method,
            path,
            action=action,
            parameters=parameters,
            body=body,
            headers=headers,
        )

    def follow(self, url: str, *, action: str) -> ArmAnswer:
        """Return the answer to a GET of a URL that an answer named: a page, or an operation.

        Raises:
            CloudProviderError: the URL is not of this endpoint, so that no token is sent to it.
        """
        if not self._sender.is_own(url):
            host = urlsplit(url).hostname or url
            raise CloudProviderError(
                f"{action}: the answer refers to {host}, which is not the endpoint "
                f"{self._sender.endpoint}; no token is sent to it"
            )
        return self._call("GET", url, action=action)

    def check_token(self) -> None:
        """Return if a token can be had.

        Raises:
            AuthError: no credential gives one.
        """
        self._caller.call(self._sender.check_token, action="tokens:get")

    def bearer_token(self) -> str:
        """Return a token, for a service of AKS beside Azure Resource Manager.

        Raises:
            AuthError: no credential gives one.
        """
        return self._caller.call(self._sender.token, action="tokens:get")

    def close(self) -> None:
        """Close the connections; a call afterwards opens new ones."""
        self._sender.close()

    def _call(
        self,
        method: str,
        path: str,
        *,
        action: str,
        parameters: Mapping[str, str] | None = None,
        body: JsonMapping | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ArmAnswer:
        answer = self._caller.call(
            lambda: self._sender.send(
                method, path, parameters=parameters, body=body, headers=headers
            ),
            action=action,
            operation_class=operation_class(method, path),
            repeatable=True,
        )
        if self._observe_remaining is not None and (left := remaining_requests(answer.headers)):
            self._observe_remaining(left)
        return answer
